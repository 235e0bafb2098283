"""Attention never waits for cuDNN's plans."""

from types import SimpleNamespace

import pytest
import torch
import toy

import headwise.models._model as multi
import headwise.models._plain as plain
import headwise.training._fewshot as fewshot
from headwise.models._attention import LONG, without_plans
from headwise.training import Method, TrainingRun

TASK = toy.task("mood", 40)
allowed = torch.backends.cuda.cudnn_sdp_enabled


def ids(tokens: int = 16, is_cuda: bool = True):
    return SimpleNamespace(is_cuda=is_cuda, shape=(4, tokens))


def test_cudnn_is_off_inside_and_as_before_outside() -> None:
    assert allowed()
    with without_plans(ids()):
        assert not allowed()
        with without_plans(ids()):
            assert not allowed()
        assert not allowed()
    assert allowed()
    with pytest.raises(ValueError), without_plans(ids()):
        raise ValueError
    assert allowed()


def test_who_turned_it_off_keeps_it_off() -> None:
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with without_plans(ids()):
            assert not allowed()
        assert not allowed()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.parametrize("where", [ids(LONG + 1), ids(is_cuda=False)])
def test_long_rows_and_other_devices_are_left_alone(where) -> None:
    with without_plans(where):
        assert allowed()


@pytest.fixture
def seen(monkeypatch):
    """Whether each call of attention may be cuDNN's, with batches that claim to be on a GPU."""
    found = []
    own = torch.nn.functional.scaled_dot_product_attention

    def watched(*args, **kwargs):
        found.append(allowed())
        return own(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    for module in (multi, plain, fewshot):
        monkeypatch.setattr(module, "without_plans", lambda rows: without_plans(ids(rows.shape[-1])))
    return found


def test_training(seen) -> None:
    run = TrainingRun(toy.model([TASK], "bert"), [TASK], Method(), toy.settings(epochs=1))
    seen.clear()  # what found the heads
    run.train()
    assert seen
    assert not any(seen)


def test_few_shot_transfer(seen) -> None:
    model = toy.model([TASK], "bert")
    seen.clear()
    fewshot.few_shot(model, TASK, 2, [0, 1], epochs=1, quiet=True)
    checks = seen.index(False)  # stacked copies are first compared with the model itself, in full precision
    assert seen[checks:]
    assert not any(seen[checks:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(monkeypatch) -> None:
    from headwise.lesions import lesion
    from headwise.scoring import score

    found = []
    own = torch.nn.functional.scaled_dot_product_attention

    def watched(query, *args, **kwargs):
        if query.dtype == torch.bfloat16:
            found.append(allowed())
        return own(query, *args, **kwargs)

    run = TrainingRun(
        toy.model([TASK], "bert"), [TASK], Method(), toy.settings(epochs=2, device=None, precision="bf16")
    )
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    run.train()
    score(run.model, TASK, precision="bf16", quiet=True)
    lesion(run.model, [TASK], {"one": [(0, 0)]}, precision="bf16", quiet=True)
    fewshot.few_shot(run.model, TASK, 2, [0, 1], epochs=1, quiet=True, precision="bf16")
    assert found
    assert not any(found)
    assert allowed()
