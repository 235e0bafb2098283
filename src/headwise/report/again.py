"""How to make a result again: the command that made it, word for word, or the call to make from Python."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def of_saved(record: Mapping[str, Any]) -> str:
    """Of what `.save()` or --out wrote, by its manifest."""
    if record["kind"] == "induction":
        return record.get("command") or "headwise demo"
    functions = {
        "dissociation": "dissociate",
        "evaluation": "evaluate",
        "harness-evaluation": "harness.run_harness",
        "probes": "probe",
        "scores": "score",
        "roles": "roles",
        "steering": "steer",
    }
    call = f"headwise.{functions[record['kind']]}"
    return record.get("command") or _from_python(call)


def of_study(record: Mapping[str, Any], folder: Path) -> str:
    """Of a study: the command that began it; a run that Python began keeps its recipe, which a command can
    run."""
    stored = shlex.join(["headwise", "study", "run", str(folder), "--out", f"{folder}-again"])
    return record.get("command") or stored


def of_trainings(descriptions: Sequence[Mapping[str, Any]]) -> str:
    """Of trainings, which several commands may have made, one a line."""
    commands = [training.get("command") or _from_python("headwise.train") for training in descriptions]
    return "\n".join(dict.fromkeys(commands))


def _from_python(call: str) -> str:
    return f"# made from Python, not by a command: {call}(model, tasks, ...) with the settings below"
