"""docs/statistics.md is complete: each file that makes an interval, a p or a standard error, and no test that does not exist."""

import ast
import json
import re
from pathlib import Path

import level
from scipy import stats

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "headwise"
# a call of one of these, or the number, makes a statement about what was not observed
MADE_BY = {
    "binom", "crossed_t", "false_discovery", "interval", "permutation_test", "mean_interval", "percentile", "ppf", "quantile", "resplit_test",
    "score_interval", "seed_interval", "share_interval", "sem", "sf", "sign_flip_p", "t_interval", "ttest_1samp", "ttest_rel",
    "wilcoxon",
}  # fmt: skip
DEFINED = {
    "matched_test",
    "standard_error",
    "shapley",
    "mantel",
    "at_chance",
}  # functions that make one by hand


def calls(tree: ast.AST) -> set[str]:
    """Names of all functions called, of all numbers that are 1.96, and of all functions defined."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.add(
                node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            )
        elif isinstance(node, ast.Constant) and node.value in (1.96, 1.645, 2.58):
            found.add(str(node.value))
        elif isinstance(node, ast.FunctionDef):
            found.add(f"def {node.name}")
    return found


def test_every_file_that_makes_an_interval_or_a_p_is_listed() -> None:
    wanted = MADE_BY | {"1.96", "1.645", "2.58"} | {f"def {name}" for name in DEFINED}
    making = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if calls(ast.parse(path.read_text(encoding="utf-8"))) & wanted
    }
    listed = {
        name
        for line in PAGE.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+\.py)`", line)
    }
    assert listed == making


def test_every_test_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    here = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        here |= {
            node.name
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
        }
    assert named - here == {"test_draws"}  # an option
    levels = {name for name in here if re.match(r"test_the_(level|coverage|false_discovery_rate)_of", name)}
    assert levels <= named


def test_every_row_has_a_unit_a_least_number_and_a_simulation() -> None:
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.splitlines()
        if line.startswith("| ") and "`test_" in line
    ]
    assert len(rows) >= 17
    for row in rows:
        assert len(row) == 5, row
        assert all(cell.strip() for cell in row)
        assert re.search(r"\d", row[3]) or "the same" in row[3], row


def test_the_table_of_levels_is_what_was_measured_last() -> None:
    """`make statistics` writes both: 2,000 studies each, all of which hold, and a row for every figure that the tests name."""
    measured = json.loads(level.MEASURED.read_text(encoding="utf-8"))
    assert PAGE.partition(level.BEGIN)[2].partition(level.END)[0].strip() == level.table(measured)
    assert all(level.holds(row) and row["studies"] >= 2000 for row in measured)
    named = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "rejected",
                "covered",
                "noted",
            ):
                figures = [
                    arg for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                ]
                named |= {figures[0].value} if figures and len(node.args) > 2 else set()
    assert named <= {row["figure"] for row in measured}
    assert len(named) >= 15


def test_terms_are_explained_where_they_first_stand() -> None:
    assert "moved outwards" not in PAGE
    assert (
        "those that\na normal has at t(n − 1) × √(n ÷ (n − 1)), for 50 examples the 2.1st and 97.9th" in PAGE
    )
    tail = stats.norm.cdf(stats.t.ppf(0.025, 49) * (50 / 49) ** 0.5)
    assert round(100 * tail, 1) == 2.1
    for name in ("README.md", "docs/training.md", "docs/transfer.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        first = re.search(r"\biat\b", text, re.IGNORECASE)
        assert first, name
        assert "important-head training" in text[: first.end() + 60].lower(), name
