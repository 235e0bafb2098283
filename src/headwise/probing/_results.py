"""`Probes`: what probing found, as labelled arrays and tables, with the papers' tables and figures one call away."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise._base.senses import check_ranked
from headwise._base.writing import save_tensors
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.sections import Described, Section
from headwise.store import manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = "probes"
SYNTACTIC = ("Depth", "TopConstituents", "BigramShift")  # §6.2
SEMANTIC = ("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion")


@dataclass(frozen=True, repr=False)
class Probes(Described):
    """Results of `probe`.

    Attributes:
        data: a dataset over (task, layer, head): `test` and `validation` (the task's metric, 1 is perfect), `stderr` of test, chosen
            L2 `strength`, and where asked for `control` (shuffled labels) and `random_encoder`; over (task, layer): `layer_test`,
            `layer_validation`, `layer_stderr`, `layer_strength`; over task: `majority`, `metric`, `n_train`, `n_test`,
            the `folds` of train that chose (0: the validation split did), and whether the text is `synthetic`. The last layer is read
            after the model's final norm. NaN where a layer has no such head.
        embeddings: one row per task and embedding ("last layer", "best layer", "top n heads", and "before the final norm" where
            that changes the last layer), all chosen on validation.
        sweep: one row per task and number n of heads.
        predictions: by task, the predicted test labels (layers, heads, examples).
        labels: by task, the test labels.
    """

    data: xr.Dataset
    embeddings: pd.DataFrame
    sweep: pd.DataFrame
    predictions: Mapping[str, NDArray[Any]]
    labels: Mapping[str, NDArray[Any]]

    def section(self) -> Section:
        """What is said of these probes: last layer, best layer, top heads, and what every head knows."""
        from headwise.probing._section import section

        return section(self)

    @classmethod
    def of_task(
        cls,
        name: str,
        metric: str,
        values: Mapping[str, NDArray[np.float64]],
        predictions: NDArray[Any],
        labels: NDArray[Any],
        majority: float,
        embeddings: pd.DataFrame,
        sweep: pd.DataFrame,
        n_train: int,
        folds: int = 0,
        synthetic: bool = False,
    ) -> "Probes":
        """Results of one task, from (layers, heads) arrays, and (layers,) arrays whose names begin with "layer_"."""
        dims = {
            key: ("task", "layer") if key.startswith("layer_") else ("task", "layer", "head")
            for key in values
        }
        data = xr.Dataset(
            {key: (dims[key], np.asarray(value)[None]) for key, value in values.items()}
            | {"majority": ("task", [majority]), "metric": ("task", [metric])}
            | {"n_train": ("task", [n_train]), "n_test": ("task", [len(labels)]), "folds": ("task", [folds])}
            | {"synthetic": ("task", [synthetic])},
            coords={
                "task": [name],
                "layer": np.arange(predictions.shape[0]),
                "head": np.arange(predictions.shape[1]),
            },
        )
        rows, swept = (table.assign(task=name)[["task", *table.columns]] for table in (embeddings, sweep))
        return cls(data, rows, swept, {name: predictions}, {name: labels})

    @classmethod
    def join(cls, parts: Sequence["Probes"], attrs: Mapping[str, Any] | None = None) -> "Probes":
        """Several tasks as one result."""
        data = xr.concat([part.data for part in parts], dim="task", data_vars="all", join="outer")
        data.attrs = dict(attrs if attrs is not None else parts[0].data.attrs)
        rows = pd.concat([part.embeddings for part in parts], ignore_index=True)
        swept = pd.concat([part.sweep for part in parts], ignore_index=True)
        predictions = {task: array for part in parts for task, array in part.predictions.items()}
        labels = {task: array for part in parts for task, array in part.labels.items()}
        return cls(data, rows, swept, predictions, labels)

    @property
    def tasks(self) -> list[str]:
        return [str(name) for name in self.data["task"].values]

    @property
    def synthetic(self) -> list[str]:
        """The tasks whose text was generated; none is known of probes that an older headwise saved."""
        marked = self.data.get("synthetic", xr.zeros_like(self.data["majority"]))
        return [task for task, one in zip(self.tasks, marked.values, strict=True) if one]

    @property
    def scores(self) -> xr.DataArray:
        """Test scores (task, layer, head)."""
        return self.data["test"]

    @property
    def selectivity(self) -> xr.DataArray:
        """Test score minus that of the same probe on shuffled labels (task, layer, head)."""
        if "control" not in self.data:
            raise HeadwiseError(
                "these probes were fitted without the control on shuffled labels: probe with controls=('labels',)"
            )
        return (self.data["test"] - self.data["control"]).rename("selectivity")

    def top(self, n: int, task: str | None = None) -> HeadSet:
        """The n heads with the best validation score on a task; without one, on the mean over tasks. Ties go to the lower (layer, head)."""
        values = self.data["validation"].mean("task") if task is None else self._of(task)["validation"]
        order = ranked_heads(values.values)
        if not 1 <= n <= len(order):
            raise HeadwiseError(f"n={n}: the model has {len(order)} heads")
        return HeadSet(order[:n])

    def table(self) -> pd.DataFrame:
        """Last layer, best layer and top-n heads on test, one row per task (Tables 3 and 5); gains in % of the last layer."""
        wide = self.embeddings.assign(kind=self.embeddings["embedding"].str.split().str[0])
        found = wide.pivot_table(index="task", columns="kind", values="test", sort=False)
        found = found.reindex(index=self.tasks, columns=[c for c in ("last", "best", "top") if c in found])
        for name in ("best", "top"):
            if {"last", name} <= set(found):
                found[f"{name} gain %"] = 100 * (found[name] / found["last"] - 1)
        found["best head"] = [
            float(self._of(task)["test"].values[ranked_heads(self._of(task)["validation"].values)[0]])
            for task in found.index
        ]
        found["majority"] = self.data["majority"].to_series().reindex(found.index)
        return found

    def controls(self) -> pd.DataFrame:
        """The best head (chosen on validation) and the mean of all heads on test, one row per task, beside what was asked for as control.

        Columns: best head, mean head; `best head, shuffled labels` where labels were shuffled, `mean head, random weights` where an
        encoder with random weights was probed.
        """
        rows = {}
        for task in self.tasks:
            part = self._of(task)
            place = ranked_heads(part["validation"].values)[0]
            row = {"best head": part["test"].values[place], "mean head": np.nanmean(part["test"].values)}
            if "control" in part:
                row["best head, shuffled labels"] = part["control"].values[place]
            if "random_encoder" in part:
                row["mean head, random weights"] = np.nanmean(part["random_encoder"].values)
            rows[task] = row
        return pd.DataFrame.from_dict(rows, orient="index", dtype=float).rename_axis("task")

    def profile(self, layer: int, head: int) -> pd.DataFrame:
        """What one head is good at: its test score on every task, best first.

        Columns: test, stderr, above_majority, rank (1 is the best of all heads on that task, by test), heads.
        """
        rows = []
        for task in self.tasks:
            part = self._of(task)
            values = part["test"].values
            if not (0 <= layer < values.shape[0] and 0 <= head < values.shape[1]) or np.isnan(
                values[layer, head]
            ):
                raise HeadwiseError(
                    f"head ({layer}, {head}) was not probed: there are {values.shape[0]} layers of up to {values.shape[1]} heads"
                )
            better = int(np.nansum(values > values[layer, head]))
            majority = float(part["majority"])
            row = {
                "task": task,
                "test": values[layer, head],
                "stderr": float(part["stderr"].values[layer, head]),
            }
            rows.append(
                {
                    **row,
                    "above_majority": row["test"] - majority,
                    "rank": better + 1,
                    "heads": int(np.isfinite(values).sum()),
                }
            )
        return pd.DataFrame(rows).sort_values(
            ["rank", "above_majority"], ascending=[True, False], ignore_index=True
        )

    @property
    def has_syntactic_and_semantic(self) -> bool:
        """Whether tasks of both of the paper's groups were probed."""
        return bool({*SYNTACTIC} & {*self.tasks}) and bool({*SEMANTIC} & {*self.tasks})

    def syntactic_semantic(
        self, syntactic: Sequence[str] = SYNTACTIC, semantic: Sequence[str] = SEMANTIC
    ) -> pd.DataFrame:
        """Each head's mean test score on syntactic and on semantic tasks (Fig. 5); columns layer, head, syntactic, semantic."""
        columns = {}
        for name, wanted in (("syntactic", syntactic), ("semantic", semantic)):
            present = [task for task in wanted if task in self.tasks]
            if not present:
                raise HeadwiseError(
                    f"none of the {name} tasks was probed ({', '.join(wanted)}); there are: {', '.join(self.tasks)}"
                )
            columns[name] = self.data["test"].sel(task=present).mean("task")
        frame = xr.Dataset(columns).drop_vars("task", errors="ignore").to_dataframe().dropna().reset_index()
        return frame[["layer", "head", "syntactic", "semantic"]]

    def heatmap(
        self,
        variable: str = "test",
        *,
        sort: bool = False,
        tasks: Sequence[str] | None = None,
        shared: bool = False,
    ) -> "Figure":
        """Heat maps, one panel per task, layer 0 at the bottom (Figs. 3, 6, 7).

        Args:
            variable: a (task, layer, head) variable of `data`, or "selectivity".
            sort: heads within each layer from best to worst.
            tasks: which; default all.
            shared: one colour range for all panels.
        """
        from headwise.figures import heatmaps

        values = self.selectivity if variable == "selectivity" else self.data[variable]
        return heatmaps(values.sel(task=list(tasks or self.tasks)), sort=sort, shared=shared)

    def scatter(self) -> "Figure":
        """Syntactic against semantic score of every head, coloured by layer (Fig. 5)."""
        from headwise.figures import syntactic_semantic

        return syntactic_semantic(self.syntactic_semantic())

    def sweep_plot(self) -> "Figure":
        """Test score of the top-n embedding against n, with the best layer as a line."""
        from headwise.figures import sweep

        return sweep(self.sweep, self.embeddings)

    def noted(self, notes: Sequence[str]) -> "Probes":
        """The same with what its reader must know, in `data.attrs["notes"]`."""
        return replace(self, data=self.data.assign_attrs(notes=list(notes))) if notes else self

    def save(self, folder: str | Path, **fields: Any) -> None:
        """Writes everything into `folder`, which must not exist and appears whole or not at all; `headwise.load(folder)` reads it.

        Args:
            folder: where.
            fields: more facts for its manifest.
        """
        bare = self.data.copy(deep=False)
        bare.attrs = {}
        rows = {
            f"predictions/{task}": np.ascontiguousarray(array) for task, array in self.predictions.items()
        }
        rows |= {f"labels/{task}": np.ascontiguousarray(array) for task, array in self.labels.items()}
        facts = {"settings": json.loads(json.dumps(self.data.attrs)), "tasks": self.tasks, **fields}
        with manifest.new_folder(folder, KIND, **facts) as aside:
            bare.to_netcdf(aside / "probes.nc", engine="scipy")
            self.embeddings.to_parquet(aside / "embeddings.parquet", index=False)
            self.sweep.to_parquet(aside / "sweep.parquet", index=False)
            save_tensors(rows, aside / "examples.safetensors")

    def _of(self, task: str) -> xr.Dataset:
        if task not in self.tasks:
            raise HeadwiseError(f"task {task!r} was not probed; there are: {', '.join(self.tasks)}")
        return self.data.sel(task=task)


def load_folder(folder: Path, record: Mapping[str, Any]) -> Probes:
    """Reads what `Probes.save` wrote."""
    from safetensors.numpy import load_file

    with xr.open_dataset(folder / "probes.nc", engine="scipy") as stored:
        data = stored.load()
    data["metric"] = data["metric"].astype(str)
    data["task"] = data["task"].astype(str)
    data.attrs = dict(record["settings"])
    arrays = load_file(folder / "examples.safetensors")
    kinds = {
        kind: {task: arrays[f"{kind}/{task}"] for task in record["tasks"]}
        for kind in ("predictions", "labels")
    }
    rows, swept = (pd.read_parquet(folder / f"{name}.parquet") for name in ("embeddings", "sweep"))
    return Probes(data, rows, swept, kinds["predictions"], kinds["labels"])


def ranked_heads(values: ArrayLike) -> list[tuple[int, int]]:
    """Heads by (layers, heads) values, best first; ties go to the lower (layer, head), NaN is left out."""
    array = check_ranked(np.asarray(values, dtype=float))
    order = np.argsort(np.where(np.isnan(array), np.inf, -array).ravel(), kind="stable")[
        : int(np.isfinite(array).sum())
    ]
    return [(int(i) // array.shape[1], int(i) % array.shape[1]) for i in order]
