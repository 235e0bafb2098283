"""Which of the processes that a launcher (torchrun, mpirun) started this one is: from the environment,
without torch."""

import os


def promised() -> int:
    """How many processes the launcher says there are; 1 without a launcher."""
    return _number("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", default=1)


def is_first_process() -> bool:
    """Whether this is the process that writes and speaks for all."""
    return _number("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", default=0) == 0


def _number(*names: str, default: int) -> int:
    """The first of these variables that is set, as accelerate reads them."""
    return next((number for name in names if (number := int(os.environ.get(name, "-1"))) >= 0), default)
