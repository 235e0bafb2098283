"""Sharing lower layers is the business of one thread: passes of others through the same model meanwhile are their own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from headwise._passes.stack import Stack, find_stack, recording, skipping
from headwise.heads import Heads

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 20,
}
TOKENS = torch.randint(5, 20, (2, 6), generator=torch.Generator().manual_seed(0))


def small() -> tuple[BertModel, Stack]:
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SIZES)).eval()
    stack = find_stack(Heads(model))
    assert isinstance(stack, Stack)
    return model, stack


def states(model: Any, tokens: Tensor = TOKENS) -> Tensor:
    with torch.no_grad():
        return model(tokens).last_hidden_state


def elsewhere(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_another_thread_runs_every_block() -> None:
    model, stack = small()
    plain, other = states(model), states(model, TOKENS.flip(0))
    with recording(stack) as kept:
        states(model)
        elsewhere(lambda: states(model, TOKENS.flip(0)))
    torch.testing.assert_close(kept[2], plain, rtol=0, atol=0)  # not the other thread's
    with skipping(stack, 2, kept[1]):
        assert torch.equal(
            states(model, TOKENS.flip(0)), plain
        )  # the lower blocks hand on what they once returned
        assert torch.equal(elsewhere(lambda: states(model, TOKENS.flip(0))), other)
    assert torch.equal(states(model, TOKENS.flip(0)), other)
    assert not any("forward" in vars(block) for block in stack.blocks)


def test_two_threads_skip_at_once_each_its_own() -> None:
    model, stack = small()
    inputs = [TOKENS, TOKENS.flip(0)]
    expected = [states(model, tokens) for tokens in inputs]
    kept = []
    for tokens in inputs:
        with recording(stack, [1]) as outputs:
            states(model, tokens)
        kept.append(outputs[1])
    both = threading.Barrier(2, timeout=20)

    def skip(number: int) -> list[Tensor]:
        both.wait()
        found = []
        for _ in range(20):
            with skipping(stack, 2, kept[number]):
                found.append(states(model, inputs[1 - number]))
        return found

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(skip, (0, 1)))
    assert all(torch.equal(found, expected[number]) for number in (0, 1) for found in results[number])
    assert not any("forward" in vars(block) for block in stack.blocks)


def test_a_forward_of_the_users_own_is_kept() -> None:
    model, stack = small()
    calls = []
    block: Any = stack.blocks[0]
    original = block.forward

    def mine(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(*args, **kwargs)

    block.forward = mine
    with recording(stack) as kept:
        plain = states(model)
    with skipping(stack, 1, kept[0]):
        assert torch.equal(states(model), plain)
        assert len(calls) == 1
        assert torch.equal(elsewhere(lambda: states(model)), plain)
    assert block.forward is mine
    assert len(calls) == 2
