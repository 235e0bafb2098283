"""Models with heads silenced, evaluated many at a time; dissociation, overlap, significance."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.lesions._evaluation import Lesions as Lesions
    from headwise.lesions._evaluation import lesion as lesion
    from headwise.lesions._experiment import dissociate as dissociate
    from headwise.lesions._result import Dissociation as Dissociation
    from headwise.lesions._settings import Dissociate as Dissociate
    from headwise.lesions._settings import Lesion as Lesion

# public name -> the module that defines it
_WHERE = {
    "Dissociate": "_settings",
    "Dissociation": "_result",
    "Lesion": "_settings",
    "Lesions": "_evaluation",
    "dissociate": "_experiment",
    "lesion": "_evaluation",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.lesions", _WHERE)
