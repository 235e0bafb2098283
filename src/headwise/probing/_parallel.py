"""Several cores without barriers: one thread per core, each running single-threaded kernels on its own
piece."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


class Map(Protocol):
    """Applies a function to every item, results in the order of the items."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]: ...


_open: ContextVar[Map | None] = ContextVar("open workers", default=None)


@contextmanager
def workers(device: torch.device) -> Iterator[Map]:
    """A map over the cores torch may use (`torch.get_num_threads()`).

    Inside the block torch's own kernels use one thread each: small kernels on two cores spend their time
    waiting for each other, and where other processes run as well they wait very long. On an accelerator the
    map is a plain loop. A block inside another one uses its threads.
    """
    if (outer := _open.get()) is not None and device.type == "cpu":
        yield outer
        return
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield map
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            token = _open.set(pool.map)
            try:
                yield pool.map
            finally:
                _open.reset(token)
    finally:
        torch.set_num_threads(threads)
