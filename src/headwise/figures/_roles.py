"""The figure of lesioned roles: what each lesion leaves of copying."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headwise.figures._style import COLOURS, panels, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {True: (-0.12, "full"), False: (0.18, "none")}  # of trained and of random weights: offset and filling


def copying(lesions: pd.DataFrame, draws: pd.DataFrame) -> "Figure":
    """Repeated tokens predicted under each lesion, one panel a model: trained weights filled, random ones
    open, draws as grey dots.

    Args:
        lesions: columns model, weights, silenced, accuracy, low, high; the last lesion of a model is that of
            random heads.
        draws: columns model, weights, accuracy: one row for each draw of random heads.
    """
    models = list(dict.fromkeys(lesions["model"]))
    names = list(dict.fromkeys(lesions["silenced"]))
    figure, axes = panels(len(models), 1, size=(5.2, 1.0 + 0.32 * len(names)))
    for ax, model in zip(axes[:, 0], models, strict=True):
        for weights, rows in lesions[lesions["model"] == model].groupby("weights", sort=False):
            offset, fill = MARKS[weights == "trained"]
            drawn = draws.loc[(draws["model"] == model) & (draws["weights"] == weights), "accuracy"]
            ax.plot(drawn, np.full(len(drawn), len(names) - 1 + offset), ".", color="0.75", markersize=4)
            for row in rows.to_dict("records"):
                y = names.index(row["silenced"]) + offset
                if np.isfinite(row["low"]):
                    ax.plot([row["low"], row["high"]], [y, y], color=COLOURS[0], linewidth=1.2)
                (dot,) = ax.plot(row["accuracy"], y, "o", color=COLOURS[0], fillstyle=fill, markersize=5)
                say(dot, f"{model}, {weights} weights, silenced: {row['silenced']}: {row['accuracy']:.1f} %")
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(-3, 103)
        ax.set_title(model)
        ax.set_xlabel("repeated tokens predicted (%)")
    return figure
