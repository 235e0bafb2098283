"""The heads of a model: find them, gate them, record them, freeze them, remove them."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise._base.places import default_model as default_model
    from headwise.heads._errors import HeadsDidNotFire as HeadsDidNotFire
    from headwise.heads._errors import UnsupportedModel as UnsupportedModel
    from headwise.heads._freeze.ownership import parameters_per_head as parameters_per_head
    from headwise.heads._heads import Heads as Heads
    from headwise.heads._headset import HeadSet as HeadSet
    from headwise.heads._remove.files import save_removed as save_removed
    from headwise.heads._sites import Site as Site
    from headwise.heads._use.recording import Tape as Tape

# public name -> the module that defines it; torch is imported when a name that needs it is first used
_WHERE = {
    "default_model": "headwise._base.places",
    "HeadSet": "_headset",
    "Heads": "_heads",
    "HeadsDidNotFire": "_errors",
    "Site": "_sites",
    "Tape": "_use.recording",
    "UnsupportedModel": "_errors",
    "parameters_per_head": "_freeze.ownership",
    "save_removed": "_remove.files",
}

__all__ = [
    "HeadSet",
    "Heads",
    "HeadsDidNotFire",
    "Site",
    "Tape",
    "UnsupportedModel",
    "default_model",
    "parameters_per_head",
    "save_removed",
]

__getattr__ = lazily("headwise.heads", _WHERE)
