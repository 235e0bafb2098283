"""Which heads keep a whole key/value cache, in the files that DuoAttention and kvpress read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise._base.opener import identity
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.store import save_model, write_text

TABLE, CONFIG, POLICY = "full_attention_heads.tsv", "config.json", "policy.json"


def save_cache_policy(
    full: HeadSet | ArrayLike,
    heads: Heads,
    folder: str | Path,
    *,
    sink_size: int = 128,
    recent_size: int = 256,
    overwrite: bool = False,
) -> Path:
    """Writes which key/value heads keep their whole cache: a folder as DuoAttention saves its attention
    patterns.

    It holds `full_attention_heads.tsv` (layers × key/value heads, in 0..1, higher: whole cache),
    `config.json` with `sink_size` and `recent_size`, and `policy.json` with all of it beside the model's id
    and revision. DuoAttention's `load_attn_pattern(folder)` and kvpress' `DuoAttentionPress` read the first
    two; kvpress 0.5.5 was tried.

    Args:
        full: the heads that need their whole cache, or scores (layers, heads), which are scaled to 0..1 over
            the model. Heads of a group share one cache: its value is that of the head that needs most.
        heads: the heads of the model.
        folder: where the files go.
        sink_size: first tokens that the other heads keep.
        recent_size: last tokens that they keep.
        overwrite: put the policy in the place of another one that is there.

    Raises:
        HeadwiseError: a model or another policy is there; scores do not fit the model, or its layers have
            different numbers of key/value heads.
    """
    sites = heads.sites
    groups = {site.n_groups for site in sites}
    if len(groups) > 1 or any(site.kind == "cross" for site in sites):
        raise HeadwiseError(
            "a cache policy is for left-to-right models whose layers all have the same number of key/value "
            "heads"
        )
    if min(sink_size, recent_size) < 1:
        raise HeadwiseError(f"sink_size is {sink_size} and recent_size {recent_size}; both must be 1 or more")
    values = _values(full, heads)  # (layers, heads), in 0..1
    table = values.reshape(len(sites), groups.pop(), -1).max(axis=2)  # (layers, groups)
    name, revision = identity(getattr(heads.model, "config", None))
    config = {"sink_size": sink_size, "recent_size": recent_size}
    policy = {**config, "model": name, "revision": revision, "full_attention_heads": table.tolist()}

    rows = ["\t".join(map("{:.10g}".format, row)) + "\n" for row in table]

    def write(aside: Path) -> dict[str, Any]:
        write_text(aside / TABLE, "".join(rows))
        write_text(aside / CONFIG, json.dumps(config, indent=1) + "\n")
        write_text(aside / POLICY, json.dumps(policy, indent=1) + "\n")
        return {}

    save_model(folder, write, overwrite)
    return Path(folder)


def _values(full: Any, heads: Heads) -> NDArray[np.float64]:
    if isinstance(full, HeadSet):
        return heads.check(full).to_mask(heads.shape).astype(float)
    scores = np.asarray(full, dtype=float)
    if scores.shape != heads.shape or not np.isfinite(scores).all():
        raise HeadwiseError(
            f"scores have shape {scores.shape} or gaps; this model needs a finite one for each of "
            f"{heads.shape}"
        )
    spread = float(np.ptp(scores))
    if spread == 0:
        raise HeadwiseError("all scores are equal: they do not say which heads need their whole cache")
    scaled: NDArray[np.float64] = (scores - scores.min()) / spread
    return scaled
