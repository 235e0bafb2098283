"""The models that a run of `headwise train` or of a training study left, by method and in the order of their seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise._base.parsing import read_json, reading
from headwise._base.places import without_weights
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest
from headwise.training._result import DONE
from headwise.training.methods import METHODS

PLACES = ("model", "sampling", "seed")


def trained_models(run: str | Path, where: Mapping[str, Any] | None = None) -> dict[str, list[Path]]:
    """Folders of multi-task models below `run`, by the method that trained them; the n-th of every method has the same seed.

    Args:
        run: a folder.
        where: choose among several: model (its name, or the end of it), sampling, seed, method.

    Raises:
        HeadwiseError: there are none, two that differ in nothing but what `where` could choose, or one whose weights are gone.
    """
    found: dict[tuple[str, int], tuple[Path, dict[str, Any]]] = {}
    for file in sorted(Path(run).rglob(DONE)):
        folder = file.parent
        if not (folder / manifest.NAME).is_file() or manifest.read(folder)["kind"] != "multi-task" or part_of_single(folder):
            continue
        place = place_of(folder)
        if any(not _fits(place.get(name), value) for name, value in (where or {}).items()):
            continue
        key = place["method"], int(place["seed"])
        if key in found:
            differs = [name for name in PLACES if place[name] != found[key][1][name]] or ["nothing that is noted"]
            raise HeadwiseError(
                f"{run} holds two models of method {key[0]} and seed {key[1]}, {found[key][0]} and {folder}; they differ in "
                f"{', '.join(differs)}: choose one, e.g. by model or sampling"
            )
        if (empty := without_weights(folder)) is not None:
            raise HeadwiseError(
                f"the weights of {folder} are missing ({empty}/*.safetensors): copy the whole run, or train it again"
            )
        found[key] = folder, place
    models: dict[str, list[Path]] = {}
    for (method, _), (folder, _) in sorted(found.items(), key=lambda entry: entry[0][1]):
        models.setdefault(method, []).append(folder)
    if not models:
        raise HeadwiseError(f"{run} holds no trained multi-task model{f' with {dict(where)}' if where else ''}")
    order = ["multi-task", *METHODS]
    return dict(sorted(models.items(), key=lambda entry: order.index(entry[0]) if entry[0] in order else len(order)))


def place_of(folder: Path) -> dict[str, Any]:
    """Method, model, sampling and seed of a finished training."""
    manifest.check(folder, manifest.read(folder), DONE)
    with reading(folder, "a finished training, so it is damaged"):
        described = read_json(folder / DONE)["description"]
        settings = described.get("settings", {})
        return {
            "method": str(described["method"]),
            "model": str(described.get("model", "")),
            "sampling": str(settings.get("sampling", "")),
            "seed": int(settings.get("seed", 0)),
        }


def single_task_models(run: str | Path) -> dict[str, Path]:
    """By task, the model trained on it alone, of a run of `headwise train --method single-task`.

    Raises:
        HeadwiseError: the folder holds something else.
    """
    record = manifest.read(run)
    if record["kind"] != "single-task":
        raise HeadwiseError(f"{run} holds a {record['kind']!r}, not the models of a single-task training, one for each task")
    return {str(name): Path(run) / str(name) for name in record["tasks"]}


def part_of_single(folder: Path) -> bool:
    """Whether a training is one task of a single-task training, which is a result of its own."""
    above = folder.parent / manifest.NAME
    return above.is_file() and manifest.read(folder.parent)["kind"] == "single-task"


def _fits(value: Any, wanted: Any) -> bool:
    hub = "models--" + str(wanted).replace("/", "--")  # the folder of a hub model in the cache
    return str(value) == str(wanted) or str(value).endswith(f"/{wanted}") or hub in Path(str(value)).parts
