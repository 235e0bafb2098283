"""Roles as tables."""

import numpy as np
import pandas as pd
import xarray as xr


def strongest(found: xr.DataArray, top: int) -> pd.DataFrame:
    """For each role its chance level (mean over the layers that have one) and its strongest heads, "layer.head score"; "-": none is above 0."""
    rows, names = [], ["strongest head", *(f"{ordinal(place)} head" for place in range(2, top + 1))]
    for role in found["role"].values:
        scores, chance = found.sel(role=role).to_numpy(), found["chance"].sel(role=role).to_numpy()
        order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), axis=None, kind="stable")[:top]
        places = [np.unravel_index(place, scores.shape) for place in order]
        heads = [
            f"{layer}.{head} {scores[layer, head]:.2f}" for layer, head in places if scores[layer, head] > 0
        ]
        level = float(np.mean(chance[~np.isnan(chance)])) if not np.isnan(chance).all() else np.nan
        rows.append(
            {"role": str(role), "chance": level, **dict(zip(names, [*heads, *["-"] * top], strict=False))}
        )
    return pd.DataFrame(rows)


def ordinal(number: int) -> str:
    """2nd, 3rd, 4th, 11th, 21st, ..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
