"""Arrays and tables as plots; knows results, never models."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.figures._style import (
        COLOURS as COLOURS,
        DIVERGING,
        SEQUENTIAL,
        heads_heatmap,
        panels as panels,
        save_figure as save_figure,
        svg,
    )

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.figures import (
        _dissociation as dissociation,
        _estimators as estimators,
        _language as language,
        _probing as probing,
        _roles as roles,
        _stemcells as stemcells,
        _training as training,
    )
    from headwise.figures._estimators import RANDOM_ESTIMATOR
    from headwise.figures._probing import before_and_after, heatmaps, sweep, syntactic_semantic
    from headwise.figures._similarity import link_scatter, similarity_matrices
    from headwise.figures._style import write_figure

__getattr__, __all__ = lazily(__name__)
