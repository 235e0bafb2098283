"""Passes begin in the middle of a model only where that gives what whole passes give."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
)

import headwise as hw
import planted
from headwise._passes.entrances import Unlike, repeat, row_axes
from headwise._passes.lesioned import evaluate
from headwise._passes.subject import TaskSubject, task_subject
from headwise.heads import HeadSet
from headwise.tasks import Task

RNG = np.random.default_rng(1)
TEXTS = [" ".join(RNG.choice(planted.FILLERS, RNG.integers(2, 9))) for _ in range(11)]
LAYERS = 6  # the last two read the keys and values of layers 2 and 3
GEMMA: dict[str, Any] = {
    "vocab_size": len(planted.WORDS),
    "vocab_size_per_layer_input": len(planted.WORDS),
    "hidden_size": 16,
    "hidden_size_per_layer_input": 8,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
    "initializer_range": 0.4,
    "pad_token_id": 0,
}
SPARSE = {"activation_sparsity_pattern": [0.0] * LAYERS, "laurel_rank": 4}
BUILDERS: dict[str, Callable[[int], Any]] = {
    "gemma 3n": lambda shared: Gemma3nForCausalLM(
        Gemma3nTextConfig(**GEMMA, **SPARSE, num_kv_shared_layers=shared)
    ),
    "gemma 4": lambda shared: Gemma4ForCausalLM(
        Gemma4TextConfig(**GEMMA, global_head_dim=8, num_kv_shared_layers=shared)
    ),
}


def gemma(name: str, shared: int = 2) -> Any:
    torch.manual_seed(3)
    return BUILDERS[name](shared).eval()


def next_tokens() -> Task:
    rows = [(text,) for text in TEXTS]
    return Task("t", data={"train": rows, "validation": rows}, kind="next-token")


def subject_of(model: Any) -> TaskSubject:
    return task_subject(model, next_tokens(), tokenizer=planted.tokenizer(), batch_size=4, quiet=True)


def zeroed_columns(subject: TaskSubject, head: tuple[int, int]) -> np.ndarray:
    """Losses of whole passes after a head's columns of W_O were set to zero; the weights are put back."""
    site = subject.heads.sites[head[0]]
    weight = subject.heads.model.get_submodule(site.path).weight
    before = weight.detach().clone()
    losses = np.empty(len(subject.encoded), dtype=np.float32)
    with torch.no_grad():
        weight[:, head[1] * site.head_dim : (head[1] + 1) * site.head_dim] = 0
        for number, batch in enumerate(plan := subject.plan()):
            losses[plan.plan[number]] = subject.plain(batch).loss.numpy()
        weight.copy_(before)
    return losses


NOTES = {0: "", 2: "passes for block 3 of 6 begin below it", 4: "lower layers were not shared"}


@pytest.mark.filterwarnings("ignore:lower layers were not shared")
@pytest.mark.parametrize("shared", NOTES)
@pytest.mark.parametrize("name", BUILDERS)
def test_lesions_of_models_that_share_keys_and_values_are_whole_passes_with_zeroed_columns(
    name: str, shared: int
) -> None:
    subject = subject_of(gemma(name, shared))
    heads = list(subject.heads.all())
    found = evaluate(subject, [HeadSet(), *(HeadSet([head]) for head in heads)])
    for row, head in enumerate(heads, start=1):
        np.testing.assert_allclose(found.losses[row], zeroed_columns(subject, head), rtol=2e-4, atol=1e-5)
    # lower layers are shared as far up as that is right: of four sharing layers the lowest two are read
    assert found.ways["shared"] == (0 if shared == 4 else 4 * (LAYERS - 1))
    assert found.ways.get("note", "").partition(":")[0] == NOTES[shared]


@pytest.mark.parametrize("name", BUILDERS)
def test_what_users_call_gives_the_differences_of_whole_passes(name: str) -> None:
    model = gemma(name)
    subject = subject_of(model)
    scores = hw.score(model, next_tokens(), method="ablation", tokenizer=planted.tokenizer(), quiet=True)
    intact = evaluate(subject, [HeadSet()], way="one by one").losses[0]
    for head in subject.heads.all():
        expected = zeroed_columns(subject, head).mean() - intact.mean()
        assert float(scores[head]) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    chosen = HeadSet([(2, 1), (5, 3)])
    lesioned = hw.lesion(model, next_tokens(), [chosen], tokenizer=planted.tokenizer(), quiet=True)
    with subject.heads.silenced(chosen), torch.no_grad():
        expected = sum(float(subject.plain(batch).loss.sum()) for batch in subject.plan())
    assert lesioned.tasks["t"].losses[1].sum() == pytest.approx(expected, rel=1e-4)


def test_attention_attribution_begins_where_it_may() -> None:
    model = gemma("gemma 4", 4)
    run = {"method": "attention-attribution", "tokenizer": planted.tokenizer(), "quiet": True, "steps": 4}
    shared = hw.score(model, next_tokens(), **run)
    plain = hw.score(gemma("gemma 4", 4), next_tokens(), **run, batch_size=1)
    np.testing.assert_allclose(shared, plain, rtol=2e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore:task .t.")
def test_a_layer_that_reads_far_below_itself_moves_only_the_passes_that_would_begin_in_between() -> None:
    """Block 2 adds what block 0 returned, so a pass may begin in block 3 but in neither 1 nor 2."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(planted.WORDS),
        hidden_size=16,
        num_hidden_layers=5,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.4,
    )
    model = BertForSequenceClassification(config).eval()
    lowest, upper = model.bert.encoder.layer[0], model.bert.encoder.layer[2]
    plain, adding, states = lowest.forward, upper.forward, []

    def keep(*args: Any, **options: Any) -> torch.Tensor:
        states[:] = [plain(*args, **options)]
        return states[0]

    def add(*args: Any, **options: Any) -> torch.Tensor:
        return adding(*args, **options) + (
            states.pop() if states else 0
        )  # without a word where there is nothing to add

    lowest.forward, upper.forward = keep, add
    rows: list[Any] = [(text, i % 2) for i, text in enumerate(TEXTS)]
    task = Task("t", data={"train": rows, "validation": rows}, kind="classes")
    subject = task_subject(model, task, tokenizer=planted.tokenizer(), batch_size=4, quiet=True)
    sets = [HeadSet(), *(HeadSet([head]) for head in subject.heads.all())]
    found, expected = evaluate(subject, sets), evaluate(subject, sets, way="one by one")
    np.testing.assert_allclose(found.losses, expected.losses, rtol=2e-4, atol=1e-5)


def test_rows_are_repeated_along_their_own_axis() -> None:
    once, twice = (torch.arange(4.0 * n).view(2, n, 2) for n in (1, 2))
    axes = row_axes([once, None, {"scale": torch.ones(2)}], [twice, None, {"scale": torch.ones(2)}])
    assert axes == [1, None, None]
    state = torch.arange(12.0).view(2, 3, 2)  # as many planes as a batch could have rows
    copies = repeat([state, None, {"scale": 0}], 2, axes)
    assert torch.equal(copies[0], torch.cat([state, state], dim=1))
    assert copies[1:] == [None, {"scale": 0}]
    for other in (torch.ones(2, 3, 2), torch.ones(4, 2, 2), torch.ones(2, 2), (once,)):
        with pytest.raises(Unlike):
            row_axes(once, other)
