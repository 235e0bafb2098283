"""Methods: what a training step updates. One short file each, all through the same loop."""

from dataclasses import fields
from typing import Any

from headwise.errors import HeadwiseError, did_you_mean
from headwise.training.methods.base import Method
from headwise.training.methods.distil import Distil
from headwise.training.methods.frozen import FrozenEncoder
from headwise.training.methods.houlsby import Houlsby
from headwise.training.methods.iat import ImportantHeads, RandomHeads
from headwise.training.methods.lora import LoRA
from headwise.training.methods.mtdnn import MTDNN
from headwise.training.methods.prune import PruneLeast
from headwise.training.methods.single import SingleTask
from headwise.training.methods.ticket_share import TicketShare

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Method,
        SingleTask,
        FrozenEncoder,
        ImportantHeads,
        RandomHeads,
        PruneLeast,
        TicketShare,
        MTDNN,
        LoRA,
        Houlsby,
        Distil,
    )
}

__all__ = [
    "METHODS",
    "Method",
    "make_method",
    "option_names",
    *(method.__name__ for method in METHODS.values() if method is not Method),
]


def option_names(name: str) -> list[str]:
    """The options of the method called `name`.

    Raises:
        HeadwiseError: there is no such method.
    """
    if name not in METHODS:
        raise HeadwiseError(f"method {name!r} is unknown{did_you_mean(name, METHODS)}; there are: {', '.join(METHODS)}")
    return [field.name for field in fields(METHODS[name]) if field.init]


def make_method(name: str, **options: Any) -> Method:
    """The method called `name` with some of its options set."""
    known = option_names(name)
    for option in options:
        if option not in known:
            raise HeadwiseError(f"method {name!r} has no option {option!r}; it has: {', '.join(known) or 'none'}")
    return METHODS[name](**options)
