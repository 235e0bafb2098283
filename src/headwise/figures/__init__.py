"""Arrays and tables as plots; knows results, never models."""

from headwise.figures._style import COLOURS, DIVERGING, SEQUENTIAL, heads_heatmap, panels, save_figure, svg

__all__ = [
    "COLOURS",
    "DIVERGING",
    "SEQUENTIAL",
    "heads_heatmap",
    "panels",
    "save_figure",
    "svg",
]
