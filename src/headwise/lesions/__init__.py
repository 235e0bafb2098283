"""Models with heads silenced, evaluated many at a time; dissociation, overlap, significance."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.lesions._evaluation import Lesions as Lesions, lesion as lesion
    from headwise.lesions._experiment import dissociate as dissociate
    from headwise.lesions._result import Dissociation as Dissociation
    from headwise.lesions._settings import Dissociate as Dissociate, Lesion as Lesion

__getattr__, __all__ = lazily(__name__)
