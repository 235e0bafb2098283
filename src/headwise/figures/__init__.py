"""Arrays and tables as plots, and the blocks a report is made of; knows results, never models."""

from headwise.figures._blocks import Chart, Effect, HeadMaps, Section, Table
from headwise.figures._style import COLOURS, DIVERGING, SEQUENTIAL, heads_heatmap, panels, save_figure, svg

__all__ = [
    "COLOURS",
    "DIVERGING",
    "SEQUENTIAL",
    "Chart",
    "Effect",
    "HeadMaps",
    "Section",
    "Table",
    "heads_heatmap",
    "panels",
    "save_figure",
    "svg",
]
