"""Threads that read one model: each gets what it gets alone, and none sees the model changed."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from small_models import build
from torch import Tensor, nn

from headwise._base.switches import Switch
from headwise.heads import Heads, HeadSet
from headwise.heads._freeze.ownership import ownership
from headwise.models._decoders.language import projecting_only

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
OTHERS = torch.randint(5, 50, (4, 3, 6), generator=torch.Generator().manual_seed(1))
GATES = torch.rand(4, 2, 4, generator=torch.Generator().manual_seed(2))
LESIONS = [HeadSet([(0, number), (1, 3 - number)]) for number in range(4)]


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        output: Tensor = model(TOKENS)[0]
    return output


def patched(heads: Heads, number: int) -> Tensor:
    with heads.patched(LESIONS[number], {"input_ids": OTHERS[number]}):
        return logits(heads.model)


def averaged(heads: Heads, number: int) -> Tensor:
    with heads.silenced(LESIONS[number], how="mean", reference={"input_ids": OTHERS[number]}):
        return logits(heads.model)


def resampled(heads: Heads, number: int) -> Tensor:
    with heads.silenced(
        LESIONS[number], how="resample", reference={"input_ids": OTHERS[number]}, seed=number
    ):
        return logits(heads.model)


def gated(heads: Heads, number: int) -> Tensor:
    with heads.gated(GATES[number]):
        return logits(heads.model)


def means_in_a_block(heads: Heads, number: int) -> Tensor:
    with heads.gated(GATES[number]):
        logits(heads.model)
        return heads.mean_outputs({"input_ids": OTHERS[number]})


def read(heads: Heads, number: int) -> Tensor:
    with torch.no_grad(), heads.recorded("mean") as tape:
        heads.model(TOKENS)
    return tape.outputs


def found(heads: Heads, number: int) -> Tensor:
    return torch.tensor([site.n_heads for site in Heads(heads.model).sites])


def smaller(heads: Heads, number: int) -> Tensor:
    return logits(heads.remove(LESIONS[number]).eval())


WAYS = (patched, averaged, resampled, gated, means_in_a_block, read, found, smaller)


def without_dropout(family: str) -> Any:
    model = build(family).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if hasattr(model, "config") and hasattr(model.config, "attention_probs_dropout_prob"):
        for module in model.modules():
            if hasattr(module, "dropout_prob"):
                module.dropout_prob = 0.0
    return model


def together(work: list[Callable[[], Any]]) -> list[Any]:
    """What functions give that begin at once, each in a thread of its own."""
    barrier = threading.Barrier(len(work))

    def begin(function: Callable[[], Any]) -> Any:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(work)) as pool:
        return [done.result() for done in [pool.submit(begin, task) for task in work]]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("way", WAYS)
def test_every_thread_gets_what_it_gets_alone(way: Callable[[Heads, int], Tensor], family: str) -> None:
    heads = Heads(without_dropout(family))
    expected = [way(heads, number) for number in range(4)]
    plain = logits(heads.model)

    def again(number: int) -> list[Tensor]:
        return [way(heads, number) for _ in range(3)]

    def run() -> list[Tensor]:
        return [logits(heads.model) for _ in range(12)]

    *results, beside = together([*(partial(again, number) for number in range(4)), run])
    for mine, alone in zip(results, expected, strict=True):
        assert all(torch.equal(result, alone) for result in mine)
    assert all(torch.equal(result, plain) for result in beside)
    assert all(module.training for module in heads.model.modules())
    assert not any(
        m._forward_pre_hooks or m._forward_hooks or "__deepcopy__" in vars(m) for m in heads.model.modules()
    )


WATCHED: dict[str, list[nn.Module]] = {}  # models that must stay as they are
SEEN: list[str] = []  # what was found otherwise


class Spy(nn.Module):
    """Part of a model, or of its twin, that looks at the model whenever a pass comes by."""

    def forward(self, x: Tensor) -> Tensor:
        for model in WATCHED["models"]:
            for path, module in model.named_modules():
                if not module.training:
                    SEEN.append(f"{path} is in evaluation mode")
                if module._forward_pre_hooks or module._forward_hooks:
                    SEEN.append(f"{path} has hooks")
            SEEN.extend(
                f"{name} is frozen" for name, weight in model.named_parameters() if not weight.requires_grad
            )
            if model.config._attn_implementation != "sdpa":
                SEEN.append("attention was switched")
        return x


def spied(family: str) -> Any:
    model: Any = without_dropout(family)
    model.set_attn_implementation("sdpa")
    body = model.base_model
    layer = body.encoder.layer[0].output if family == "bert" else body.h[0].mlp
    layer.dropout = Spy()
    WATCHED["models"] = [model]
    SEEN.clear()
    return model


READINGS: dict[str, Callable[[Heads], Any]] = {
    "found": lambda heads: Heads(heads.model),
    "means": lambda heads: heads.mean_outputs({"input_ids": TOKENS}),
    "owners": ownership,
    "removed": lambda heads: heads.remove(LESIONS[0]),
}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("reading", READINGS)
def test_a_model_that_is_read_is_never_seen_changed(reading: str, family: str) -> None:
    heads = Heads(spied(family))
    SEEN.clear()
    READINGS[reading](heads)
    assert not SEEN
    assert heads.model.training


def test_a_module_that_is_built_beside_a_removal_has_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(build("gpt2"))
    kind = type(heads.model)
    built: list[nn.Module] = []

    def begin(self: Any, *args: Any, begin: Callable[..., None] = kind.__init__) -> None:
        built.extend(together([lambda: nn.Linear(2, 2)]))
        begin(self, *args)

    monkeypatch.setattr(kind, "__init__", begin)
    heads.remove(HeadSet([(0, 1), (1, 1)]))
    assert built
    assert not any(weight.is_meta for module in built for weight in module.parameters())


def test_a_reference_that_comes_from_another_thread_waits_for_nothing_of_ours() -> None:
    """Batches are asked for outside any lock, also of a model that cannot have a twin."""
    model = build("bert")
    cpu_offload(model, execution_device=torch.device("cpu"))
    heads = Heads(model)
    expected = heads.mean_outputs([{"input_ids": TOKENS}] * 2)

    def batches(inside: bool) -> Iterator[dict[str, Tensor]]:
        for _ in range(2):
            if inside:  # reads the same model in another thread, and waits for it
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(lambda: heads.mean_outputs(batches(False))).result(timeout=60)
            yield {"input_ids": TOKENS}

    assert torch.equal(heads.mean_outputs(batches(True)), expected)


def test_models_without_a_twin_are_read_one_at_a_time() -> None:
    model = build("bert").train()
    cpu_offload(model, execution_device=torch.device("cpu"))
    heads = Heads(model)
    expected = [heads.mean_outputs({"input_ids": tokens}) for tokens in OTHERS]
    meeting, met = threading.Barrier(2), []

    def meet(module: Any, args: Any) -> None:
        """Two passes that are under way at once meet here; a single one waits in vain, and no later one waits."""
        try:
            met.append(meeting.wait(2))
        except threading.BrokenBarrierError:
            return

    model.bert.embeddings.register_forward_pre_hook(meet)
    results = together([partial(heads.mean_outputs, {"input_ids": tokens}) for tokens in OTHERS])
    assert not met
    assert all(torch.equal(result, alone) for result, alone in zip(results, expected, strict=True))
    assert all(module.training for module in model.modules())


def test_eager_attention_ends_with_the_last_recording_of_maps() -> None:
    model: Any = build("gpt2")
    model.set_attn_implementation("sdpa")
    heads = Heads(model)
    first, second = threading.Event(), threading.Event()

    def outer() -> None:
        with heads.recorded(attention=True):
            logits(model)
            first.set()
            second.wait(60)

    def inner() -> None:
        first.wait(60)
        with heads.recorded(attention=True) as tape:
            second.set()
            while model.config._attn_implementation == "eager" and not done.is_set():
                logits(model)
        assert len(tape.attention) == 2

    done = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(outer), pool.submit(inner)]
        results[0].result(60)
        assert model.config._attn_implementation == "eager"  # the other block is still open
        done.set()
        results[1].result(60)
    assert model.config._attn_implementation == "sdpa"


def test_a_setting_of_the_process_is_switched_back_by_the_last_block() -> None:
    turns: list[str] = []

    def turn() -> Callable[[], object]:
        turns.append("on")
        return lambda: turns.append("off")

    switch = Switch(turn)
    first, second = switch(), switch()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert turns == ["on"]
    second.__exit__(None, None, None)
    assert turns == ["on", "off"]
    with switch():
        assert turns == ["on", "off", "on"]


def test_a_language_model_asked_by_two_threads_keeps_their_positions_apart() -> None:
    model: Any = build("gpt2")
    here = torch.zeros(TOKENS.shape, dtype=torch.bool)
    here[:, 1] = True
    with projecting_only(model, here):
        assert logits(model).shape[:2] == (1, 3)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(logits, model).result().shape[:2] == TOKENS.shape
