"""Feeding a device: what it needs next is made by a thread that stays a few pieces ahead."""

from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

import torch

from headwise.tasks._batches import Batch

T = TypeVar("T")
AHEAD = 4  # pieces prepared before they are needed


def on_device(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The batches on a device; on a GPU they are made and copied ahead, through page-locked memory."""
    if device.type != "cuda":
        return (batch.to(device) for batch in batches)
    return prefetched((batch.pin_memory().to(device, non_blocking=True) for batch in batches), device)


def prefetched(items: Iterator[T], device: torch.device | None = None) -> Iterator[T]:
    """The same items, made by a thread that stays a few of them ahead.

    Args:
        items: what to make.
        device: where the items go; "cuda" without a number is the caller's current GPU.
    """
    ready: Queue[tuple[bool, T | BaseException | None]] = Queue(AHEAD)
    stop = Event()
    current: int | None = None  # each thread has its own current device
    if device is not None and device.type == "cuda":
        current = torch.cuda.current_device() if device.index is None else device.index

    def work() -> None:
        try:
            if current is not None:
                torch.cuda.set_device(current)
            for item in items:
                ready.put((True, item))
                if stop.is_set():
                    return
            ready.put((False, None))
        except BaseException as error:
            ready.put((False, error))

    thread = Thread(target=work, daemon=True, name="headwise-batches")
    thread.start()
    try:
        while True:
            is_item, item = ready.get()
            if is_item:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return
    finally:
        stop.set()
        while thread.is_alive():  # the thread may be waiting for room
            while not ready.empty():
                ready.get_nowait()
            thread.join(0.01)
