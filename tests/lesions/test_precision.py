"""One precision for intact and lesioned passes, which results record."""

import numpy as np
import pytest
import torch

import planted
from headwise import HeadwiseError, dissociate
from headwise.heads import Heads, HeadSet
from headwise.lesions import lesion
from headwise.scoring import score
from headwise.tasks import batches, encode


@pytest.fixture(scope="module")
def subject():
    both = planted.tasks(24)
    return planted.model({"a": (0, 1), "b": (1, 2)}, both), list(both.values())


def by_hand(model, task, head_set) -> np.ndarray:
    losses = np.empty(len(task.split("validation")), dtype=np.float32)
    plan = batches(encode(task.split("validation"), model.tokenizer, 64), 8)
    for chosen, batch in zip(plan.plan, plan, strict=True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), Heads(model.encoder).silenced(head_set):
            losses[chosen] = model(task.name, batch).loss.float()
    return losses


def test_bf16_holds_for_intact_and_lesioned_passes(subject) -> None:
    model, (task, _) = subject
    head_set = HeadSet([(0, 1)])
    for way in ("auto", "gated", "shared", "removed", "one by one"):
        found = lesion(model, task, {"one": head_set}, precision="bf16", way=way, quiet=True)
        assert found.settings["precision"] == "bf16"
        for row, silenced in enumerate((HeadSet(), head_set)):
            np.testing.assert_allclose(
                found.tasks["a"].losses[row], by_hand(model, task, silenced), atol=2e-2
            )
    exact = lesion(model, task, {"one": head_set}, quiet=True)
    assert exact.settings["precision"] == "float32"
    assert (exact.tasks["a"].losses != found.tasks["a"].losses).any(axis=1).all()  # both rows are rounded


def test_scores_and_dissociations_say_their_precision(subject) -> None:
    model, tasks = subject
    low, full = (score(model, tasks, precision=precision, quiet=True) for precision in ("bf16", "float32"))
    assert low.attrs["precision"] == "bf16"
    assert "precision" not in full.attrs
    assert not np.array_equal(low, full)
    np.testing.assert_allclose(low, full, atol=0.03 * float(full.max()))  # bfloat16 has eight bits
    found = dissociate(model, tasks, precision="bf16", fraction=0.2, random_draws=1, bootstrap=0, quiet=True)
    assert found.settings["precision"] == "bf16"


def test_tf32_is_for_gpus(subject) -> None:
    model, (task, _) = subject
    if model.device.type == "cpu":
        with pytest.raises(HeadwiseError, match=r"tf32.*NVIDIA"):
            lesion(model, task, [HeadSet([(0, 1)])], precision="tf32", quiet=True)
    with pytest.raises(HeadwiseError, match="precision"):
        lesion(model, task, [HeadSet([(0, 1)])], precision="half", quiet=True)
