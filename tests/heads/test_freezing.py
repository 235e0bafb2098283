"""Every step inside `training_only` leaves the frozen heads and their optimizer state bit-identical; all else
learns."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from small_models import build
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import Adafactor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "Adam-amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, foreach=False),
    "AdamW-foreach": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, foreach=True),
    "AdamW-fused": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "SGD-nesterov": lambda p: torch.optim.SGD(
        p, lr=0.05, momentum=0.9, weight_decay=0.1, nesterov=True, foreach=True
    ),
    "SGD-fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True, weight_decay=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, weight_decay=0.1, initial_accumulator_value=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, weight_decay=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, weight_decay=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, weight_decay=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, weight_decay=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, weight_decay=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01, weight_decay=0.1),
    "Adafactor-transformers": lambda p: Adafactor(
        p, lr=0.01, relative_step=False, beta1=0.9, weight_decay=0.1
    ),
}
CHOSEN = HeadSet([(0, 1), (0, 2)])  # so layer 1 is frozen as a whole


def step(
    model: nn.Module, optimizer: Any, seed: int, backward: Callable[[Tensor], None] = Tensor.backward
) -> None:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 50, (3, 6), generator=generator)
    optimizer.zero_grad()
    backward(model(input_ids=ids, labels=torch.randint(0, 2, (3,), generator=generator)).loss)
    optimizer.step()


def bert_slices(model: nn.Module, free: HeadSet, w_o: bool = True) -> dict[str, tuple[int, Tensor]]:
    """{parameter: (axis, frozen entries)} by the names of BERT's modules: independent of how ownership is
    found."""
    frozen = {}
    for name, parameter in model.named_parameters():
        names = name.split(".")
        if ".self." in name or (w_o and name.endswith("attention.output.dense.weight")):
            learns = torch.tensor([(int(names[3]), head) in free for head in range(4)]).repeat_interleave(8)
            frozen[name] = (1 if "output" in name else 0, ~learns)
            assert parameter.shape[frozen[name][0]] == 32
    return frozen


def snapshot(model: nn.Module, optimizer: Optimizer) -> dict[tuple[str, str], Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[name, ""] = parameter.detach().clone()
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[name, key] = value.clone()
    return tensors


def frozen_part(tensor: Tensor, dim: int, frozen: Tensor) -> bytes:
    return tensor.movedim(dim, 0)[frozen].contiguous().numpy().tobytes()


@pytest.mark.parametrize("warm", [0, 2], ids=["fresh", "with momentum"])
@pytest.mark.parametrize(
    ("name", "masked"),
    [*((name, True) for name in OPTIMIZERS), *((name, False) for name in ("AdamW-fused", "Adamax", "SGD"))],
)
def test_frozen_heads_keep_every_bit_and_all_else_learns(name: str, masked: bool, warm: int) -> None:
    model = build("bert").train()
    heads, optimizer = Heads(model), OPTIMIZERS[name](model.parameters())
    for i in range(warm):
        step(model, optimizer, i)
    before = snapshot(model, optimizer)
    with heads.training_only(CHOSEN, optimizer, masked=masked):
        step(model, optimizer, 10)
        step(model, optimizer, 11)
    after = snapshot(model, optimizer)
    slices = bert_slices(model, CHOSEN)
    for (parameter, key), now in after.items():
        old = before.get((parameter, key))
        if parameter not in slices:
            if not key and "position" not in parameter and "word" not in parameter:
                assert not torch.equal(now, before[parameter, ""]), f"{parameter} did not learn"
            continue
        dim, frozen = slices[parameter]
        if now.shape != before[parameter, ""].shape:
            continue  # a step counter, or Adafactor's rows and columns
        if old is not None:
            assert frozen_part(now, dim, frozen) == frozen_part(old, dim, frozen), (
                f"{key or 'weight'} of {parameter} moved"
            )
        else:
            first = now.movedim(dim, 0)[frozen] - (0.01 if key == "step_size" else 0)
            assert (first.abs() <= 1e-29).all(), f"{key} of {parameter} was not born with its first value"
        if not frozen.all() and not key:
            assert not torch.equal(now, before[parameter, ""]), f"the free part of {parameter} did not learn"


@settings(max_examples=8, deadline=None)
@given(
    free=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 3))),
    name=st.sampled_from(["AdamW", "SGD", "RMSprop"]),
    w_o=st.booleans(),
    later=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 3))),
)
def test_any_sequence_of_head_sets(
    free: set[tuple[int, int]], name: str, w_o: bool, later: set[tuple[int, int]]
) -> None:
    model = build("bert").train()
    heads, optimizer = Heads(model), OPTIMIZERS[name](model.parameters())
    for i, head_set in enumerate([HeadSet(free), HeadSet(later), HeadSet(free)]):
        before = snapshot(model, optimizer)
        with heads.training_only(head_set, optimizer, output_projection=w_o):
            step(model, optimizer, i)
        for parameter, (dim, frozen) in bert_slices(model, head_set, w_o).items():
            for key in ("", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg"):
                if (parameter, key) in before:
                    now = snapshot(model, optimizer)[parameter, key]
                    assert frozen_part(now, dim, frozen) == frozen_part(before[parameter, key], dim, frozen)


@pytest.mark.parametrize("name", ["AdamW-fused", "SGD"])
def test_all_heads_chosen_is_plain_training_bit_for_bit(name: str) -> None:
    plain = build("bert").train()
    frozen = deepcopy(plain)
    heads = Heads(frozen)
    optimizers = [OPTIMIZERS[name](model.parameters()) for model in (plain, frozen)]
    for i in range(3):
        torch.manual_seed(i)
        step(plain, optimizers[0], i)
        torch.manual_seed(i)
        with heads.training_only(heads.all(), optimizers[1]):
            step(frozen, optimizers[1], i)
    for expected, actual in zip(plain.parameters(), frozen.parameters(), strict=True):
        assert torch.equal(expected, actual)


def test_free_heads_learn_as_without_freezing() -> None:
    """A first step moves whatever learns by what plain training moves it."""
    plain, partly_frozen = build("bert"), build("bert")
    step(plain, OPTIMIZERS["AdamW"](plain.parameters()), 0)
    optimizer = OPTIMIZERS["AdamW"](partly_frozen.parameters())
    with Heads(partly_frozen).training_only(CHOSEN, optimizer):
        step(partly_frozen, optimizer, 0)
    slices = bert_slices(partly_frozen, CHOSEN)
    for (name, expected), actual in zip(plain.named_parameters(), partly_frozen.parameters(), strict=True):
        if name in slices:
            dim, frozen = slices[name]
            expected, actual = expected.movedim(dim, 0)[~frozen], actual.movedim(dim, 0)[~frozen]
        assert torch.equal(expected, actual), name


def test_clipping_sees_only_what_learns() -> None:
    model = build("bert")
    heads, optimizer = Heads(model), OPTIMIZERS["AdamW"](model.parameters())
    norms = {}

    def backward(loss: Tensor) -> None:
        loss.backward()
        norms["clipped"] = float(nn.utils.clip_grad_norm_(model.parameters(), 1e9))

    with heads.training_only(CHOSEN, optimizer):
        step(model, optimizer, 0, backward)
    model = build("bert")
    step(model, OPTIMIZERS["AdamW"](model.parameters()), 0, lambda loss: loss.backward())
    squares = 0.0
    slices = bert_slices(model, CHOSEN)
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        assert grad is not None
        squares += float(
            (grad.movedim(slices[name][0], 0)[~slices[name][1]] if name in slices else grad).square().sum()
        )
    assert norms["clipped"] == pytest.approx(squares**0.5, rel=1e-5)


def test_accumulated_gradients_and_those_from_before_are_masked() -> None:
    model = build("bert")
    heads, optimizer = Heads(model), OPTIMIZERS["SGD"](model.parameters())
    step(model, optimizer, 0)  # gradients stay behind
    before = snapshot(model, optimizer)
    with heads.training_only(CHOSEN, optimizer):
        for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
            grad = model.get_parameter(name).grad
            assert grad is None or not grad.movedim(dim, 0)[frozen].any(), name
        for seed in (1, 2):
            ids = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(seed))
            model(input_ids=ids, labels=torch.tensor([0, 1, 0])).loss.backward()
        optimizer.step()
    for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
        for key in ("", "momentum_buffer"):
            assert frozen_part(snapshot(model, optimizer)[name, key], dim, frozen) == frozen_part(
                before[name, key], dim, frozen
            )


def test_a_step_that_fails_half_way_is_undone_and_nothing_stays_behind() -> None:
    model = build("bert")
    heads = Heads(model)

    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step(closure)
            raise RuntimeError("out of memory")

    optimizer = Failing(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    before = snapshot(model, optimizer)
    with pytest.raises(RuntimeError, match="out of memory"), heads.training_only(CHOSEN, optimizer):
        step(model, optimizer, 0)
    for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
        assert frozen_part(snapshot(model, optimizer)[name, ""], dim, frozen) == frozen_part(
            before[name, ""], dim, frozen
        )
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_nested_blocks_train_what_all_of_them_name() -> None:
    model = build("bert")
    heads, optimizer = Heads(model), OPTIMIZERS["AdamW"](model.parameters())
    step(model, optimizer, 0)
    before = snapshot(model, optimizer)
    with (
        heads.training_only(HeadSet([(0, 1), (0, 2), (1, 0)]), optimizer),
        heads.training_only(HeadSet([(0, 2), (0, 3)]), optimizer),
    ):
        step(model, optimizer, 1)
    after = snapshot(model, optimizer)
    for name, (dim, frozen) in bert_slices(model, HeadSet([(0, 2)])).items():
        assert frozen_part(after[name, ""], dim, frozen) == frozen_part(before[name, ""], dim, frozen)
        assert frozen_part(after[name, "exp_avg"], dim, frozen) == frozen_part(
            before[name, "exp_avg"], dim, frozen
        )
        assert frozen.all() or not torch.equal(after[name, ""], before[name, ""])


@pytest.mark.parametrize(
    ("family", "free", "moves", "stays"),
    [
        # keys and values of a group learn if any of its heads does
        ("llama", [(0, 1)], {"layers.0.self_attn.k_proj.weight": slice(0, 8)}, {"layers.0.self_attn.k_proj.weight": slice(8, 16)}),
        ("llama", [(0, 1)], {"layers.0.self_attn.q_proj.weight": slice(8, 16)}, {"layers.0.self_attn.q_proj.weight": slice(0, 8)}),
        ("falcon-mqa", [(0, 0)], {"h.0.self_attention.query_key_value.weight": slice(32, 48)}, {"h.1.self_attention.dense.weight": slice(0, 8)}),
        # the rows of a head in a transposed, fused weight are columns
        ("gpt2", [(0, 3)], {"h.0.attn.c_proj.weight": slice(24, 32)}, {"h.0.attn.c_proj.weight": slice(0, 24)}),
        # what serves all heads learns
        ("latent", [], {"layers.0.self_attn.kv_a_proj_with_mqa.weight": slice(0, 16)}, {"layers.0.self_attn.kv_b_proj.weight": slice(0, 64)}),
    ],
)  # fmt: skip
def test_other_families(
    family: str, free: list[tuple[int, int]], moves: dict[str, slice], stays: dict[str, slice]
) -> None:
    model = build(family)
    heads, optimizer = Heads(model), OPTIMIZERS["AdamW"](model.parameters())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with heads.training_only(HeadSet(free), optimizer):
        model(**heads.example)[0].float().square().sum().backward()
        optimizer.step()
    for slices, expected in ((moves, False), (stays, True)):
        for ending, entries in slices.items():
            name = next(name for name in before if name.endswith(ending))
            assert torch.equal(model.get_parameter(name)[entries], before[name][entries]) is expected, name


def test_weights_that_layers_share_learn_if_a_head_of_any_layer_does() -> None:
    model = build("albert")
    heads, optimizer = Heads(model), OPTIMIZERS["AdamW"](model.parameters())
    query = model.get_submodule("encoder.albert_layer_groups.0.albert_layers.0.attention.query")
    before = query.weight.detach().clone()
    with heads.training_only(HeadSet([(1, 2)]), optimizer):
        model(**heads.example)[0].square().sum().backward()
        optimizer.step()
    same = (query.weight == before).all(1).view(4, 8).all(1)
    assert same.tolist() == [True, True, False, True]


def test_accelerate_wrapper_checkpointing_and_closures() -> None:
    from accelerate import Accelerator

    model = build("bert").train()
    heads = Heads(model)
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    accelerator = Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, OPTIMIZERS["AdamW"](model.parameters()))
    step(prepared, optimizer, 0, accelerator.backward)
    before = snapshot(model, optimizer.optimizer)
    with heads.training_only(CHOSEN, optimizer):
        step(prepared, optimizer, 1, accelerator.backward)

        def closure() -> Tensor:
            optimizer.optimizer.zero_grad()
            loss: Tensor = model(input_ids=torch.arange(5, 17).view(2, 6), labels=torch.tensor([0, 1])).loss
            loss.backward()
            return loss

        optimizer.optimizer.step(closure)
    after = snapshot(model, optimizer.optimizer)
    for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
        for key in ("", "exp_avg", "exp_avg_sq"):
            assert frozen_part(after[name, key], dim, frozen) == frozen_part(before[name, key], dim, frozen)
        if frozen.all():
            assert torch.equal(after[name, "step"], before[name, "step"])


@pytest.mark.parametrize("views", [False, True])
def test_data_parallel_training(views: bool, tmp_path: Path) -> None:
    """Its reducer hands gradients back after the hooks, also for parameters that are frozen as a whole."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = build("bert").train()
        heads = Heads(model)
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=views)
        optimizer = OPTIMIZERS["AdamW"](model.parameters())
        step(parallel, optimizer, 0)
        before = snapshot(model, optimizer)
        with heads.training_only(CHOSEN, optimizer):
            step(parallel, optimizer, 1)
            step(parallel, optimizer, 2)
        after = snapshot(model, optimizer)
        step(parallel, optimizer, 3)  # the reducer still works
        trained = snapshot(model, optimizer)
    finally:
        distributed.destroy_process_group()
    for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
        for key in ("", "exp_avg", "exp_avg_sq"):
            assert frozen_part(after[name, key], dim, frozen) == frozen_part(before[name, key], dim, frozen)
        assert frozen_part(trained[name, "exp_avg"], dim, frozen) != frozen_part(
            after[name, "exp_avg"], dim, frozen
        )


