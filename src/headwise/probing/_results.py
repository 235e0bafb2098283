"""`Probes`: the scores of probes as labelled arrays and tables, with the papers' tables and figures one call
away."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load_file

from headwise import figures
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
        data: a dataset over (task, layer, head): `test` and `validation` (the task's metric, 1 is perfect),
            `stderr` of test, chosen L2 `strength`, and where asked for `control` (shuffled labels) and
            `random_encoder`; over (task, layer): `layer_test`, `layer_validation`, `layer_stderr`,
            `layer_strength`; over task: `majority`, `metric`, `n_train`, `n_test`, the `folds` of train that
            chose (0: the validation split did), and whether the text is `synthetic`. The last layer is read
            after the model's final norm. NaN where a layer has no such head.
        embeddings: one row per task and embedding ("last layer", "best layer", "top n heads", and "before the
            final norm" where that changes the last layer), all chosen on validation.
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
        """Results of one task, from (layers, heads) arrays, and (layers,) arrays whose names begin with
        "layer_"."""
        layers, heads = map(np.arange, predictions.shape[:2])
        data = xr.Dataset(coords={"task": [name], "layer": layers, "head": heads})
        for key, scores in values.items():
            dims = ("task", "layer") if key.startswith("layer_") else ("task", "layer", "head")
            data[key] = dims, np.asarray(scores)[None]
        facts = {
            "majority": majority,
            "metric": metric,
            "n_train": n_train,
            "n_test": len(labels),
            "folds": folds,
            "synthetic": synthetic,
        }
        for key, fact in facts.items():
            data[key] = "task", [fact]
        rows, swept = (table.assign(task=name)[["task", *table.columns]] for table in (embeddings, sweep))
        return cls(data, rows, swept, {name: predictions}, {name: labels})

    @classmethod
    def join(cls, results: Sequence["Probes"], attrs: Mapping[str, Any] | None = None) -> "Probes":
        """Several tasks as one result."""
        data = xr.concat([probes.data for probes in results], dim="task", data_vars="all", join="outer")
        data.attrs = dict(attrs if attrs is not None else results[0].data.attrs)
        rows = pd.concat([probes.embeddings for probes in results], ignore_index=True)
        swept = pd.concat([probes.sweep for probes in results], ignore_index=True)
        predictions: dict[str, NDArray[Any]] = {}
        labels: dict[str, NDArray[Any]] = {}
        for probes in results:
            predictions |= probes.predictions
            labels |= probes.labels
        return cls(data, rows, swept, predictions, labels)

    @property
    def tasks(self) -> list[str]:
        return [str(name) for name in self.data["task"].values]

    @property
    def synthetic(self) -> list[str]:
        """The tasks whose text was generated."""
        return [task for task in self.tasks if self.data["synthetic"].sel(task=task)]

    @property
    def scores(self) -> xr.DataArray:
        """Test scores (task, layer, head)."""
        return self.data["test"]

    @property
    def selectivity(self) -> xr.DataArray:
        """Test score minus that of the same probe on shuffled labels (task, layer, head)."""
        if "control" not in self.data:
            raise HeadwiseError(
                "these probes were fitted without the control on shuffled labels: probe with "
                "controls=('labels',)"
            )
        return (self.data["test"] - self.data["control"]).rename("selectivity")

    def top(self, n: int, task: str | None = None) -> HeadSet:
        """The n heads with the best validation score on a task; without one, on the mean over tasks. Ties go
        to the lower (layer, head)."""
        scores = self.data["validation"].mean("task") if task is None else self._task(task)["validation"]
        order = ranked_heads(scores.values)
        if not 1 <= n <= len(order):
            raise HeadwiseError(f"n={n}: the model has {len(order)} heads")
        return HeadSet(order[:n])

    def table(self) -> pd.DataFrame:
        """Last layer, best layer and top-n heads on test, one row per task (Tables 3 and 5); gains in % of
        the last layer."""
        wide = self.embeddings.assign(kind=self.embeddings["embedding"].str.split().str[0])
        table = wide.pivot_table(index="task", columns="kind", values="test", sort=False)
        table = table.reindex(index=self.tasks, columns=[c for c in ("last", "best", "top") if c in table])
        for name in ("best", "top"):
            if {"last", name} <= set(table):
                table[f"{name} gain %"] = 100 * (table[name] / table["last"] - 1)
        table["best head"] = [float(self._best_head(task)["test"]) for task in table.index]
        table["majority"] = self.data["majority"].to_series().reindex(table.index)
        return table

    def controls(self) -> pd.DataFrame:
        """The best head (chosen on validation) and the mean of all heads on test, one row per task, beside
        the controls.

        Columns: best head, mean head; `best head, shuffled labels` where labels were shuffled, `mean head,
        random weights` where an encoder with random weights was probed.
        """
        rows = {}
        for task in self.tasks:
            scores, best = self._task(task), self._best_head(task)
            row = {"best head": float(best["test"]), "mean head": np.nanmean(scores["test"].values)}
            if "control" in scores:
                row["best head, shuffled labels"] = float(best["control"])
            if "random_encoder" in scores:
                row["mean head, random weights"] = np.nanmean(scores["random_encoder"].values)
            rows[task] = row
        return pd.DataFrame.from_dict(rows, orient="index", dtype=float).rename_axis("task")

    def profile(self, layer: int, head: int) -> pd.DataFrame:
        """What one head is good at: its test score on every task, best first.

        Columns: test, stderr, above_majority, rank (1 is the best of all heads on that task, by test), heads.
        """
        rows = []
        for task in self.tasks:
            scores = self._task(task)
            test = scores["test"].values
            layers, widest = test.shape
            if not (0 <= layer < layers and 0 <= head < widest) or np.isnan(test[layer, head]):
                raise HeadwiseError(
                    f"head ({layer}, {head}) was not probed: there are {layers} layers of up to {widest} "
                    "heads"
                )
            row = {
                "task": task,
                "test": test[layer, head],
                "stderr": float(scores["stderr"].values[layer, head]),
                "above_majority": test[layer, head] - float(scores["majority"]),
                "rank": int(np.nansum(test > test[layer, head])) + 1,
                "heads": int(np.isfinite(test).sum()),
            }
            rows.append(row)
        columns = ["rank", "above_majority"]
        return pd.DataFrame(rows).sort_values(columns, ascending=[True, False], ignore_index=True)

    @property
    def has_syntactic_and_semantic(self) -> bool:
        """Whether tasks of both of the paper's groups were probed."""
        return bool({*SYNTACTIC} & {*self.tasks}) and bool({*SEMANTIC} & {*self.tasks})

    def syntactic_semantic(
        self, syntactic: Sequence[str] = SYNTACTIC, semantic: Sequence[str] = SEMANTIC
    ) -> pd.DataFrame:
        """Each head's mean test score on syntactic and on semantic tasks (Fig. 5); columns layer, head,
        syntactic, semantic."""
        columns = {}
        for name, tasks in (("syntactic", syntactic), ("semantic", semantic)):
            present = [task for task in tasks if task in self.tasks]
            if not present:
                raise HeadwiseError(
                    f"none of the {name} tasks was probed ({', '.join(tasks)}); there are: "
                    f"{', '.join(self.tasks)}"
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
        values = self.selectivity if variable == "selectivity" else self.data[variable]
        return figures.heatmaps(values.sel(task=list(tasks or self.tasks)), sort=sort, shared=shared)

    def scatter(self) -> "Figure":
        """Syntactic against semantic score of every head, coloured by layer (Fig. 5)."""
        return figures.syntactic_semantic(self.syntactic_semantic())

    def sweep_plot(self) -> "Figure":
        """Test score of the top-n embedding against n, with the best layer as a line."""
        return figures.sweep(self.sweep, self.embeddings)

    def with_notes(self, notes: Sequence[str]) -> "Probes":
        """The same with what its reader must know, in `data.attrs["notes"]`."""
        return replace(self, data=self.data.assign_attrs(notes=list(notes))) if notes else self

    def save(self, folder: str | Path, **fields: Any) -> None:
        """Writes everything into `folder`, which must not exist and appears whole or not at all;
        `headwise.load(folder)` reads it.

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

    def _task(self, task: str) -> xr.Dataset:
        if task not in self.tasks:
            raise HeadwiseError(f"task {task!r} was not probed; there are: {', '.join(self.tasks)}")
        return self.data.sel(task=task)

    def _best_head(self, task: str) -> xr.Dataset:
        """The scores of the head that is best on validation."""
        layer, head = ranked_heads(self._task(task)["validation"].values)[0]
        return self._task(task).isel(layer=layer, head=head)


def load_folder(folder: Path, record: Mapping[str, Any]) -> Probes:
    """Reads what `Probes.save` wrote."""
    with xr.open_dataset(folder / "probes.nc", engine="scipy") as stored:
        data = stored.load()
    data["metric"] = data["metric"].astype(str)
    data["task"] = data["task"].astype(str)
    data.attrs = dict(record["settings"])
    arrays = load_file(folder / "examples.safetensors")
    predictions = {task: arrays[f"predictions/{task}"] for task in record["tasks"]}
    labels = {task: arrays[f"labels/{task}"] for task in record["tasks"]}
    rows, swept = (pd.read_parquet(folder / f"{name}.parquet") for name in ("embeddings", "sweep"))
    return Probes(data, rows, swept, predictions, labels)


def ranked_heads(values: ArrayLike) -> list[tuple[int, int]]:
    """Heads by (layers, heads) values, best first; ties go to the lower (layer, head), NaN is left out."""
    array = check_ranked(np.asarray(values, dtype=float))
    order = np.argsort(np.where(np.isnan(array), np.inf, -array), axis=None, kind="stable")
    order = order[: int(np.isfinite(array).sum())]
    layers, heads = np.unravel_index(order, array.shape)
    return list(zip(layers.tolist(), heads.tolist(), strict=True))
