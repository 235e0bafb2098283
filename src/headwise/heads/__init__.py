"""The heads of a model: find them, gate them, record them, freeze them, remove them."""

from typing import TYPE_CHECKING

from headwise.lazy import lazily

if TYPE_CHECKING:
    from headwise.heads.errors import HeadsDidNotFire as HeadsDidNotFire
    from headwise.heads.errors import UnsupportedModel as UnsupportedModel
    from headwise.heads.heads import Heads as Heads
    from headwise.heads.headset import HeadSet as HeadSet
    from headwise.heads.ownership import parameters_per_head as parameters_per_head
    from headwise.heads.recording import Tape as Tape
    from headwise.heads.saving import save as save
    from headwise.heads.sites import Site as Site
    from headwise.places import default_model as default_model

# public name -> the module that defines it; torch is imported when a name that needs it is first used
_WHERE = {
    "default_model": "headwise.places",
    "HeadSet": "headset",
    "Heads": "heads",
    "HeadsDidNotFire": "errors",
    "Site": "sites",
    "Tape": "recording",
    "UnsupportedModel": "errors",
    "parameters_per_head": "ownership",
    "save": "saving",
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
    "save",
]

__getattr__ = lazily("headwise.heads", _WHERE)
