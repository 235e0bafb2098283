"""Models with heads silenced, evaluated many at a time; dissociation, overlap, significance."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.lesions.evaluation import Lesions as Lesions
    from headwise.lesions.evaluation import lesion as lesion
    from headwise.lesions.experiment import dissociate as dissociate
    from headwise.lesions.result import Dissociation as Dissociation

# public name -> the module that defines it
_WHERE = {
    "Dissociation": "result",
    "Lesions": "evaluation",
    "dissociate": "experiment",
    "lesion": "evaluation",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"headwise.lesions.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'headwise.lesions' has no attribute {name!r}")
