"""The mutation score itself: what is changed, what is left alone, which tests are chosen, and how the score is bounded."""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parent))

import running
from drawing import Mutant, draw, is_another_program, mutants

SOURCE = Path(__file__).parents[2] / "src"
CODE = '''"""A docstring with 1 < 2."""
import math
__all__ = ["f"]

def f(a: int, b=3, *, c=None):
    """Not 1."""
    if a < b and c:
        raise ValueError(f"no {a + b}")
    rows = table(a, b, axis=1, help="1 more").T
    rows["x"] = a - b if c else -b
    print("a" + str(a))
    return max(rows, key=len)
'''


def changes(code: str) -> set[tuple[str, str, str]]:
    return {
        (m.operator, *m.shown(code)) for m in mutants("lesions/_x.py", code) if is_another_program(m, code)
    }


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("comparison", "if a < b and c:", "if (a <= b) and c:"),
        ("and/or", "if a < b and c:", "if (a < b or c):"),
        ("branches swapped", "if a < b and c:", "if (not (a < b and c)):"),
        ("constant", "def f(a: int, b=3, *, c=None):", "def f(a: int, b=(4), *, c=None):"),
        (
            "keyword dropped",
            'rows = table(a, b, axis=1, help="1 more").T',
            "rows = table(a, b, help='1 more').T",
        ),
        (
            "constant",
            'rows = table(a, b, axis=1, help="1 more").T',
            'rows = table(a, b, axis=(0), help="1 more").T',
        ),
        (
            "transpose dropped",
            'rows = table(a, b, axis=1, help="1 more").T',
            "rows = table(a, b, axis=1, help='1 more')",
        ),
        (
            "arguments swapped",
            'rows = table(a, b, axis=1, help="1 more").T',
            "rows = table(b, a, axis=1, help='1 more').T",
        ),
        ("branches swapped", 'rows["x"] = a - b if c else -b', 'rows["x"] = (-b if c else a - b)'),
        ("arithmetic", 'rows["x"] = a - b if c else -b', 'rows["x"] = (a + b) if c else -b'),
        ("sign or not dropped", 'rows["x"] = a - b if c else -b', 'rows["x"] = a - b if c else (b)'),
        ("statement removed", 'rows["x"] = a - b if c else -b', "pass"),
        ("function", "return max(rows, key=len)", "return min(rows, key=len)"),
        ("early return", "return max(rows, key=len)", "return None"),
    ],
)
def test_each_kind_of_change_is_made(operator: str, before: str, after: str) -> None:
    assert (operator, before, after) in changes(CODE)


def test_what_people_read_is_left_alone() -> None:
    before = {row[1] for row in changes(CODE)}
    assert not any(
        "docstring" in text or "Not 1" in text or "no {a" in text for text in before if "if a < b" not in text
    )
    assert not any(text.startswith(("import", "__all__", "print")) for text in before)
    assert all(
        "help=" in row[2] or "help" not in row[1] for row in changes(CODE) if row[0] != "transpose dropped"
    )


def test_every_mutant_says_where_it_stands() -> None:
    found = {(m.function, m.runs_on_import) for m in mutants("lesions/_x.py", CODE + "\nLIMIT = 3\n")}
    assert found == {("f", False), ("", True)}
    assert {m.room for m in mutants("settings.py", "x = 1")} == {"_base"}


def test_a_seed_draws_the_same_mutants_of_every_room() -> None:
    first = draw(SOURCE, ["lesions", "scoring"], 15, seed=3)
    assert (
        first
        == draw(SOURCE, ["scoring", "lesions"], 15, seed=3)[15:]
        + draw(SOURCE, ["scoring", "lesions"], 15, seed=3)[:15]
    )
    assert first != draw(SOURCE, ["lesions", "scoring"], 15, seed=4)
    assert [m.room for m in first] == ["lesions"] * 15 + ["scoring"] * 15
    for mutant in first:
        text = (SOURCE / "headwise" / mutant.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutant.planted(text))) != ast.dump(ast.parse(text))


def test_the_tests_of_a_line_come_before_those_of_its_file() -> None:
    """Nine tests of a second and one of 99 in the room, one of cli; they share a fixture of ten seconds, which is paid for once."""
    mutant = Mutant("lesions", "lesions/_x.py", 7, 0, 1, "constant", "2", "f", False)
    x, y = "tests/lesions/test_x.py", "tests/cli/test_y.py"
    seconds = {f"{x}::t{n}": 1.0 for n in range(9)} | {f"{y}::u": 0.1, f"{x}::s": 99.0}
    reach = SimpleNamespace(
        seconds=seconds,
        shared_seconds={"fixture made": 10.0},
        fixtures={test: ["fixture made"] for test in seconds},
        size={(name, test): 4 if name else 8 for name in ("lesions/_x.py", "") for test in seconds},
        by_line={("lesions/_x.py", 7): {f"{y}::u", f"{x}::t1", f"{x}::s"}},
        by_file={"lesions/_x.py": set(seconds)},
    )
    tests = running.choose_tests(mutant, reach)
    first, second, *rest = tests.batches
    assert (first, second) == ([f"{x}::t1"], [f"{y}::u"])  # the slow one does not fit
    assert tests.reached == 3
    assert rest == [
        [f"{x}::t{n}" for n in (0, 2, 3, 4)]
    ]  # of the seconds for the file the fixture leaves five
    assert tests.seconds == pytest.approx(10 + 1.02 + 0.12 + 10 + 4 * 1.02)


def test_a_mutant_is_killed_by_the_first_test_that_fails(tmp_path: Path) -> None:
    """In processes of their own, with the changed source and no other."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    package = tmp_path / "src" / "headwise"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def one():\n    return 1\n")
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        test = f"from headwise import one\n\ndef test_it():\n    assert one() == {value}\n"
        (tmp_path / f"test_{name}.py").write_text(test)

    def run(*names: str) -> tuple[int, str]:
        tests = running.Tests([[f"{tmp_path}/test_{name}"] for name in names], len(names), 1.0)
        return running.run_batches(
            tests, tmp_path / "src", tmp_path, "-c", f"{tmp_path}/pytest.ini", "--rootdir", str(tmp_path)
        )

    assert run("a.py::test_it") == (0, "exit status 0")
    assert run("a.py::test_it", "c.py::test_it", "b.py::test_it") == (1, "test_c.py::test_it: assert 1 == 3")
    assert run("a.py::test_other")[0] in running.NO_TESTS


def test_the_bound_is_wilsons() -> None:
    z = norm.ppf(0.9)
    for killed, survived in ((36, 4), (40, 0), (17, 23)):
        low = running.lower_bound(killed, survived)
        share, number = killed / (killed + survived), killed + survived
        assert (share - low) ** 2 == pytest.approx(z**2 * low * (1 - low) / number, abs=1e-6)
        assert low < share or killed == 0


def test_equivalent_mutants_fit_the_source() -> None:
    for file, function, before, after in running.equivalents():
        text = (SOURCE / "headwise" / file).read_text(encoding="utf-8")
        shown = {(m.function, *m.shown(text)) for m in mutants(file, text)}
        assert (function, before, after) in shown, f"{file} has no such mutant any more: {before} → {after}"
