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


@pytest.mark.slow
def test_the_wheel_in_an_environment_of_its_requirements(tmp_path: Path) -> None:
    """The environment has the wheel and links to what it requires, nothing else: no extra, no editable install."""
    given = os.environ.get("HEADWISE_WHEEL")
    place = ROOT / given if given else tmp_path
    if not given:
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(place),
            str(ROOT),
        ]
        subprocess.run(command, check=True)
    (wheel,) = place.glob("headwise-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        str(wheel),
    ]
    subprocess.run(install, check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    for name in requirements(site):
        held = distribution(name)
        tops = {
            file.parts[0]
            for file in held.files or ()
            if file.parts[0] != ".." and "__pycache__" not in file.parts[:1]
        }
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(held.locate_file(top))))
    # what `MissingExtra` says to type: pip takes headwise from here, not from an index, and looks for the missing library alone
    hint = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-index",
        "--dry-run",
        "headwise[peft]",
    ]
    said = subprocess.run(hint, capture_output=True, text=True).stderr
    assert "No matching distribution found for peft" in said, said
    recipes = [file.stem for file in sorted((ROOT / "recipes").glob("*.toml"))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, ROOT / "tests" / "wheel_checks.py", *recipes],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
