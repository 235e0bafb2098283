"""Operations in threads on one live model, beside a training of it: the same numbers, and a model that nobody sees changed."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import planted
from headwise.behaviour import roles
from headwise.heads import Heads, HeadSet
from headwise.heads._reading import twins_of
from headwise.lesions import lesion
from headwise.models._model import MultiTaskModel
from headwise.scoring import score
from headwise.similarity import sentence_vectors
from headwise.training import evaluate
from headwise.training._masks import set_masks
from headwise.training.methods.houlsby import add_bottlenecks
from headwise.training.methods.lora import add_lora

BOTH = planted.tasks(size=12)
SIZES = {"vocab_size": len(planted.WORDS), "initializer_range": 0.5}


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


WATCHED: list[nn.Module] = []  # models that must stay as they are
seen: set[str] = set()  # what was found otherwise


class Spy(nn.Module):
    """Part of a model, or of its twin, that looks at the model whenever a pass comes by."""

    def forward(self, x: Tensor) -> Tensor:
        for model in WATCHED:
            for path, module in model.named_modules():
                if not module.training:
                    seen.add(f"{path} is in evaluation mode")
                if module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module):
                    seen.add(f"{path} has hooks")
            seen.update(
                f"{name} is frozen"
                for name, weight in model.named_parameters()
                if not weight.requires_grad and "pooler" not in name
            )
            if model.config._attn_implementation != "sdpa":
                seen.add("attention was switched")
        seen.add("a pass")
        return x


def encoder(dropout: float = 0.0, layers: int = 2) -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        **SIZES, hidden_size=16, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=24, max_position_embeddings=32,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    return BertModel(config).train()


def multi_task(dropout: float = 0.0) -> Any:
    return MultiTaskModel(encoder(dropout), planted.tokenizer(), BOTH.values()).train()


def spied(model: Any, layer: nn.Module) -> Any:
    layer.dropout = Spy()
    model.set_attn_implementation("sdpa")
    seen.clear()
    WATCHED[:] = [model]
    return model.train()


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    **{
        method: partial(lambda method, model: score(model, BOTH["a"], method=method, quiet=True), method)
        for method in (
            "gate-gradient",
            "ablation",
            "taylor-mean",
            "integrated-gradients",
            "attention-attribution",
        )
    },
    "causal-gating": lambda model: score(model, BOTH["a"], method="causal-gating", steps=2, quiet=True),
    "lesion": lambda model: lesion(
        model, BOTH["a"], [HeadSet([(0, 1)]), HeadSet([(1, 1), (1, 2)])], quiet=True
    ),
    "mean lesion": lambda model: lesion(model, BOTH["a"], [HeadSet([(0, 1)])], how="mean", quiet=True),
    "removal": lambda model: lesion(model, BOTH["a"], [HeadSet([(0, 1)])], way="removed", quiet=True),
    "evaluation": lambda model: evaluate(model, BOTH["a"], quiet=True),
    "vectors": lambda model: sentence_vectors(model, ["a0 w1", "b1 w2 w3"]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_changes_the_model_that_it_reads(operation: str) -> None:
    model = multi_task()
    spied(model.encoder, model.encoder.encoder.layer[0].output)
    OPERATIONS[operation](model)
    assert seen == {"a pass"}
    assert model.training


def test_roles_change_nothing_of_the_model() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**SIZES, n_embd=16, n_layer=2, n_head=4, n_positions=64))
    spied(model, model.transformer.h[0].mlp)
    texts = [" ".join(planted.WORDS[-6:] * 2)] * 2
    roles(model, planted.tokenizer(), texts=texts, sequences=2, repeated=8, quiet=True)
    assert seen == {"a pass"}


def together(work: list[Callable[[], Any]]) -> list[Any]:
    """What functions give that begin at once, each in a thread of its own."""
    barrier = threading.Barrier(len(work))

    def begin(function: Callable[[], Any]) -> Any:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(work)) as pool:
        return [done.result() for done in [pool.submit(begin, one) for one in work]]


def steps(model: Any, stop: threading.Event) -> tuple[int, list[str]]:
    """Passes of a training and their gradients, and what was wrong with them."""
    tokens = torch.randint(5, len(planted.WORDS), (4, 8), generator=torch.Generator().manual_seed(1))
    wrong: list[str] = []
    count = 0
    while not stop.is_set() or not count:
        first, second = (model.encoder(tokens).last_hidden_state for _ in range(2))
        model.zero_grad()
        first.sum().backward()
        count += 1
        if torch.equal(first, second):
            wrong.append("no dropout")
        wrong += [
            f"{name} has no gradient"
            for name, weight in model.encoder.named_parameters()
            if weight.grad is None and "pooler" not in name
        ]
    return count, wrong


def test_a_training_keeps_its_dropout_and_gradients_beside_threads_that_score() -> None:
    model = multi_task(0.5)
    names = ("gate-gradient", "ablation", "taylor-mean", "mean lesion", "evaluation")
    expected = [OPERATIONS[name](model) for name in names]
    stop = threading.Event()

    def operate() -> list[Any]:
        try:
            return together([partial(OPERATIONS[name], model) for name in names])
        finally:
            stop.set()

    found, (count, wrong) = together([operate, partial(steps, model, stop)])
    assert count
    assert not wrong
    assert all(module.training for module in model.modules())
    for name, mine, alone in zip(names, found, expected, strict=True):
        one, other = (
            value.losses if name == "evaluation" else value.table()["loss"] if "lesion" in name else value
            for value in (mine, alone)
        )
        np.testing.assert_array_equal(one, other)


def masked(model: Any) -> None:
    set_masks(model, "prune", {"a": HeadSet([(0, 1), (1, 0)]), "b": HeadSet([(0, 2)])}, Heads(model.encoder))


METHODS: dict[str, Callable[[Any], None]] = {
    "masks": masked,
    "houlsby": lambda model: add_bottlenecks(model, {"tasks": ["a", "b"], "size": 4}, Heads(model.encoder)),
    "lora": lambda model: add_lora(model, {"tasks": ["a", "b"], "options": {"r": 2, "init_lora_weights": False, "target_modules": ["query"]}}),
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_tasks_with_encoders_of_their_own_are_scored_by_two_threads(method: str) -> None:
    model = multi_task()
    METHODS[method](model)
    model.adapters.apply(
        lambda module: [nn.init.normal_(weight) for weight in module.parameters(recurse=False)]
    )
    asked = [partial(score, model, BOTH[name], quiet=True) for name in ("a", "b")]
    expected = [ask() for ask in asked]
    assert not np.array_equal(*expected, equal_nan=True)
    for _ in range(3):
        for mine, alone in zip(together(asked), expected, strict=True):
            np.testing.assert_array_equal(mine, alone)
    with torch.no_grad():
        inside = evaluate(model, BOTH["a"], quiet=True)
    np.testing.assert_array_equal(inside.losses, evaluate(model, BOTH["a"], quiet=True).losses)


def test_masks_of_one_thread_do_not_open_those_of_another() -> None:
    """Each thread's passes are masked, also while another thread is inside."""
    model = multi_task().eval()
    masked(model)
    tokens = torch.randint(5, len(planted.WORDS), (2, 6), generator=torch.Generator().manual_seed(1))

    def states() -> Tensor:
        with torch.no_grad(), model.contexts["a"](), model.contexts["a"]():
            found: Tensor = model.encoder(tokens).last_hidden_state
        return found

    expected = states()
    with model.contexts["a"]():
        model.encoder(tokens)
        (found,) = together([states])
    assert torch.equal(found, expected)


