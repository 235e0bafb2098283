"""Memory that nothing uses any more goes back to the system."""

import ctypes
import gc
import sys
from contextlib import suppress


def release(much: bool = True) -> None:
    """Gives back what Arrow and the C library keep of freed memory: after a large table they hold several
    times the table's size.

    Args:
        much: False where there is too little to be worth the time; then nothing is done.
    """
    if not much:
        return
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(AttributeError):  # glibc has it, musl does not
            ctypes.CDLL(None).malloc_trim(0)


def release_gpu() -> None:
    """Gives back GPU memory of what is over: trainings hold on to themselves in cycles, and would stay until
    some later collection."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        # after an error on the device nothing can be given back, and that error is the one to show
        with suppress(RuntimeError):
            torch.cuda.empty_cache()
