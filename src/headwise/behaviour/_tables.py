"""Roles as tables."""

import numpy as np
import pandas as pd
import xarray as xr


def strongest(found: xr.DataArray, top: int) -> pd.DataFrame:
    """For each role its chance level (mean over the layers that have one) and its strongest heads, "layer.head score"."""
    rows = []
    for role in found["role"].values:
        scores, chance = found.sel(role=role).to_numpy(), found["chance"].sel(role=role).to_numpy()
        order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), axis=None, kind="stable")[:top]
        places = [np.unravel_index(place, scores.shape) for place in order]
        heads = [f"{layer}.{head} {scores[layer, head]:.2f}" for layer, head in places if not np.isnan(scores[layer, head])]
        level = float(np.mean(chance[~np.isnan(chance)])) if not np.isnan(chance).all() else np.nan
        rows.append(
            {"role": str(role), "chance": level, **{f"head {i + 1}": one for i, one in enumerate([*heads, *["-"] * top][:top])}}
        )
    return pd.DataFrame(rows)
