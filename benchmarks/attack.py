"""The attack: odd requests to the app, hostile files, damage to a study's results, commands with wrong values, and kills.

    python benchmarks/attack.py [--kills 10] [--seed 0]

Prints one JSON line a class, as soon as it is done, and their sum at the end: how many were tried, how many were refused clearly (or,
for damage and kills, repaired to the same bytes), and what went wrong, by name. Exit status 1 if anything did.
"""

import argparse
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("hostile", "training", "engine")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [os.environ.get("PYTHONPATH", ""), str(TESTS / "engine")])
)
COMMAND = [sys.executable, "-c", "from headwise.cli import main; main()"]


class Count(dict[str, Any]):
    """What became of one class of attacks."""

    def __init__(self, name: str) -> None:
        super().__init__({"class": name, "tried": 0, "refused": 0, "repaired": 0, "fine": 0, "wrong": []})

    def add(self, name: str, outcome: str) -> None:
        """`outcome` is refused, repaired, fine (it may be done), or what went wrong."""
        self["tried"] += 1
        if outcome in ("refused", "repaired", "fine"):
            self[outcome] += 1
        else:
            self["wrong"].append(f"{name}: {outcome[:300]}")


def requests(folder: Path, given: argparse.Namespace) -> Count:
    """Odd requests: each gets a status that fits and a JSON answer."""
    import oddities
    import toy

    from headwise.app import Server, Session

    count, task = Count("odd requests"), toy.task("mood")
    server = Server(Session(toy.model([task]), [task], "toy"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    for name, sent, allowed in oddities.odd_requests():
        try:
            status, headers, content = oddities.raw(server.server_address[:2], sent)  # type: ignore[arg-type]
            json.loads(content)
            sound = status in allowed and "frame-ancestors 'none'" in headers["content-security-policy"]
            count.add(
                name,
                ("fine" if status == 200 else "refused") if sound else f"status {status}, {content[:100]!r}",
            )
        except Exception as error:
            count.add(name, f"{type(error).__name__}: {error}")
    server.shutdown()
    return count


def files(folder: Path, given: argparse.Namespace) -> Count:
    """Hostile files: each is refused in one line that says what is wrong with it."""
    import re

    from files import HOSTILE, use

    from headwise.errors import HeadwiseError

    count = Count("hostile files")
    for number, (name, (kind, file, content, expected)) in enumerate(HOSTILE.items()):
        place = folder / f"file-{number}"
        place.mkdir()
        (place / file).write_bytes(content)
        try:
            use(kind, place / file)
            count.add(name, "it was read")
        except HeadwiseError as error:
            clear = re.search(expected, str(error)) and "\n" not in str(error)
            count.add(name, "refused" if clear else f"it said: {error}")
        except Exception as error:
            count.add(name, f"{type(error).__name__}: {error}")
    return count


def commands(folder: Path, given: argparse.Namespace) -> Count:
    """Command lines with wrong values: exit status 2 and one line, without the words for an error nobody foresaw."""
    import toy

    toy.model([toy.task("mood"), toy.task("animal")]).save(folder / "model")
    (folder / "t.toml").write_text('[a]\npath = "a.csv"\n[b]\npath = "a.csv"\n')
    (folder / "a.csv").write_text(
        "text,label,split\n" + "".join(f"red {i},{i % 2},train\n" for i in range(40))
    )
    for name, content in (
        ("empty", b"{}"),
        ("cut", b'{"format": 1, "ki'),
        ("bytes", b"\xff"),
        ("kind", b'{"format": 1, "kind": []}'),
    ):
        (folder / name).mkdir()
        (folder / name / "headwise.json").write_bytes(content)
    (folder / "bad.toml").write_bytes(b"\xff")
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    toml, out = ("--tasks-file", "t.toml"), ("--out", "out")
    lines: list[tuple[str, ...]] = [
        ("dissociate", "--model", "model", *toml, "--fraction", "0"),
        ("dissociate", "--model", "model", *toml, "--fraction", "1"),
        ("score", "--model", "model", *toml, "--fraction", "1.5"),
        ("score", "--model", "model", "--tasks-file", "nowhere.toml"),
        ("score", "--model", "model", "--tasks-file", "bad.toml"),
        ("train", "--model", "demo", *toml, *out, "--method", "multi-task", "--alpha", "0.3"),
        ("train", "--model", "demo", *toml, *out, "--set", "epochs=abc"),
        ("train", "--model", "demo", *toml, *out, "--set", "nonsense=1"),
        ("app", "model", "--port", "99999"),
        ("app", "model", "--port", str(taken.getsockname()[1])),
        ("study", "run", "bad.toml"),
        ("study", "show", "empty"),
        *(("inspect", name) for name in ("empty", "cut", "bytes", "kind")),
        *(("report", name) for name in ("empty", "cut", "bytes", "kind")),
    ]
    count = Count("commands")
    for words in lines:
        ended = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, timeout=300)
        said = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
        clear = (
            ended.returncode == 2
            and len(said) == 1
            and "foresaw" not in said[0]
            and "Traceback" not in ended.stderr
        )
        count.add(
            " ".join(words), "refused" if clear else f"status {ended.returncode}: {ended.stderr[-200:]}"
        )
    taken.close()
    if (folder / "out").exists():
        count.add("out", "a refused training left a folder")
    return count


def damages(path: Path, dice: random.Random) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Ways to damage a file."""
    raw = path.read_bytes()
    at = dice.randrange(len(raw))
    yield "cut off", lambda: path.write_bytes(raw[: len(raw) // 2])
    yield "emptied", lambda: path.write_bytes(b"")
    yield "a bit flipped", lambda: path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    yield "made longer", lambda: path.write_bytes(raw + b"\n{}")
    yield "not UTF-8", lambda: path.write_bytes(b"\xff" + raw)
    yield "removed", path.unlink


def corruptions(folder: Path, given: argparse.Namespace) -> Count:
    """Damage to every file of a study's results, and to the files beside them: the next run finds it and computes the same bytes."""
    from sample_study import GridRecipe, grid

    from headwise import engine

    recipe = GridRecipe(kind="grid", widths=(8,), seeds=(0,), training={"steps": 3})
    run, dice, count = folder / "run", random.Random(given.seed), Count("corruptions")
    engine.run_study(grid, recipe, run, jobs=0, quiet=True)
    sound = digests(run)
    names = [
        path for path in sorted(run.rglob("*")) if path.is_file() and not path.is_relative_to(run / "damaged")
    ]
    for path in names:
        if (
            path.name == "headwise.json"
        ):  # what makes the folder a run: without it, it is refused (see commands)
            continue
        for what, damage in damages(path, dice) if path.stat().st_size else ():
            damage()
            try:
                board = engine.run_study(grid, recipe, run, jobs=0, quiet=True)
                same = digests(run) == sound and not board.failed
                count.add(f"{path.name} {what}", "repaired" if same else f"not repaired: {board}")
            except Exception as error:
                count.add(f"{path.name} {what}", f"{type(error).__name__}: {error}")
    return count


def digests(run: Path) -> dict[str, str]:
    """Checksum of every result file but the provenance, which holds times."""
    found = [path for path in (run / "results").rglob("*") if path.is_file() and path.name != "headwise.json"]
    return {path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def kills(folder: Path, given: argparse.Namespace) -> Count:
    """A study killed with -9 at random moments ends with the bytes of an undisturbed one (benchmarks/runs_kill.py)."""
    count = Count("kills")
    command = [
        sys.executable,
        str(HERE / "runs_kill.py"),
        "--kills",
        str(given.kills),
        "--seed",
        str(given.seed),
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(ended.stdout) if ended.returncode == 0 else {}
    sound = (
        ended.returncode == 0
        and not found["finished_cells_computed_again"]
        and not found["files_that_differ"]
    )
    for number in range(found.get("kills", given.kills)):  # the study may end before all of them
        count.add(f"kill {number}", "repaired" if sound else f"{found or ended.stderr[-300:]}")
    return count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    total = Count("all")
    for attack in (requests, files, commands, corruptions, kills):
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            count = attack(Path(folder), given)
        print(json.dumps(count), flush=True)
        for key in ("tried", "refused", "repaired", "fine", "wrong"):
            total[key] += count[key]
    print(json.dumps({**total, "wrong": len(total["wrong"])}), flush=True)
    raise SystemExit(1 if total["wrong"] else 0)


if __name__ == "__main__":
    main()
