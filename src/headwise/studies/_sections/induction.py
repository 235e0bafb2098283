"""What is said of the induction heads of a language model."""

from typing import TYPE_CHECKING

import numpy as np

from headwise._base.sentences import number
from headwise.sections import Effect, HeadMaps, Section, Table
from headwise.studies._induction import JUDGED, LENGTH, SEARCHED

if TYPE_CHECKING:
    from headwise.studies._induction import Induction


def section(result: "Induction") -> Section:
    """The section of induction heads."""
    summary = result.summary.set_index("lesion")
    names = ", ".join(f"{layer}.{head}" for layer, head in result.heads)
    effects = [Effect(str(name), row.accuracy, row.low, row.high) for name, row in summary.iterrows()]
    intact, without, controls = map(_with_interval, effects)
    total = int(result.scores.notnull().sum())
    maps = HeadMaps(
        "induction",
        f"Induction heads of {result.model}",
        "attention to the token after the earlier copy",
        result.scores.expand_dims(task=["induction"]),
        {"induction": list(result.heads)},
        f"Framed: the {len(result.heads)} heads that were silenced. Bars: accuracy on {len(result.accuracy)} "
        "other sequences, 95 % intervals.",
        effects={"induction": effects},
        effect="repeated tokens predicted",
    )
    return Section(
        title=f"Heads that copy: {result.model}",
        findings=[
            f"{result.model} predicts {intact} of repeated random tokens; with {len(result.heads)} of its "
            f"{total} heads silenced, its strongest induction heads, {without}; with {len(result.heads)} "
            f"other heads of the same layers silenced, {controls} (95 % intervals).",
            f"The induction heads are {names} (layer.head, both from 0).",
        ],
        blocks=[
            maps,
            Table(
                "copying",
                "Repeated tokens predicted, in percent",
                result.summary,
                "Mean and 95 % interval (t over sequences).",
            ),
        ],
        methods=(
            f"Each sequence is {LENGTH} random tokens, of the ten thousand most common, and the same tokens "
            "again. A head's induction score is its mean attention, in the second half, to the token that "
            f"followed the same token in the first half, over {SEARCHED} sequences. The heads with the "
            f"highest scores were silenced (output zero) on {JUDGED} other sequences and, for comparison, as "
            "many other heads of the same layers, drawn for each sequence. Accuracy is the fraction of "
            "tokens of the second half, from its second token on, that the model predicts. The weights are "
            "dequantised from 4 bits."
        ),
        settings={"heads": names, "model": result.model},
    )


def _with_interval(effect: Effect) -> str:
    span = "no interval, see the table"
    if np.isfinite(effect.low):
        span = f"{_short(effect.low)} to {_short(effect.high)}"
    return f"{_short(effect.value)} % ({span})"


def _short(value: float) -> str:
    return number(value, 0 if value >= 1 or value == 0 else 1)
