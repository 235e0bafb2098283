"""Arrays and tables as plots; knows results, never models."""

from headwise.figures.style import COLOURS, DIVERGING, SEQUENTIAL, heads_heatmap, panels, save, svg

__all__ = ["COLOURS", "DIVERGING", "SEQUENTIAL", "heads_heatmap", "panels", "save", "svg"]
