"""Blocks belong to the thread or task that opened them; copies of a model take no hooks along."""

import asyncio
import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from small_models import build
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadsDidNotFire, HeadSet

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
GATES = torch.rand(8, 2, 4, generator=torch.Generator().manual_seed(1))


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        out = model(TOKENS)
    return out.logits if hasattr(out, "logits") else out[0]


def gated(heads: Heads, gates: Tensor) -> Tensor:
    with torch.no_grad(), heads.gated(gates):
        return logits(heads.model)


def elsewhere(function: Callable[[], Any]) -> Any:
    """What a function gives in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.parametrize("kind", ["bert", "albert"])
def test_plain_passes_of_another_thread_are_untouched(kind: str) -> None:
    heads = Heads(build(kind).eval())
    model, gates = heads.model, torch.rand(heads.shape, generator=torch.Generator().manual_seed(2))
    plain, expected = logits(model), gated(heads, gates)
    with heads.gated(gates):
        assert torch.equal(elsewhere(lambda: logits(model)), plain)
        assert torch.equal(logits(model), expected)
    with heads.recorded(hidden=True) as tape:
        elsewhere(lambda: logits(model))
        logits(model)
    assert tape.outputs.shape[0] == tape.hidden.shape[0] == 3
    assert not any(
        m._forward_pre_hooks or m._forward_hooks or "__deepcopy__" in vars(m) for m in model.modules()
    )


def test_a_pass_in_another_thread_does_not_count_as_gated() -> None:
    heads = Heads(build("bert").eval())
    with pytest.raises(HeadsDidNotFire, match="in the thread that opened the block"), heads.gated(GATES[0]):
        elsewhere(lambda: logits(heads.model))


def test_many_threads_gate_one_model_at_once() -> None:
    """Each of eight threads opens its own blocks over and over, among threads that run the model plain."""
    heads = Heads(build("bert").eval())
    plain, expected = logits(heads.model), [gated(heads, gates) for gates in GATES]
    wrong: list[str] = []
    barrier = threading.Barrier(10)

    def gate(number: int) -> None:
        barrier.wait()
        for _ in range(25):
            if not torch.equal(gated(heads, GATES[number]), expected[number]):
                wrong.append(f"gates {number}")

    def run() -> None:
        barrier.wait()
        for _ in range(50):
            if not torch.equal(logits(heads.model), plain):
                wrong.append("plain")

    with ThreadPoolExecutor(10) as pool:
        for done in [pool.submit(gate, number) for number in range(8)] + [pool.submit(run) for _ in range(2)]:
            done.result()
    assert not wrong
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in heads.model.modules())


def test_tasks_of_asyncio_have_blocks_of_their_own() -> None:
    heads = Heads(build("bert").eval())
    plain, expected = logits(heads.model), [gated(heads, gates) for gates in GATES[:2]]

    async def one(number: int, opened: asyncio.Event, wait: asyncio.Event) -> Tensor:
        with heads.gated(GATES[number]):
            opened.set()
            await wait.wait()
            return logits(heads.model)

    async def late(end: asyncio.Event) -> Tensor:
        await end.wait()
        return logits(heads.model)

    async def main() -> list[Tensor]:
        first, second, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(one(0, first, second)), asyncio.create_task(one(1, second, first))]
        await first.wait()
        await second.wait()
        results = [logits(heads.model), *(await asyncio.gather(*tasks))]
        with heads.gated(GATES[0]):
            # Started inside the block: it has the block while that is open
            child = asyncio.create_task(late(end))
            await asyncio.sleep(0)
            logits(heads.model)
        end.set()
        return [*results, await child]

    for ours, theirs in zip(asyncio.run(main()), [plain, *expected, plain], strict=True):
        assert torch.equal(ours, theirs)


def backward(heads: Heads, gates: Tensor | None, run: Callable[[Callable[[], None]], None]) -> list[Tensor]:
    """Gradients of the model and of the gates; `run` runs the backward pass."""
    heads.model.zero_grad()
    if gates is None:
        loss = heads.model(TOKENS).logits.pow(2).sum()
        run(loss.backward)
        return [p.grad.clone() for p in heads.model.parameters() if p.grad is not None]
    gates = gates.clone().requires_grad_()
    with heads.gated(gates):
        loss = heads.model(TOKENS).logits.pow(2).sum()
        run(loss.backward)
    return [gates.grad, *(p.grad.clone() for p in heads.model.parameters() if p.grad is not None)]  # type: ignore[list-item]


def checkpoint_forward_alone(model: Any, reentrant: bool) -> None:
    """As transformers does from 5.23 on: what is repeated is the forward of a layer, without the hooks of the
    layer itself."""
    model.config.use_cache = False
    for layer in (
        module for module in model.modules() if type(module).__name__ in ("BertLayer", "LlamaDecoderLayer")
    ):
        plain = partial(type(layer).forward, layer)
        layer.forward = lambda *args, plain=plain, **options: checkpoint(
            partial(plain, **options), *args, use_reentrant=reentrant
        )


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("repeated", ["layer", "forward"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_repeats_layers_with_the_gates_of_their_own_pass(
    reentrant: bool, repeated: str, family: str
) -> None:
    """On a GPU autograd repeats layers in threads of its own; here a pool runs the backward pass, which is
    the same to a hook."""
    model: Any = build(family).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    heads = Heads(model)
    here: Callable[[Callable[[], None]], None] = lambda work: work()  # noqa: E731
    plain, expected = backward(heads, None, here), backward(heads, GATES[0], here)
    if repeated == "layer":
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    else:
        checkpoint_forward_alone(model, reentrant)
    model.enable_input_require_grads()
    for ours, theirs in zip(backward(heads, GATES[0], elsewhere), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    with heads.gated(GATES[1]):  # another thread's plain training step, its layers repeated in a third
        gradients = elsewhere(lambda: backward(heads, None, elsewhere))
        logits(model)
    for ours, theirs in zip(gradients, plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def replicated(module: nn.Module) -> Any:
    """What DataParallel makes of a module, on the same device."""
    copies = {old: old._replicate_for_data_parallel() for old in module.modules()}
    for old, new in copies.items():
        for name, child in old._modules.items():
            new._modules[name] = None if child is None else copies[child]
        for name, parameter in old._parameters.items():
            setattr(new, name, parameter)
        new._buffers = old._buffers.copy()
    return copies[module]


def test_replicas_of_data_parallel_see_the_gates() -> None:
    heads = Heads(build("bert").eval())
    expected = gated(heads, GATES[0])
    with heads.gated(GATES[0]):
        replica = replicated(heads.model)
        assert torch.equal(elsewhere(lambda: logits(replica)), expected)
    with heads.gated(torch.ones(3, 2, 4).mul(0.5)):
        logits(heads.model)
        with pytest.raises(HeadwiseError, match="DataParallel"):
            elsewhere(lambda: logits(replica))


def test_a_copy_made_inside_a_block_has_no_hooks() -> None:
    heads = Heads(build("bert").eval())
    plain = logits(heads.model)
    handle = heads.model.bert.register_forward_hook(lambda *_: None)  # type: ignore[union-attr]
    with heads.gated(GATES[0]), heads.recorded(hidden=True) as tape:
        logits(heads.model)
        twin: Any = copy.deepcopy(heads.model)
        holder = copy.deepcopy({"heads": heads, "model": heads.model})
        assert torch.equal(logits(twin), plain)
        logits(heads.model)
    assert tape.outputs.shape[0] == 6  # the twin's pass is not on it
    assert len(twin.bert._forward_hooks) == 1  # the user's own hook is copied, as deepcopy does
    handle.remove()
    twin.bert._forward_hooks.clear()
    for model in (twin, heads.model):
        assert not any(
            m._forward_pre_hooks or m._forward_hooks or "__deepcopy__" in vars(m) for m in model.modules()
        )
    assert all(
        torch.equal(a, b)
        for a, b in zip(twin.state_dict().values(), heads.model.state_dict().values(), strict=True)
    )
    assert not any(a is b for a, b in zip(twin.parameters(), heads.model.parameters(), strict=True))
    assert holder["heads"].model is holder["model"]
    assert torch.equal(gated(holder["heads"], GATES[0]), gated(heads, GATES[0]))
    heads.install()
    assert not any(m._forward_pre_hooks for m in copy.deepcopy(heads.model).modules())
    heads.uninstall()


def test_heads_inside_a_block_of_other_heads_says_what_is_the_matter() -> None:
    model: Any = build("bert").eval()
    heads = Heads(model)
    with heads.silenced(HeadSet([(0, 1)])):
        logits(model)
        for inner in (model, model.bert):
            with pytest.raises(
                HeadwiseError, match=r"inside a block .* build Heads\(model\) before the block"
            ):
                Heads(inner)
        assert Heads(build("bert").eval()).total == 8  # another model
        assert elsewhere(lambda: Heads(model).total) == 8  # another thread
        logits(model)
    assert Heads(model).total == 8
