"""Every number in a table of docs/results stands in the CSV file beside it, which says where it comes from."""

import importlib.util
import itertools
import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headwise.studies import compare_transfers

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGES = sorted(RESULTS.glob("*.md"))
FILES = sorted(RESULTS.rglob("*.csv"))

spec = importlib.util.spec_from_file_location("results_tables", RESULTS / "tables.py")
assert spec is not None
assert spec.loader is not None
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_is_its_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "python docs/results/tables.py fill"
    left = re.sub(tables.DIRECTIVE, "", text)
    assert not re.search(r"^\|", left, re.M), "a table without its <!-- table: … --> line"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_is_in_the_file(page: Path) -> None:
    """Read by another way than the one that writes them: cell by cell, at the precision that is printed."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"<!-- table: (.*?) -->\n\n((?:\|.*\n)+)", text):
        frame, _ = tables.chosen(found[1])
        header, _, *rows = [
            [cell.strip() for cell in line.strip("|\n ").split("|")] for line in found[2].splitlines()
        ]
        assert header == [str(name) for name in frame.columns]
        assert len(rows) == len(frame)
        for row, values in zip(rows, frame.itertuples(index=False), strict=True):
            for cell, value in zip(row, values, strict=True):
                if isinstance(value, float):
                    places = len(cell.partition(".")[2])
                    assert (
                        cell == "–"
                        if value != value
                        else abs(float(cell) - value) <= 0.5 * 10**-places + 1e-12
                    ), (row, value)
                else:
                    assert cell == str(value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_file_says_where_it_comes_from(file: Path) -> None:
    said = tables.notes(file)
    assert {"recipe", "commit", "machine", "date"} <= set(said)
    assert any(key.startswith("weights of ") for key in said), "name the checksum of the model's weights"
    recipe = said["recipe"].split(" ")[0]
    assert recipe == "none" or (RESULTS.parents[1] / recipe).is_file(), recipe


def test_every_commit_is_in_the_history_or_said_to_be_gone() -> None:
    asked = subprocess.run(["git", "log", "--format=%H"], cwd=RESULTS, capture_output=True, text=True)
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=RESULTS, capture_output=True, text=True
    )
    if asked.returncode or shallow.stdout.strip() != "false":
        pytest.skip("needs the whole history")
    history = asked.stdout.split()
    for file in FILES:
        said = tables.notes(file)
        gone, _, joined = said.get("not in the history", "").partition("(")
        for commit in re.findall(r"\b[0-9a-f]{7,40}\b", f"{said['commit']} {joined}"):
            known = any(one.startswith(commit) for one in history)
            assert known != (commit[:7] in gone), f"{file.name}: {commit}"


def test_other_sets_of_d_are_those_of_their_pages() -> None:
    spec = importlib.util.spec_from_file_location("other_d", RESULTS / "similarity" / "other_d.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    kept = pd.read_csv(RESULTS / "similarity" / "other-d.csv", comment="#")
    pd.testing.assert_frame_equal(script.table(), kept, atol=1e-4)
    first = kept[kept["D"].str.startswith("first")].set_index("similarity")
    link = (
        pd.read_csv(RESULTS / "similarity" / "link.csv", comment="#")
        .query("kind == 'pearson'")
        .set_index("similarity")
    )
    np.testing.assert_allclose(first["r"], link.loc[first.index, "correlation"], atol=1e-3)
    np.testing.assert_allclose(first["p"], link.loc[first.index, "p"], atol=1e-4)


def test_stem_cells_by_gates_learnt_during_training_follow_from_the_gates() -> None:
    folder = RESULTS / "stemcells"
    spec = importlib.util.spec_from_file_location("dynamic", folder / "dynamic.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    again = script.tables()
    for name, frame in again.items():
        text = name == "table-1"
        kept = tables.read(folder / f"dynamic-{name}.csv", text)
        pd.testing.assert_frame_equal(frame, kept, check_dtype=False, atol=1e-4)
    claims = tables.read(folder / "dynamic-claims.csv")
    assert {len(heads.split()) for heads in claims["heads"]} == {21}
    named = claims.assign(head=claims["heads"].str.split()).explode("head")
    often = named.groupby(["run", "head"]).size().ge(4).groupby("head").sum().gt(claims["run"].nunique() / 2)
    first = again["stem-cells"].iloc[0]
    assert set(often[often].index) == set(first["heads"].split())
    assert often.sum() == first["found"]


def test_the_number_of_shared_heads_follows_from_the_claims() -> None:
    """By the script, and what it keeps by hand: mpnet-base's head numbers, tied in all layers."""
    folder = RESULTS / "stemcells"
    spec = importlib.util.spec_from_file_location("null", folder / "null.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, frame in script.tables().items():
        pd.testing.assert_frame_equal(frame, tables.read(folder / name), check_dtype=False, atol=1e-5)
    table = tables.read(folder / "mpnet-stem-cells.csv").set_index("gates")
    claims = tables.read(folder / "mpnet-claims.csv")
    rng = np.random.default_rng(1)
    for gates, some in claims.groupby("gates"):
        sets = [
            [[tuple(map(int, head.split("."))) for head in row.split()] for row in run["heads"]]
            for _, run in some.groupby("run")
        ]

        def shared(
            orders: list[np.ndarray], sets: list[list[list[tuple[int, int]]]] = sets
        ) -> set[tuple[int, int]]:
            """The heads of four tasks in three of four runs, each task's head numbers in an order of its own."""
            runs = [
                Counter(
                    (layer, int(orders[task][head]))
                    for task, heads in enumerate(run)
                    for layer, head in heads
                )
                for run in sets
            ]
            often = Counter(head for run in runs for head, count in run.items() if count >= 4)
            return {head for head, count in often.items() if count >= 3}

        found = shared([np.arange(12)] * 5)
        assert len(found) == table.loc[gates, "found"]
        assert len({head for _, head in found}) == table.loc[gates, "numbers"]
        null = [len(shared([rng.permutation(12) for _ in range(5)])) for _ in range(400)]
        assert np.mean(null) == pytest.approx(table.loc[gates, "expected"], abs=4 * np.std(null) / 20)
        assert max(null) < len(found)


def test_d_of_a_task_by_the_way_heads_are_silenced() -> None:
    """From the mean accuracies, by another way than the one that wrote the table."""
    place = RESULTS / "specialization"
    table = pd.read_csv(place / "kinds-tasks.csv", comment="#").set_index(["model", "silenced by"])
    both = pd.read_csv(place / "performance-mean.csv", comment="#").query("method == 'multi-task'")
    e5 = pd.read_csv(place / "e5-performance-mean.csv", comment="#").assign(model="e5-small")
    tasks = list(table.columns[:-1])
    for (model, kind), row in table.iterrows():
        some = (both if model != "e5-small" else e5).query("model == @model")
        wide = some.pivot_table(index="lesion", columns="task", values="mean")[tasks]
        rp = (
            100
            * wide.loc[[name if kind == "zero" else f"{name} by {kind}" for name in tasks]].to_numpy()
            / wide.loc["intact"].to_numpy()
        )
        own = np.diag(rp)
        np.testing.assert_allclose(row[tasks].to_numpy(float), (rp.sum(0) - own) / 4 - own, atol=1e-3)
        assert row["D"] == pytest.approx(row[tasks].mean(), abs=1e-3)


def test_a_changed_number_is_noticed() -> None:
    page = next(page for page in PAGES if "<!-- table:" in page.read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    number = re.search(r"\| (\d+\.\d)", text)
    assert number is not None
    changed = text[: number.start(1)] + "99.9" + text[number.end(1) :]
    assert tables.filled(changed) == text


def test_rows_spread_over_columns_keep_their_order_and_numbers() -> None:
    """The wide tables of a page, read back number by number."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    found = [
        one for one in re.finditer(r"<!-- table: (.*?) -->\n\n((?:\|.*\n)+)", pages) if "across:" in one[1]
    ]
    assert found
    for directive, table in ((one[1], one[2]) for one in found):
        options = dict(part.split(":", 1) for part in directive.split("; ")[1:])
        rows, across = options["columns"].strip(), options["across"].strip()
        names = re.findall(r"{(.*?):", options["cells"])
        long = tables.read(RESULTS / directive.split(";")[0])
        if "where" in options:
            column, value = options["where"].strip().split("=")
            long = long[long[column] == value]
        long = long.astype({across: str}).set_index([rows, across])
        header, _, *lines = [
            [cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.splitlines()
        ]
        assert len(lines) * (len(header) - 1) == len(long)
        for line in lines:
            for column, cell in zip(header[1:], line[1:], strict=True):
                numbers = re.findall(r"[+-]?\d+\.\d+", cell)
                for name, number in zip(names, numbers, strict=True):
                    places = len(number.partition(".")[2])
                    assert (
                        abs(float(number) - long.loc[(line[0], column), name]) <= 0.5 * 10**-places + 1e-9
                    ), (line[0], column)


def interval(differences: pd.Series, level: float = 0.95) -> list[float]:
    """Mean and interval, Student's t over seeds."""
    error = differences.std(ddof=1) / len(differences) ** 0.5
    low, high = stats.t.interval(level, len(differences) - 1, differences.mean(), error)
    return [differences.mean(), low, high]


@pytest.mark.parametrize("run", ["mpnet", "ten", "variants", "choice"])
def test_the_differences_of_important_head_training_follow_from_their_seeds(run: str) -> None:
    folder = RESULTS / "important-heads"
    seeds = tables.read(folder / f"{run}-seeds.csv").set_index(["seed", "task"])
    tasks = [task for task in seeds.index.unique("task") if not task.startswith("average")]
    by_task = seeds[seeds.index.isin(tasks, level="task")]
    over = {"average": by_task, "average without cola": by_task.drop("cola", level="task")}
    for name, part in over.items():
        assert seeds.xs(name, level="task").to_numpy() == pytest.approx(
            part.groupby("seed").mean().to_numpy(), abs=2e-4
        )
    for row in tables.read(folder / f"{run}-differences.csv").itertuples():
        values = seeds.xs(row.task, level="task")
        told = [row.difference, row.low, row.high]
        assert told == pytest.approx(interval(values[row.method] - values["multi-task"]), abs=5e-4), (
            row.method,
            row.task,
        )
    for row in tables.read(folder / f"{run}-averages.csv").set_index("method").to_dict("index").items():
        method, _, other = row[0].partition(" minus ")
        for name, suffix in (("average", ""), ("average without cola", " without CoLA")):
            values = seeds.xs(name, level="task")
            told = [row[1][f"{column}{suffix}"] for column in ("difference", "low", "high")]
            gains = values[method] - values[other or "multi-task"]
            assert told == pytest.approx(interval(gains), abs=5e-4), row[0]
            if not suffix:
                assert row[1].get("seeds ahead", (gains > 0).sum()) == (gains > 0).sum()
    for row in tables.read(folder / f"{run}-training.csv").itertuples():
        values = seeds.xs(row.task, level="task")[row.method]
        assert [row.mean, row.sd] == pytest.approx([values.mean(), values.std()], abs=5e-4), (
            row.method,
            row.task,
        )


def test_the_variants_of_important_head_training_are_compared_and_corrected_as_said() -> None:
    """From plain important-head training, p and q, wider intervals for six and nine comparisons, and adapters at two rates."""
    folder = RESULTS / "important-heads"
    seeds = tables.read(folder / "variants-seeds.csv").set_index(["seed", "task"])

    def gains(method: str, task: str, base: str = "multi-task") -> pd.Series:
        return seeds.xs(task, level="task")[method] - seeds.xs(task, level="task")[base]

    files = {
        name: tables.read(folder / f"variants-{name}.csv")
        for name in ("averages", "differences", "grid", "adapters")
    }
    assert len(files["differences"]) == 18 * 8
    for frame in (files["averages"].assign(task="average"), files["differences"]):
        branching = frame[frame["group"] != "adapter"]
        columns = [
            ("", "multi-task", branching),
            (" from iat", "iat", branching[branching["method"] != "iat"]),
        ]
        for suffix, base, rows in columns:
            p = [stats.ttest_1samp(gains(row.method, row.task, base), 0).pvalue for row in rows.itertuples()]
            assert rows[f"p{suffix}"].to_numpy() == pytest.approx(p, rel=1e-2, abs=1e-4)
            assert rows[f"q{suffix}"].to_numpy() == pytest.approx(
                stats.false_discovery_control(p), rel=1e-2, abs=2e-4
            )
        for row in frame[frame["method"] != "iat"].to_dict("records"):
            told = [row[name] for name in ("from iat", "low from iat", "high from iat")]
            assert told == pytest.approx(interval(gains(row["method"], row["task"], "iat")), abs=5e-4)
    averages = files["averages"].set_index("method")
    some = averages[averages["group"] != "adapter"]
    p = [stats.ttest_1samp(gains(method, "average without cola"), 0).pvalue for method in some.index]
    assert some["q without CoLA"].to_numpy() == pytest.approx(
        stats.false_discovery_control(p), rel=1e-2, abs=2e-4
    )
    assert averages["sd"].to_numpy() == pytest.approx(
        [gains(method, "average").std() for method in averages.index], abs=5e-4
    )
    assert ((files["differences"]["q"] <= 0.05) == (files["differences"]["shown"] == "yes")).all()
    accidents = averages[averages["group"] == "accident"]
    for method, high in accidents["high of six"].items():
        assert high == pytest.approx(
            interval(gains(method, "average"), 1 - 0.05 / len(accidents))[2], abs=5e-4
        )
    for row in files["grid"].to_dict("records"):
        assert row["method"] in (
            "iat",
            f"{row['setting']}, {row['steps']}".replace("α =", "alpha").replace("δ =", "delta"),
        )
        each = gains(row["method"], "average")
        assert [row[name] for name in ("difference", "low", "high")] == pytest.approx(
            interval(each), abs=5e-4
        )
        assert [row["low of nine"], row["high of nine"]] == pytest.approx(
            interval(each, 1 - 0.05 / 9)[1:], abs=5e-4
        )
        assert row["sd"] == pytest.approx(each.std(), abs=5e-4)
    means = {
        "3e-4": tables.read(folder / "variants-training.csv").set_index(["method", "task"])["mean"],
        "5e-5": tables.read(folder / "ten-training.csv").set_index(["method", "task"])["mean"],
    }
    ten = tables.read(folder / "ten-averages.csv").set_index("method")
    for row in files["adapters"].to_dict("records"):
        method, rate = row["method"].split(", ")
        whole = averages if rate == "3e-4" else ten
        for task in means[rate].index.unique("task"):
            assert row[task] == pytest.approx(means[rate][method, task], abs=5e-4)
        for name in (
            "difference",
            "low",
            "high",
            "difference without CoLA",
            "low without CoLA",
            "high without CoLA",
        ):
            assert row[name] == pytest.approx(whole.loc[method, name], abs=5e-4)


def test_the_setting_chosen_on_held_out_data_is_the_one_of_the_rule() -> None:
    folder = RESULTS / "important-heads"
    table = tables.read(folder / "choice-averages.csv").set_index("method")
    averages = tables.read(folder / "choice-seeds.csv").query("task == 'average'")
    assert table["mean"].to_numpy() == pytest.approx(averages[list(table.index)].mean().to_numpy(), abs=5e-4)
    assert table["sd"].to_numpy() == pytest.approx(
        averages[list(table.index)].sub(averages["multi-task"], axis=0).std(), abs=5e-4
    )
    assert (len(table), table["mean"].idxmax()) == (9, "alpha 0.1, delta 0.1")


@pytest.mark.parametrize("before", ["", "mpnet-"])
def test_the_differences_of_the_fine_tunings_follow_from_their_seeds(before: str) -> None:
    folder = RESULTS / "finetuning"
    seeds = tables.read(folder / f"{before}seeds.csv")
    names = {"MRPC": "mrpc", "STS-B": "stsb", "SST-2": "sst2"}

    def of(score: str) -> pd.DataFrame:
        task, metric = score.split(" ")
        return seeds[(seeds["task"] == names[task]) & (seeds["metric"] == metric.lower())]

    for row in tables.read(folder / f"{before}differences.csv").to_dict("records"):
        values = of(row["score"]).dropna(subset=[row["from"], "last"])
        told = [row["difference"], row["low"], row["high"]]
        assert told == pytest.approx(interval(values[row["from"]] - values["last"]), abs=5e-4)
        assert row["seeds ahead"] == (values[row["from"]] > values["last"]).sum()
        assert row.get("paired seeds", "0, 1, 2, 3, 4") == ", ".join(map(str, values["seed"]))
    for row in tables.read(folder / f"{before}scores.csv").itertuples():
        values = of(row.score)[row.embedding].dropna()
        assert [row.median, row.mean, row.sd] == pytest.approx(
            [values.median(), values.mean(), values.std()], abs=5e-4
        )


def test_the_differences_of_few_shot_transfer_follow_from_every_score() -> None:
    folder = RESULTS / "transfer"
    seeds = tables.read(folder / "seeds.csv").set_index(["task", "shots", "source", "seed"])
    assert len(seeds) == 3 * 4 * 6 * 30
    assert seeds.index.is_unique
    assert not seeds.isna().any(axis=None)
    long = (seeds / 100).rename_axis(columns="method").stack().rename("score").reset_index()
    again = compare_transfers(long, "multi-task").set_index(["task", "shots", "method"])
    written = tables.read(folder / "differences.csv").set_index(["task", "shots", "method"])
    assert list(again.index) == list(written.index)
    assert again[list(written)].to_numpy() == pytest.approx(written.to_numpy(), abs=1e-4)
    assert stats.false_discovery_control(written["p"]) == pytest.approx(written["q"].to_numpy(), abs=5e-4)
    seeds = seeds.sort_index()
    for (task, shots, method), row in written.iterrows():
        gains = (seeds[method] - seeds["multi-task"]).loc[task, shots].groupby("source").mean()
        signs = np.array(list(itertools.product([-1, 1], repeat=6)))
        assert row["difference"] == pytest.approx(gains.mean(), abs=1e-4)
        flipped = np.abs((signs * gains.to_numpy()).sum(1))
        assert (
            row["p"] >= (flipped >= abs(gains.sum()) - 1e-9).mean() - 1e-4
        )  # the sign-flip test is one of the two
        alone = interval(gains)  # t over sources alone: never wider than the crossed design
        assert row["low"] <= alone[1] + 1e-4
        assert row["high"] >= alone[2] - 1e-4
    scores = tables.read(folder / "scores.csv").set_index(["method", "task", "shots"])
    for (method, task, shots), row in scores.iterrows():
        values = seeds[method].loc[task, shots]
        assert [row["mean"], row["sd"]] == pytest.approx([values.mean(), values.std()], abs=5e-4)
    for row in tables.read(folder / "imdb.csv").to_dict("records"):
        ours = written.loc[("imdb", row["shots"], row["method"])]
        assert [row[name] for name in ("difference", "low", "high")] == list(
            ours[["difference", "low", "high"]]
        )
        assert row["multi-task"] == scores.loc[("multi-task", "imdb", row["shots"]), "mean"]
        assert row["this method"] == scores.loc[(row["method"], "imdb", row["shots"]), "mean"]
        gain = row["published, this method"] - row["published multi-task"]
        assert row["published difference"] == pytest.approx(gain, abs=1e-9)


def test_scores_of_structured_tasks_alone_and_together_follow_from_their_runs() -> None:
    folder = RESULTS / "stemcells"
    runs = tables.read(folder / "scores.csv").set_index(["group", "task", "metric", "run"])["score"]
    names = {"accuracy": "count-accuracy", "UAS": "uas", "LAS": "las"}
    written = tables.read(folder / "score-means.csv")
    assert set(written["task"].str.lower()) == set(runs.index.unique("task"))
    for row in written.to_dict("records"):
        of = {
            group: runs[group, row["task"].lower(), names.get(row["metric"], "count-f1")]
            for group in ("single", "all", "iat")
        }
        for group, name in (("single", "alone"), ("all", "together"), ("iat", "with important heads")):
            assert [row[name], row[f"sd {name}"]] == pytest.approx(
                [of[group].mean(), of[group].std()], abs=1e-4
            )
        told = [row["difference"], row["low"], row["high"]]
        assert told == pytest.approx(interval(of["all"] - of["single"]), abs=1e-4)
