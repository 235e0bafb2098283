"""Roles of language-model heads as a study: which heads do what on repeated random tokens, and what is left
without the strongest.

Models × weights (trained, and twins of random weights). The strongest heads of one role are silenced while
the model reads other sequences of the same kind, beside as many random heads of the same layers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from headwise import engine
from headwise._base.inference import MIN_SEEDS, t_interval
from headwise.behaviour import Roles
from headwise.errors import HeadwiseError
from headwise.studies._sections.lesioned_roles import of_roles

Repeated = Literal[
    "previous-token", "duplicate-token", "induction"
]  # the roles that repeated random tokens show
NONE, STRONGEST, RANDOM = "none", "strongest", "random"
FEW = 3  # distinct values below which an interval by t has no meaning
BATCH = 4  # sequences read at once


class RolesRecipe(engine.Recipe):
    """Whose heads are looked at, and how many of them are silenced.

    `sequences` of `repeated` random tokens, each repeated once, find the heads; `held_out` others judge the
    lesions. Every model with its trained weights has a twin of the same architecture with random weights,
    unless `twins = false`.
    """

    kind: Literal["roles"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    roles: tuple[Repeated, ...] = Field(("induction", "previous-token"), min_length=1)
    silenced: Repeated = "induction"
    sequences: int = Field(8, ge=1)
    held_out: int = Field(16, ge=MIN_SEEDS)
    repeated: int = Field(50, ge=3)
    top: int = Field(5, ge=1)
    draws: int = Field(24, ge=MIN_SEEDS)
    twins: bool = True
    seed: int = Field(0, ge=0)
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"


@engine.step(name="roles")
def measure(
    out: engine.Out,
    *,
    model: engine.ModelName,
    twin: bool,
    roles: tuple[Repeated, ...],
    silenced: Repeated,
    sequences: int,
    held_out: int,
    repeated: int,
    top: int,
    draws: int,
    dtype: Literal["float32", "bfloat16", "float16", "auto"],
) -> None:
    """One model: the scores of its heads, the strongest ones, and every held-out sequence under every
    lesion."""
    import torch

    from headwise._base.opener import fresh
    from headwise.behaviour import Reader, roles as roles_of
    from headwise.heads import Heads, HeadSet
    from headwise.models import open_with_tokenizer
    from headwise.studies._induction import copied, spare_heads

    refuse_others(model)
    settings = Roles(
        roles=roles,
        sequences=sequences,
        repeated=repeated,
        seed=out.seed,
        dtype=dtype,
        quiet=True,
    )
    language_model, tokenizer = open_with_tokenizer(str(model.folder()), settings)
    if twin:
        language_model = fresh(language_model, out.seed).to(language_model.dtype)
    language_model.eval()
    heads, reader = Heads(language_model), Reader(language_model, tokenizer)
    scores = roles_of(language_model, tokenizer, **{**settings.given(), "heads": heads})
    missing = [role for role in roles if scores.sel(role=role).isnull().all()]
    if missing:
        raise HeadwiseError(
            f"{missing[0]} is not defined in {model}: {scores.attrs['notes'].get(missing[0], 'no scores')}"
        )
    if top > len(heads.all()):
        raise HeadwiseError(f"top = {top}: {model} has {len(heads.all())} heads")
    ranked = {role: ranked_by(scores.sel(role=role), heads.all()) for role in roles}
    out.array("scores", scores)
    best = [strongest(scores, role, ranked[role][:top]) for role in roles]
    out.table("strongest", pd.concat(best, ignore_index=True))
    strongest_heads = HeadSet(ranked[silenced][:top])
    spare, rng = spare_heads(strongest_heads, heads), np.random.default_rng(out.seed)
    control_sets = []
    for _ in range(draws):
        drawn: list[tuple[int, int]] = []
        for layer, layer_heads in strongest_heads.layers().items():
            numbers = rng.choice(spare[layer], len(layer_heads), False)
            drawn += [(layer, int(head)) for head in numbers]
        control_sets.append(HeadSet(drawn))
    # seeds apart: not the sequences on which the heads were found
    rows = torch.tensor(reader.repeated_rows(held_out, repeated, seed=out.seed + 1000)).to(reader.device)
    start = len(reader.before) + repeated
    lesions = [
        (NONE, 0, HeadSet()),
        (STRONGEST, 0, strongest_heads),
        *((RANDOM, draw, role_scores) for draw, role_scores in enumerate(control_sets)),
    ]
    frames = []
    for name, draw, head_set in out.progress(lesions, "silencing heads"):
        hits, losses = [], []
        with torch.inference_mode(), heads.silenced(head_set):
            for batch in torch.split(rows, BATCH):
                right, loss = copied(language_model(batch, use_cache=False).logits, batch, start, repeated)
                hits.append(100 * right.double().mean(1))
                losses.append(loss.double().mean(1))
        values = {"accuracy": torch.cat(hits).cpu().numpy(), "loss": torch.cat(losses).cpu().numpy()}
        same = {"silenced": name, "draw": draw, "heads": " ".join(map(head_label, head_set))}
        frames.append(pd.DataFrame({**same, "sequence": range(held_out), **values}))
    out.table("judged", pd.concat(frames, ignore_index=True))


def refuse_others(model: engine.ModelName) -> None:
    """Raises a HeadwiseError unless a model is a causal language model; reads no weights."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from headwise._base.opener import open_config, own_kind

    folder = model.folder()
    inner = folder / "encoder"  # of a model that headwise saved
    kind = own_kind(open_config(inner if inner.is_dir() else folder))
    if kind not in {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(), "AutoModelForCausalLM"}:
        raise HeadwiseError(
            f"{model} is a {kind}, not a causal language model, and the study counts the next tokens that a "
            "model predicts: give a model with a language-model head (gpt2, for instance); `headwise roles` "
            "scores the heads of any model"
        )


