"""Methods: what a training step updates. One short file each, all through the same loop.

`METHODS` is the one list of them: the command line, recipes and the docs' table come from it.
"""

from typing import TYPE_CHECKING, Any

from headwise._base.lazy import Registry, lazily
from headwise.errors import HeadwiseError, did_you_mean
from headwise.training._settings import Train

if TYPE_CHECKING:
    from headwise.training.methods.base import Method as Method, MultiTask
    from headwise.training.methods.camtl import CAMTL
    from headwise.training.methods.distil import Distil
    from headwise.training.methods.frozen import FrozenEncoder
    from headwise.training.methods.gated import GatedTraining
    from headwise.training.methods.houlsby import Houlsby as Houlsby
    from headwise.training.methods.iat import ImportantHeads, RandomHeads
    from headwise.training.methods.lora import LoRA as LoRA
    from headwise.training.methods.mtdnn import MTDNN
    from headwise.training.methods.pals import PALs as PALs
    from headwise.training.methods.prune import PruneLeast
    from headwise.training.methods.single import SingleTask
    from headwise.training.methods.ticket_share import TicketShare

__getattr__, __all__ = lazily(__name__)
METHODS: "Registry[type[Method]]" = Registry(
    "method",
    {
        "multi-task": "headwise.training.methods.base:MultiTask",
        "single-task": "headwise.training.methods.single:SingleTask",
        "frozen": "headwise.training.methods.frozen:FrozenEncoder",
        "iat": "headwise.training.methods.iat:ImportantHeads",
        "random-heads": "headwise.training.methods.iat:RandomHeads",
        "prune": "headwise.training.methods.prune:PruneLeast",
        "ticket-share": "headwise.training.methods.ticket_share:TicketShare",
        "mt-dnn": "headwise.training.methods.mtdnn:MTDNN",
        "pals": "headwise.training.methods.pals:PALs",
        "ca-mtl": "headwise.training.methods.camtl:CAMTL",
        "lora": "headwise.training.methods.lora:LoRA",
        "houlsby": "headwise.training.methods.houlsby:Houlsby",
        "distil": "headwise.training.methods.distil:Distil",
        "gated": "headwise.training.methods.gated:GatedTraining",
    },
)
__all__ += ["METHODS", "make_method", "method_of", "option_names"]


def option_names(name: str) -> list[str]:
    """The options of the method called `name`.

    Raises:
        HeadwiseError: there is no such method.
    """
    return list(METHODS[METHODS.check(name)].Options.model_fields)


def make_method(name: str, **options: Any) -> "Method":
    """The method called `name` with some of its options set.

    Raises:
        HeadwiseError: there is no such method, it has no such option, or a value does not fit.
    """
    names = option_names(name)
    for option in options:
        if option not in names:
            owners = [owner for owner in METHODS if option in option_names(owner)]
            hint = did_you_mean(option, names)
            if owners:
                hint = f", which belongs to {', '.join(owners)}"
            raise HeadwiseError(
                f"method {name!r} has no option {option!r}{hint}; it has: {', '.join(names) or 'none'}"
            )
    return METHODS[name](**options)


def method_of(method: "str | Method", settings: Train) -> "Method":
    """The method of a training, by its name and the options in the settings; a setting that it has too is the
    method's.

    Raises:
        HeadwiseError: as `make_method`; or the method is an object already, and options are given beside it.
    """
    from headwise.training.methods.base import Method

    if isinstance(method, Method):
        for name in settings.options:
            raise HeadwiseError(
                f"{name!r} cannot be combined with a method given as an object: set it when you create the "
                "object"
            )
        return method
    shared = {
        name: value
        for name, value in settings.given().items()
        if name in settings.decides() and name in option_names(method)
    }
    return make_method(method, **{**shared, **settings.options})
