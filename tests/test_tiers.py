"""Every test is in a tier: a target of the Makefile runs it, and continuous integration leaves out nothing but long simulations."""

import re
from itertools import combinations
from pathlib import Path

from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[1]
TEST_FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


def selections(target: str) -> list[tuple[str, list[str]]]:
    """The marker expression and the paths of each run of pytest in a target of the Makefile."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").partition(f"\n{target}: ")[2].split("\n\n")[0]
    runs = re.findall(r"/pytest ([^\n#]*)", lines)
    return [
        ("".join(re.findall("-m '?([^']+?)'?(?= tests|$)", run)), re.findall(r"tests/\S+", run))
        for run in runs
    ]


def runs_in(target: str, test_file: str, markers: set[str]) -> bool:
    """Whether a target runs the tests of a file that have these markers."""
    return any(
        (not expression or Expression.compile(expression).evaluate(markers.__contains__))
        and (not paths or any(Path(test_file).match(path) or test_file.startswith(path) for path in paths))
        for expression, paths in selections(target)
    )


def marker_sets(test_file: str) -> list[set[str]]:
    """The markers that tests of a file can have together."""
    text = (ROOT / test_file).read_text(encoding="utf-8")
    named = [marker for marker in ("browser", "slow") if re.search(rf"\bmark\.{marker}\b", text)]
    sets = [set(some) for size in range(len(named) + 1) for some in combinations(named, size)]
    if test_file.startswith("tests/statistics/"):  # whose conftest makes simulations of slow tests
        return [markers | {"simulation"} if "slow" in markers else markers for markers in sets]
    return sets


def test_some_target_runs_every_test() -> None:
    without_target = []
    for test_file in TEST_FILES:
        for markers in marker_sets(test_file):
            targets = ("statistics",) if "simulation" in markers else ("test-all", "test-browser")
            if not any(runs_in(name, test_file, markers) for name in targets):
                without_target.append((test_file, markers))
    assert without_target == []


def test_the_quick_tier_leaves_out_what_is_slow_and_the_next_long_simulations_alone() -> None:
    for markers in ({"slow"}, {"browser"}, {"slow", "simulation"}, set[str]()):
        assert runs_in("test", "tests/engine/test_ray.py", markers) == (not markers)
        assert runs_in("test-all", "tests/engine/test_ray.py", markers) == (markers <= {"slow"})


def test_integration_runs_all_but_long_simulations() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make test-all", "make test-browser"]
