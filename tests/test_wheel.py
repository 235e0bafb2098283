"""The wheel holds all it needs, and without extras names the extra that is missing; `make dist` runs this."""

import os
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def requirements(wheel_folder: Path) -> set[str]:
    """Names of all distributions that the wheel requires without extras, theirs included."""
    found: set[str] = set()
    waiting = list(
        next(iter(Distribution.discover(name="headwise", path=[str(wheel_folder)]))).requires or ()
    )
    while waiting:
        one = Requirement(waiting.pop())
        wanted = {"", *one.extras}
        if one.name in found or (
            one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in ("",))
        ):
            continue
        found.add(one.name)
        for line in distribution(one.name).requires or ():
            marker = Requirement(line).marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted):
                waiting.append(line.split(";")[0])
    return found


def built(folder: Path) -> Path:
    """The wheel: the one that `make dist` has made, or one that is built now."""
    given = os.environ.get("HEADWISE_WHEEL")
    if not given:
        pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = (ROOT / given if given else folder).glob("headwise-*.whl")
    return wheel


def pip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    assert done.returncode == 0 or not check, done.stderr
    return done


def environment(folder: Path) -> tuple[Path, Path]:
    """An empty environment: its Python, and where its packages lie."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    return folder / "bin" / "python", site


def link(name: str, site: Path) -> None:
    """Links a distribution of this environment into another."""
    held = distribution(name)
    tops = {
        file.parts[0]
        for file in held.files or ()
        if file.parts[0] != ".." and "__pycache__" not in file.parts[:1]
    }
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(held.locate_file(top))))


def check(python: Path, folder: Path) -> None:
    """Runs wheel_checks.py there."""
    recipes = [file.stem for file in sorted((ROOT / "recipes").glob("*.toml"))]
    done = subprocess.run(
        [python, ROOT / "tests" / "wheel_checks.py", *recipes],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


@pytest.mark.slow
def test_the_wheel_in_an_environment_of_its_requirements(tmp_path: Path) -> None:
    """The environment has the wheel and links to what it requires, nothing else: no extra, no editable install."""
    python, site = environment(tmp_path / "env")
    pip("--python", str(python), "install", "--no-deps", str(built(tmp_path)))
    for name in requirements(site):
        link(name, site)
    # what `MissingExtra` says to type: pip takes headwise from here, not from an index, and looks for the missing library alone
    hint = ["--python", str(python), "install", "--no-index", "--dry-run", "headwise[peft]"]
    said = pip(*hint, check=False).stderr
    assert "No matching distribution found for peft" in said, said
    check(python, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the lowest versions have no wheels for this Python")
def test_the_wheel_with_the_lowest_versions_that_it_declares(tmp_path: Path) -> None:
    """What they in turn require is the newest that fits. torch is this environment's: an index has none for the CPU alone."""
    wheel = built(tmp_path)
    python, site = environment(tmp_path / "env")
    link("torch", site)
    pip("--python", str(python), "install", "--no-deps", str(wheel))
    lowest = [
        line.replace(">=", "==")
        for line in next(iter(Distribution.discover(name="headwise", path=[str(site)]))).requires or ()
        if "extra ==" not in line and Requirement(line).name != "torch"
    ]
    assert "typer==" in " ".join(lowest)
    install(python, *lowest)
    check(python, tmp_path)


@pytest.mark.slow
def test_the_wheel_with_the_transformers_after_the_pinned_one(tmp_path: Path) -> None:
    python, site = environment(tmp_path / "env")
    pip("--python", str(python), "install", "--no-deps", str(built(tmp_path)))
    for name in requirements(site) - {"transformers"}:
        link(name, site)
    install(python, "transformers==5.23.0")
    check(python, tmp_path)


def install(python: Path, *lines: str) -> None:
    """Installs distributions from an index; skips the test where there is none."""
    done = pip("--python", str(python), "install", "--only-binary", ":all:", *lines, check=False)
    if any(sign in done.stderr for sign in ("NewConnectionError", "name resolution", "ConnectTimeoutError")):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
