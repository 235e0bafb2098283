"""Every number of a run in one tidy table: one row a number, as parquet and CSV."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise._base.tables import csv_text
from headwise._base.writing import make_folder, whole_file
from headwise.engine._run import Run
from headwise.store import Result, manifest

if TYPE_CHECKING:
    import pandas as pd


def export(run: Run, target: str | Path) -> int:
    """Writes `target`.parquet and `target`.csv, cell by cell, and gives the number of rows.

    Columns: step, then the study's coordinates, then `item` (the table, array or JSON value), `row`, `labels`
    (what the row's words or the array's coordinates say, as JSON), `variable` and `value` (a number; true and
    false are 1 and 0). Of what operations keep (models, dissociations) only the tables are in it:
    `headwise.load` opens the rest.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = _coordinate_kinds(run)
    words = {name: pa.string() for name in ("item", "labels", "variable")}
    numbers = {"row": pa.int64(), "value": pa.float64()}
    columns = ["step", *kinds, "item", "row", "labels", "variable", "value"]
    types = {"step": pa.string(), **kinds, **words, **numbers}
    schema = pa.schema([(name, types[name]) for name in columns])
    target = Path(target)
    make_folder(target.parent)
    rows = 0
    with (
        whole_file(f"{target}.parquet") as new_parquet,
        whole_file(f"{target}.csv") as new_csv,
        pq.ParquetWriter(new_parquet, schema) as parquet,
        open(new_csv, "w", encoding="utf-8", newline="") as csv,
    ):
        csv.write(csv_text(pd.DataFrame(columns=columns)))
        for task, result in run.results():
            coords = {name: task["coords"].get(name) for name in kinds}
            for name, value in coords.items():
                if kinds[name] == pa.string() and value is not None:
                    coords[name] = str(value)
            for item, frame in _items(result):
                rows += len(frame)
                cell = pd.DataFrame({"step": task["step"], **coords, "item": item}, index=frame.index)
                table = cell.join(frame)[columns]
                parquet.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False))
                csv.write(csv_text(table, header=False))
    return rows


def _coordinate_kinds(run: Run) -> dict[str, Any]:
    """Coordinate to arrow type: numbers stay numbers where every cell has one."""
    import pyarrow as pa

    seen: dict[str, set[type]] = {}
    for task, _ in run.results():
        for name, value in task["coords"].items():
            seen.setdefault(name, set()).add(type(value))
    number = {
        name: pa.int64() if kinds == {int} else pa.float64()
        for name, kinds in seen.items()
        if kinds <= {int, float}
    }
    return {name: number.get(name, pa.string()) for name in seen}


def _items(result: Result) -> "Iterator[tuple[str, pd.DataFrame]]":
    """(name, frame with row, labels, variable, value) of everything in a result that holds numbers."""
    step_wrote_all = result.manifest["kind"] == manifest.CELL
    for file in result.names:
        if "/" in file:  # a saved model or result: its tokenizer's numbers are nobody's results
            continue
        name, _, kind = file.partition(".")
        if kind == "parquet":
            frame = _tidy(result.table(name))
        elif kind == "nc" and step_wrote_all:
            frame = _tidy_array(result.array(name))
        elif kind == "json" and step_wrote_all:
            frame = _tidy_json(result.json(name))
        else:
            continue
        if len(frame):
            yield name, frame


def _tidy(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Each number of each row as a row of its own; the other columns become its labels."""
    import pandas as pd

    numeric = [str(column) for column in frame.columns if pd.api.types.is_numeric_dtype(frame[column])]
    texts = frame[[column for column in frame.columns if column not in numeric]]
    labels = ["{}"] * len(frame)
    if texts.shape[1]:
        labels = [json.dumps(record, default=str) for record in texts.to_dict("records")]
    frames = [
        pd.DataFrame(
            {
                "row": range(len(frame)),
                "labels": labels,
                "variable": column,
                "value": frame[column].astype("float64"),
            }
        )
        for column in numeric
    ]
    if not frames:
        return pd.DataFrame()
    return pd.concat(frames).dropna(subset="value").reset_index(drop=True)


def _tidy_array(array: Any) -> "pd.DataFrame":
    import numpy as np
    import pandas as pd

    if array.dtype.kind not in "biuf":
        return pd.DataFrame()
    positions = [
        array[dim].values.tolist() if dim in array.coords else list(range(size))
        for dim, size in array.sizes.items()
    ]
    names = [str(dim) for dim in array.dims]
    labels = []
    for index in np.ndindex(array.shape):
        coords = [values[i] for values, i in zip(positions, index, strict=True)]
        labels.append(json.dumps(dict(zip(names, coords, strict=True)), default=str))
    values = array.values.astype("float64").ravel()
    flat = pd.DataFrame({"row": range(len(values)), "labels": labels, "variable": "value", "value": values})
    return flat.dropna(subset="value").reset_index(drop=True)


def _tidy_json(value: Any) -> "pd.DataFrame":
    import pandas as pd

    numbers = list(_numbers(value, ""))
    variables, values = [path for path, _ in numbers], [number for _, number in numbers]
    return pd.DataFrame({"row": range(len(numbers)), "labels": "{}", "variable": variables, "value": values})


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Every number in a JSON value with its path: a.b.0"""
    if isinstance(value, bool | int | float):
        yield path or "value", float(value)
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(inner, f"{path}.{key}" if path else str(key))