def test_gradient_scaler_skips_and_steps() -> None:
    model = build("bert")
    heads, optimizer = Heads(model), OPTIMIZERS["SGD"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    step(model, optimizer, 0)
    before = snapshot(model, optimizer)
    with heads.training_only(CHOSEN, optimizer):
        for factor in (float("inf"), 1.0):  # the first step is skipped
            optimizer.zero_grad()
            loss = model(input_ids=torch.arange(5, 17).view(2, 6), labels=torch.tensor([0, 1])).loss
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    after = snapshot(model, optimizer)
    assert not torch.equal(after["classifier.weight", ""], before["classifier.weight", ""])
    for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
        for key in ("", "momentum_buffer"):
            assert frozen_part(after[name, key], dim, frozen) == frozen_part(before[name, key], dim, frozen)


@pytest.mark.parametrize("stale", [False, True], ids=["before the backward pass", "after it"])
def test_parameters_that_the_optimizer_is_given_inside_the_block_are_frozen(stale: bool) -> None:
    model = build("bert")
    late = [parameter for name, parameter in model.named_parameters() if ".self." in name]
    early = [parameter for name, parameter in model.named_parameters() if ".self." not in name]
    heads, optimizer = Heads(model), OPTIMIZERS["AdamW"](early)
    before = snapshot(model, optimizer)
    with heads.training_only(CHOSEN, optimizer):
        if stale:  # gradients are there when the group comes
            model(input_ids=torch.arange(5, 17).view(2, 6), labels=torch.tensor([0, 1])).loss.backward()
        optimizer.add_param_group({"params": late})
        if stale:
            optimizer.step()
        else:
            step(model, optimizer, 0)
        step(model, optimizer, 1)
    after = snapshot(model, optimizer)
    for name, (dim, frozen) in bert_slices(model, CHOSEN).items():
        assert frozen_part(after[name, ""], dim, frozen) == frozen_part(before[name, ""], dim, frozen), name
        assert frozen.all() or not after[name, "exp_avg"].movedim(dim, 0)[frozen].any(), name
        assert frozen.all() or not torch.equal(after[name, ""], before[name, ""])


def test_what_cannot_be_kept_is_refused() -> None:
    model = build("bert")
    heads = Heads(model)
    with (
        pytest.raises(HeadwiseError, match="LBFGS moves all parameters"),
        heads.training_only(CHOSEN, torch.optim.LBFGS(model.parameters())),
    ):
        pass
    with (
        pytest.raises(HeadwiseError, match="holds no parameter"),
        heads.training_only(CHOSEN, OPTIMIZERS["SGD"](build("bert").parameters())),
    ):
        pass
    with (
        pytest.raises(HeadwiseError, match=r"head \(2, 0\) is not in this"),
        heads.training_only(HeadSet([(2, 0)]), OPTIMIZERS["SGD"](model.parameters())),
    ):
        pass
    quantized = OPTIMIZERS["SGD"](model.parameters())
    step(model, quantized, 0)
    for state in quantized.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].to(torch.int8)
    with pytest.raises(HeadwiseError, match=r"torch\.int8"), heads.training_only(CHOSEN, quantized):
        step(model, quantized, 1)
