"""The tables of the results pages come from the CSV files beside them, and those from the runs.

    python docs/results/tables.py collect docs/results/specialization RUN [RUN …] --model NAME=FOLDER [--date …] [--commit HASH]
    python docs/results/tables.py fill                          # writes all tables of docs/results/*.md again

`collect` writes every table of a finished study as CSV. Lines that begin with # name the recipe, the commit, the checksum of the model
weights, the machine and the date. In a page, a comment says which rows and columns follow below it:

    <!-- table: specialization/pairs.csv; columns: A, B, D; where: method=multi-task, model=MiniLM-L6; decimals: 1 -->

`text: yes` shows the cells as they stand in the file. `across` spreads the rows of one column over columns of the page, with `cells` to say what
a cell shows; the first of `columns` names the rows:

    <!-- table: important-heads/ten-training.csv; columns: method; across: task; cells: {mean:z.1f} ± {sd:.1f} -->
"""

import argparse
import hashlib
import re
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
DIRECTIVE = re.compile(r"<!-- table: (?P<rest>.*?) -->\n(?:\n?(?:\|.*\n)+)?")


def read(file: Path, text: bool = False) -> pd.DataFrame:
    """A CSV file without its notes; with `text`, its cells as they are written."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# ")]
    return pd.read_csv(
        StringIO("\n".join(lines)), **({"dtype": str, "keep_default_na": False} if text else {})
    )


def notes(file: Path) -> dict[str, str]:
    """What the head of a CSV file says about its making."""
    lines = [
        line[1:].strip() for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# ")
    ]
    return dict(line.split(": ", 1) for line in lines)


def chosen(directive: str, folder: Path = HERE) -> tuple[pd.DataFrame, int]:
    """The rows and columns that a directive names, and how many decimals its numbers have."""
    name, *parts = [part.strip() for part in directive.split(";")]
    options = dict(part.split(":", 1) for part in parts)
    frame = read(folder / name, "text" in options)
    for condition in filter(None, options.get("where", "").strip().split(",")):
        column, value = (side.strip() for side in condition.split("=", 1))
        frame = frame[frame[column].astype(str) == value]
    if "across" in options:
        frame = spread(frame, options["columns"].strip(), options["across"].strip(), options["cells"].strip())
    elif "columns" in options:
        frame = frame[[column.strip() for column in options["columns"].split(",")]]
    return frame, int(options.get("decimals", "1"))


def spread(frame: pd.DataFrame, rows: str, across: str, cells: str) -> pd.DataFrame:
    """One row per value of the column `rows`, one column per value of `across`, in the file's order."""
    shown = frame.assign(cell=[cells.format_map(row) for row in frame.to_dict("records")])
    wide = shown.pivot(index=rows, columns=across, values="cell")
    wide = wide.loc[list(dict.fromkeys(frame[rows])), list(dict.fromkeys(frame[across]))]
    return wide.rename_axis(columns=None).reset_index()


def markdown(frame: pd.DataFrame, decimals: int) -> str:
    """A table in Markdown; numbers with these decimals, whole columns of whole numbers with none."""

    def shown(value: object, whole: bool) -> str:
        if isinstance(value, float):
            return "–" if pd.isna(value) else str(int(value)) if whole else f"{value:z.{decimals}f}"
        return str(value)

    columns = {}
    for name in frame:
        values = frame[name]
        numbers = pd.api.types.is_float_dtype(values)
        whole = numbers and bool((values.dropna() % 1 == 0).all())
        columns[name] = [shown(value, whole) for value in values.tolist()]
    rows = [[text[i] for text in columns.values()] for i in range(len(frame))]
    align = ["---:" if pd.api.types.is_numeric_dtype(frame[name]) else "---" for name in frame]
    lines = [list(map(str, frame.columns)), align, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def filled(page: str, folder: Path = HERE) -> str:
    """A page with all its tables rewritten from their files."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found['rest']} -->\n\n{markdown(*chosen(found['rest'], folder))}"

    return DIRECTIVE.sub(table, page)


def collect(
    out: Path,
    runs: list[Path],
    models: dict[str, Path],
    commit: str,
    date: str,
    prefix: str,
    recipe: str,
    renamed: dict[str, str],
) -> None:
    """Every table of the last step of some runs, one below the other, as CSV with its notes."""
    import json

    from headwise import engine

    opened = [engine.open(run) for run in runs]
    steps = [str(json.loads((run / "plan.jsonl").read_text().splitlines()[-1])["step"]) for run in runs]
    _, first = next(opened[0].results(steps[0]))
    record = json.loads((first.folder / "headwise.json").read_text())
    if not (commit or record["provenance"]["commit"]):
        raise SystemExit(f"{runs[0]} was not computed in a git checkout: give --commit")
    head = {
        "study": str(opened[0].recipe.get("title", opened[0].recipe["kind"])),
        "recipe": f"docs/results/{out.name}/{recipe}",
        "commit": commit or record["provenance"]["commit"],
        "machine": f"{record['provenance']['device']['name']}, torch {record['provenance']['versions']['torch']}, transformers {record['provenance']['versions']['transformers']}",
        "date": date or datetime.now(UTC).date().isoformat(),
    }
    for name, place in models.items():
        file = place if place.is_file() else place / "model.safetensors"
        head[f"weights of {name}"] = "sha256 " + hashlib.sha256(file.read_bytes()).hexdigest()
    out.mkdir(parents=True, exist_ok=True)
    for name in sorted(file.stem for file in first.folder.glob("*.parquet")):
        lines = "".join(f"# {key}: {value}\n" for key, value in head.items())
        frame = pd.concat([run.table(name, step) for run, step in zip(opened, steps, strict=True)]).replace(
            renamed
        )
        if len(frame) > 1:
            frame = frame.loc[
                :, frame.nunique(dropna=False) > 1
            ]  # what is the same everywhere stands in the recipe
        frame = frame.round(4)
        (out / f"{prefix}{name}.csv").write_text(lines + frame.to_csv(index=False), encoding="utf-8")


def pairs_of(given: list[str]) -> dict[str, str]:
    """A=B, several times."""
    return dict(one.split("=", 1) for one in given)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("fill")
    one = verbs.add_parser("collect")
    one.add_argument("out", type=Path)
    one.add_argument("runs", type=Path, nargs="+")
    one.add_argument(
        "--model", action="append", default=[], help="NAME=FOLDER of its weights, or NAME=FILE.gguf"
    )
    one.add_argument(
        "--rename", action="append", default=[], help="OLD=NEW in all cells, e.g. the path of a model"
    )
    one.add_argument("--prefix", default="", help="before the names of the CSV files")
    one.add_argument("--recipe", default="recipe.toml", help="file beside the CSV files")
    one.add_argument("--commit", default="")
    one.add_argument("--date", default="")
    args = parser.parse_args()
    if args.verb == "collect":
        models = {name: Path(folder) for name, folder in pairs_of(args.model).items()}
        collect(
            args.out,
            args.runs,
            models,
            args.commit,
            args.date,
            args.prefix,
            args.recipe,
            pairs_of(args.rename),
        )
        return
    for page in sorted(HERE.glob("*.md")):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page.name, file=sys.stderr)


if __name__ == "__main__":
    main()