def ranked_by(role_scores: Any, heads: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Heads from the highest score to the lowest."""
    return sorted(heads, key=lambda head: -float(role_scores[head]))


def head_label(head: tuple[int, int]) -> str:
    layer, number = head
    return f"L{layer}H{number}"


def strongest(scores: Any, role: str, ranked: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """The strongest heads of a role, their shares of attention and chance levels in percent."""
    chance = scores["chance"].sel(role=role)
    rows = [
        {
            "role": role,
            "rank": rank,
            "head": head_label(head),
            "share": 100 * float(scores.sel(role=role)[head]),
            "chance": 100 * float(chance[head[0]]),
        }
        for rank, head in enumerate(ranked, 1)
    ]
    return pd.DataFrame(rows)


@engine.step(name="roles-tables")
def tables(
    out: engine.Out,
    *,
    measured: list[engine.Result],
    places: list[dict[str, str]],
    silenced: str,
    top: int,
) -> None:
    """The strongest heads, what silencing them costs beside random heads, and each random draw, over all
    models."""
    heads, lesions, draws = [], [], []
    plural = "s" * (top != 1)
    labels = {
        NONE: "none",
        STRONGEST: f"{top} strongest {silenced} head{plural}",
        RANDOM: f"{top} random head{plural} of the same layers",
    }
    for result, coords in zip(measured, places, strict=True):
        judged = result.table("judged")
        drawn = judged[judged["silenced"] == RANDOM].groupby("draw")
        means = drawn[["accuracy", "loss"]].mean().reset_index()
        means.insert(1, "heads", drawn["heads"].first().to_numpy())
        heads.append(_placed(result.table("strongest"), coords))
        draws.append(_placed(means, coords))
        rows = []
        for name, label in labels.items():
            if name == RANDOM:
                outcome = summary(means, "draws")
            else:
                outcome = summary(judged[judged["silenced"] == name], "sequences")
            rows.append({"silenced": label, **outcome})
        lesions.append(_placed(pd.DataFrame(rows), coords))
    for name, frames in (("heads", heads), ("lesions", lesions), ("draws", draws)):
        out.table(name, pd.concat(frames, ignore_index=True))


def _placed(frame: pd.DataFrame, coords: dict[str, str]) -> pd.DataFrame:
    """A table with model and weights as its first columns."""
    return pd.concat([pd.DataFrame(coords, index=frame.index), frame], axis=1)


def summary(values: pd.DataFrame, unit: str) -> dict[str, Any]:
    """Mean accuracy (percent) with its 95 % interval, Student's t over sequences or draws, and mean loss
    (nats)."""
    accuracy = values["accuracy"].to_numpy()
    low, high = np.nan, np.nan
    note = f"no interval: fewer than {FEW} distinct values"
    if len(np.unique(accuracy)) >= FEW:
        bounds = t_interval(accuracy)
        low, high = max(float(bounds[0]), 0.0), min(float(bounds[1]), 100.0)
        note = ""
    return {
        "accuracy": accuracy.mean(),
        "low": low,
        "high": high,
        "loss": values["loss"].mean(),
        "interval over": f"{len(values)} {unit}",
        "note": note,
    }


def cells(recipe: RolesRecipe) -> Iterator[engine.Cell]:
    """One cell per model and weights, and the tables over all."""
    measured: list[engine.Cell] = []
    names = set(measure.kinds) & set(RolesRecipe.model_fields)
    shared = {name: getattr(recipe, name) for name in names}
    for label, model in recipe.models.items():
        for weights in ("trained", "random") if recipe.twins else ("trained",):
            arguments = {**shared, "model": model, "twin": weights == "random"}
            coords = {"model": label, "weights": weights}
            measured.append(engine.Cell(measure, arguments, coords, seed=recipe.seed, megabytes=1))
    yield from measured
    arguments = {
        "measured": measured,
        "places": [dict(cell.coords) for cell in measured],
        "silenced": recipe.silenced,
        "top": recipe.top,
    }
    yield engine.Cell(tables, arguments)


def check(recipe: RolesRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    if recipe.silenced not in recipe.roles:
        yield (
            f"silenced: {recipe.silenced!r} is none of roles, which has {', '.join(recipe.roles)}; add it "
            "there"
        )


study = engine.Study(RolesRecipe, cells, check, of_roles)
