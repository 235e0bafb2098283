"""Models with heads silenced, evaluated many at a time; dissociation, overlap, significance."""

from typing import TYPE_CHECKING

from headwise.lazy import lazily

if TYPE_CHECKING:
    from headwise.lesions.evaluation import Lesions as Lesions
    from headwise.lesions.evaluation import lesion as lesion
    from headwise.lesions.experiment import dissociate as dissociate
    from headwise.lesions.result import Dissociation as Dissociation
    from headwise.lesions.settings import Dissociate as Dissociate
    from headwise.lesions.settings import Lesion as Lesion

# public name -> the module that defines it
_WHERE = {
    "Dissociate": "settings",
    "Dissociation": "result",
    "Lesion": "settings",
    "Lesions": "evaluation",
    "dissociate": "experiment",
    "lesion": "evaluation",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.lesions", _WHERE)
