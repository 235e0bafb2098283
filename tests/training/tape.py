"""CUDA graphs, played on a CPU: a step's operations are recorded below autograd and run again on the tensors they ran on.

What a GPU would refuse to capture is refused here too (values read back, shapes that depend on values, data from the host), and what it
would silently keep (numbers drawn or counted in Python) is kept, so that losses part from those of ordinary steps.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headwise.training import _graphs
from headwise.training._data import Step
from headwise.training._graphs import Graph, StepGraphs

READS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "unique",
    "_unique",
    "_unique2",
    "unique_dim",
    "bincount",
    "equal",
    "is_nonzero",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
PUTTING = INDEXING - {"index", "_unsafe_index"}
HOST = ("tolist", "numpy", "cpu")  # of a tensor


class NotCapturable(Exception):
    """A GPU could not capture this."""


class Tape(TorchDispatchMode):
    """Records all operations inside; `replay` runs them again (not the first time: recording has run them already)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.made: set[int] = set()  # storages of results, which `calls` keeps alive
        self.fresh = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in READS or (name == "repeat_interleave" and isinstance(args[0], Tensor) and len(args) == 1):
            raise NotCapturable(f"{name} reads values")
        if name == "lift_fresh" and args[0].dim():
            raise NotCapturable("data from the host")
        if name in INDEXING and any(
            one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
        ):
            raise NotCapturable(f"{name} with a mask")
        if name in PUTTING and not args[2].dim() and _place(args[2]) not in self.made:
            raise NotCapturable(f"{name} of a number from the host")
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        self.made.update(
            _place(leaf) for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and name != "lift_fresh"
        )
        return out

    def __enter__(self) -> Any:
        self.patch = pytest.MonkeyPatch()
        for owner, name in [*((Tensor, name) for name in HOST), (torch, "from_numpy")]:
            self.patch.setattr(owner, name, _refused(name, getattr(owner, name)))
        self.patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)  # transformers asks
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.patch.undo()
        super().__exit__(*error)

    @torch.no_grad()
    def replay(self) -> None:
        if self.fresh:
            self.fresh = False
            return
        for func, args, kwargs, out in self.calls:
            known = {_place(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
            before = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
            if before and not func._schema.is_mutable and all(_place(leaf) in known for leaf in before):
                continue  # a view
            after = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if isinstance(leaf, Tensor)]
            for old, new in zip(before, after, strict=True):
                if old is not new and _place(old) not in known:
                    old.detach().copy_(new)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _refused(name: str, usual: Any) -> Any:
    """In this thread it is refused; the one that makes batches goes on."""
    here = get_ident()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != here:
            return usual(*args, **kwargs)
        raise NotCapturable(f"{name} reads values or brings some")

    return refuse


class TapedSteps(StepGraphs):
    """`StepGraphs` with tapes for graphs."""

    def expect(self, counts: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
            patch.setattr(torch.cuda, "Stream", lambda: None)
            super().expect(counts)

    def _recorded(self, static: Step) -> Graph | None:
        self.clear()
        tape = Tape()
        with tape:
            loss = self.compute(static)
        return Graph(tape, static, loss)


@contextmanager
def taped() -> Iterator[None]:
    """Inside, trainings on a CPU run as they would on a GPU, with tapes for graphs."""

    def captured_steps(run: Any) -> Any:
        a = run.accelerator
        there = SimpleNamespace(device=torch.device("cuda"), num_processes=a.num_processes, scaler=a.scaler)
        asked: Any = SimpleNamespace(
            settings=run.settings, method=run.method, model=run.model, accelerator=there
        )
        if reason := _graphs.why_not(asked):
            return None, reason
        _graphs.on_device(run.optimizer, run.accelerator.device)
        return TapedSteps(
            run.optimizer_step, lambda: run.optimizer.zero_grad(set_to_none=True), _graphs.shapes_to_come(run)
        ), ""

    all_draws = _graphs._host_draws
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _graphs, "_host_draws", lambda: all_draws()[:2]
        )  # torch's generator on the CPU is the device's here
        patch.setattr(_graphs, "_set_host_draws", lambda draws: None)
        patch.setattr("headwise.training._loop.captured_steps", captured_steps)
        yield