def test_a_model_without_a_twin_is_scored_itself_and_put_back() -> None:
    model = multi_task(0.5)
    expected, losses = (
        operation(model) for operation in (OPERATIONS["gate-gradient"], OPERATIONS["evaluation"])
    )
    model.encoder.embeddings.register_forward_hook(lambda module, args, states, root=model: states)
    asking = [weight.requires_grad for weight in model.parameters()]
    assert twins_of(model) is None  # the hook holds on to it
    np.testing.assert_array_equal(OPERATIONS["gate-gradient"](model), expected)
    np.testing.assert_array_equal(OPERATIONS["evaluation"](model).losses, losses.losses)
    assert all(module.training for module in model.modules())
    assert [weight.requires_grad for weight in model.parameters()] == asking


@pytest.mark.parametrize("operation", ["gate-gradient", "lesion", "mean lesion", "evaluation"])
def test_the_random_state_of_other_threads_is_left_alone(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has one for all threads: whoever goes back to an earlier one repeats what others drew."""
    model = multi_task()

    def touch(*args: Any, **options: Any) -> None:
        raise AssertionError("the random state was set")

    for name in ("manual_seed", "set_rng_state", "seed"):
        monkeypatch.setattr(torch, name, touch)
        monkeypatch.setattr(torch.random, name, touch)
    OPERATIONS[operation](model)


def test_an_open_lesion_holds_in_an_evaluation() -> None:
    model = multi_task()
    heads = Heads(model.encoder)
    chosen = HeadSet([(0, 0), (0, 1), (1, 2)])
    with heads.silenced(chosen):
        found = evaluate(model, BOTH["a"], quiet=True).losses
    expected = lesion(model, BOTH["a"], [chosen], split="validation", quiet=True).tasks["a"].losses[1]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not np.allclose(found, evaluate(model, BOTH["a"], quiet=True).losses)
