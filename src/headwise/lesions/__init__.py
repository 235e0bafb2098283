"""Models with heads silenced, evaluated many at a time; dissociation, overlap, significance."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.lesions._evaluation import Lesions as Lesions, lesion as lesion
    from headwise.lesions._experiment import dissociate as dissociate
    from headwise.lesions._result import Dissociation as Dissociation

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.lesions._dissociation import verdict
    from headwise.lesions._intervals import interval, mean_interval, resample_counts, why_none
    from headwise.lesions._resampling import metric_draws
    from headwise.lesions._settings import Dissociate, Lesion
    from headwise.lesions._statistics import seed_interval

__getattr__, __all__ = lazily(__name__)
