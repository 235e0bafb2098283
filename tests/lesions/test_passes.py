"""Lesions run together give what lesions run one by one give."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import planted
from headwise._passes import lesioned
from headwise._passes.lesioned import evaluate, make_plan
from headwise._passes.subject import TaskSubject, task_subject
from headwise.heads import HeadSet
from headwise.tasks import Task

pytestmark = pytest.mark.filterwarnings("ignore:task .t.")
RNG = np.random.default_rng(1)
TEXTS = [" ".join(RNG.choice(planted.FILLERS, RNG.integers(2, 9))) for _ in range(17)]
SMALL: dict[str, Any] = {"vocab_size": len(planted.WORDS), "initializer_range": 0.4}
BERT = SMALL | {
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
LLAMA = BERT | {"num_key_value_heads": 2}


def subject_of(kind: str, model: Any, **reading: Any) -> TaskSubject:
    if kind == "classes":
        rows: list[Any] = [(text, i % 2) for i, text in enumerate(TEXTS)]
        task = Task("t", data={"train": rows, "validation": rows[:2]}, kind=kind)
    elif kind == "minimal-pairs":
        rows = list(zip(TEXTS, reversed(TEXTS), strict=True))
        task = Task("t", data={"train": rows, "validation": rows[:2]}, kind=kind, text=("good", "bad"))
    else:
        rows = [(text,) for text in TEXTS]
        task = Task("t", data={"train": rows, "validation": rows[:2]}, kind=kind)
    return task_subject(
        model.eval(), task, tokenizer=planted.tokenizer(), **{"batch_size": 5, "quiet": True, **reading}
    )


def bert() -> Any:
    torch.manual_seed(3)
    return BertForSequenceClassification(BertConfig(**BERT, num_labels=2))


CASES = {
    "bert": lambda: subject_of("classes", bert()),
    "bert, some heads silenced": lambda: subject_of("classes", bert(), silenced=HeadSet([(0, 0), (3, 2)])),
    "llama": lambda: subject_of("next-token", LlamaForCausalLM(LlamaConfig(**LLAMA))),
    "gpt2, two rows an example": lambda: subject_of(
        "minimal-pairs", GPT2LMHeadModel(GPT2Config(**SMALL, n_embd=16, n_layer=4, n_head=4, n_positions=40))
    ),
    "albert": lambda: subject_of(
        "classes", AlbertForSequenceClassification(AlbertConfig(**BERT, embedding_size=8, num_labels=2))
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("at_once", [1, 10_000])
def test_every_way_gives_the_same(case: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = CASES[case]()
    single = [HeadSet([head]) for head in subject.heads.all()]
    sets = [
        HeadSet(),
        *single,
        HeadSet([(1, 0), (3, 1)]),
        HeadSet([(2, h) for h in range(4)]),
        subject.heads.all(),
    ]
    expected = evaluate(subject, sets, way="one by one")
    monkeypatch.setitem(lesioned.TOKENS_AT_ONCE, "cpu", at_once)
    for way in ("auto", "gated"):
        found = evaluate(subject, sets, way=way)
        np.testing.assert_allclose(found.losses, expected.losses, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(found.predictions, expected.predictions, rtol=2e-4, atol=1e-4)
    assert len(np.unique(expected.losses.sum(axis=1).round(6))) > len(sets) // 2  # lesions do something


def test_lower_layers_are_shared_where_that_pays() -> None:
    subject = CASES["bert"]()
    single = [HeadSet([head]) for head in subject.heads.all()]
    plan = make_plan(subject, [HeadSet(), *single])
    assert plan.ways() == {"intact": 1, "removed": 0, "gated": 4, "shared": 12}
    assert not make_plan(
        subject, [HeadSet([(1, 0)]), HeadSet([(1, 1)])]
    ).shared  # half a pass saved, a whole one spent
    albert = make_plan(CASES["albert"](), [HeadSet(), *single])
    assert not albert.shared
    assert "share one module" in albert.note


def test_removal_gives_the_same_and_is_chosen_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = CASES["bert"]()
    sets = [
        HeadSet(),
        HeadSet([(0, 1)]),
        HeadSet([(0, 0), (0, 1), (1, 2), (3, 3)]),
        HeadSet([(2, 0), (2, 3)]),
    ]
    expected = evaluate(subject, sets, way="one by one")
    whole = subject.model.encoder
    found = evaluate(subject, sets, way="removed")
    assert found.ways["removed"] == 3
    assert subject.model.encoder is whole
    np.testing.assert_allclose(found.losses, expected.losses, rtol=2e-4, atol=1e-5)
    assert not make_plan(subject, sets).removed  # seventeen short texts are not worth a copy
    monkeypatch.setattr(lesioned, "WORTH_REMOVING_TOKENS", 5)
    assert make_plan(subject, sets).removed == [2]
    every = HeadSet((0, head) for head in range(4))
    assert not make_plan(subject, [every]).removed  # a layer without heads is gated
    assert not make_plan(CASES["bert, some heads silenced"](), sets).removed
    assert not make_plan(CASES["llama"](), sets).removed  # grouped queries


def test_a_model_that_cannot_be_entered_in_the_middle_is_noticed() -> None:
    model = bert()
    blocks, kept = model.bert.encoder.layer, {}
    blocks[0].attention.register_forward_hook(
        lambda module, args, output: kept.update(first=_state(output)[:, :1])
    )
    blocks[3].register_forward_hook(
        lambda module, args, output: _changed(output, _state(output) + kept.pop("first"))
    )
    subject = subject_of("classes", model)
    sets = [HeadSet(), *(HeadSet([head]) for head in subject.heads.all())]
    expected = evaluate(subject, sets, way="one by one")
    with pytest.warns(UserWarning, match="full passes are used instead"):
        found = evaluate(subject, sets)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    assert "not shared" in found.ways["note"]


def _state(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]


def _changed(output: Any, state: torch.Tensor) -> Any:
    return state if isinstance(output, torch.Tensor) else (state, *output[1:])


def test_no_trace_is_left() -> None:
    model = bert()
    subject = subject_of("classes", model)
    model.train()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    evaluate(subject, [HeadSet(), *(HeadSet([head]) for head in subject.heads.all())])
    for name, module in model.named_modules():
        assert set(module.__dict__) == set(before[name])
        assert module.training
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
