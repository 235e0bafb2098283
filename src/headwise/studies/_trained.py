"""The models that a run of `headwise train` or of a training study left, by method and in the order of their seeds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwise import engine
from headwise._base.parsing import read_json, reading
from headwise._base.places import without_weights
from headwise.errors import HeadwiseError, did_you_mean
from headwise.store import STARTED_FILE, manifest
from headwise.training import TRAINING_FILE
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
    for folder, kind, place in _trainings(run, where):
        if kind != "multi-task":
            continue
        key = place["method"], int(place["seed"])
        if key in found:
            differs = [name for name in PLACES if place[name] != found[key][1][name]] or [
                "nothing that is noted"
            ]
            raise HeadwiseError(
                f"{run} holds two models of method {key[0]} and seed {key[1]}, {found[key][0]} and {folder}; they differ in "
                f"{', '.join(differs)}: choose one, e.g. by model or sampling"
            )
        _check_weights(folder)
        found[key] = folder, place
    models: dict[str, list[Path]] = {}
    for (method, _), (folder, _) in sorted(found.items(), key=lambda entry: entry[0][1]):
        models.setdefault(method, []).append(folder)
    if not models:
        raise HeadwiseError(
            f"{run} holds no trained multi-task model{f' with {_told(where)}' if where else ''}"
        )
    order = ["multi-task", *METHODS]
    return dict(
        sorted(models.items(), key=lambda entry: order.index(entry[0]) if entry[0] in order else len(order))
    )


def only_training(run: str | Path, method: str, where: Mapping[str, Any] | None = None) -> Path | None:
    """The folder of the one finished training below `run` by this method (see `trained_models`); None: there is none.

    Raises:
        HeadwiseError: there are several, or the run is unfinished, so that it may lack some.
    """
    _check_finished(Path(run))
    found = [(folder, place) for folder, _, place in _trainings(run, where) if place["method"] == method]
    if len(found) > 1:
        values = {name: list(dict.fromkeys(str(place[name]) for _, place in found)) for name in PLACES}
        differs = [f"{name} ({', '.join(known)})" for name, known in values.items() if len(known) > 1]
        raise HeadwiseError(
            f"{run} holds {len(found)} trainings by the method {method}, which differ in {' and '.join(differs)}: choose one by where, "
            f"as in where.{differs[0].split(' ')[0]}"
            if differs
            else f"{run} holds {len(found)} trainings by the method {method}, {' and '.join(str(f) for f, _ in found)}: give one of them"
        )
    return found[0][0] if found else None


def _trainings(
    run: str | Path, where: Mapping[str, Any] | None
) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every finished training below `run` that fits `where`: its folder, the kind of its result and its place (see `place_of`)."""
    if unknown := next((name for name in where or {} if name not in (*PLACES, "method")), None):
        near = did_you_mean(unknown, (*PLACES, "method"))
        raise HeadwiseError(f"where.{unknown}: unknown{near}; choose by {', '.join(PLACES)} or method")
    for folder in _finished(Path(run)):
        if not (folder / manifest.NAME).is_file() or part_of_single(folder):
            continue
        kind = manifest.read(folder)["kind"]
        if kind not in ("multi-task", "single-task"):
            continue
        place = place_of(folder)
        if all(_fits(place.get(name), value) for name, value in (where or {}).items()):
            yield folder, kind, place


def _finished(run: Path) -> list[Path]:
    """Folders of finished trainings; of a study only those of its present recipe, which may have had another one before."""
    places = [run]
    if (run / manifest.NAME).is_file() and manifest.read(run)["kind"] == "study":
        places = [result.folder for _, result in engine.open(run).results()]
    return [file.parent for place in places for file in sorted(place.rglob(TRAINING_FILE))]


def _check_finished(run: Path) -> None:
    if (run / manifest.NAME).is_file() and manifest.read(run)["kind"] == "study":
        cells = [cell["state"] == "done" for cell in engine.open(run).cells()]
        if not all(cells):
            raise HeadwiseError(
                f"{run} is unfinished: {sum(cells)} of its {len(cells)} cells are done; resume it with headwise study run {run}"
            )
    elif started := [
        file.parent for file in sorted(run.rglob(STARTED_FILE)) if not (file.parent / TRAINING_FILE).is_file()
    ]:
        raise HeadwiseError(f"the training in {started[0]} is unfinished: run its command again to resume it")


def _check_weights(folder: Path) -> None:
    if (empty := without_weights(folder)) is not None:
        raise HeadwiseError(
            f"the weights of {folder} are missing ({empty}/*.safetensors): copy the whole run, or train it again"
        )


def place_of(folder: Path) -> dict[str, Any]:
    """Method (or what its study calls the training: a variant, a setting of a sweep), model, sampling and seed of a finished training."""
    manifest.check(folder, manifest.read(folder), TRAINING_FILE)
    with reading(folder, "a finished training, so it is damaged"):
        described = read_json(folder / TRAINING_FILE)["description"]
        settings = described.get("settings", {})
        return {
            "method": str(described.get("label", described["method"])),
            "model": str(described.get("model", "")),
            "sampling": str(settings.get("sampling", "")),
            "seed": int(settings.get("seed", 0)),
        }


def single_task_models(run: str | Path, where: Mapping[str, Any] | None = None) -> dict[str, Path]:
    """By task, the model trained on it alone, of a run that holds one single-task training: of `headwise train` or of a training study.

    Raises:
        HeadwiseError: the folder holds none or several, is unfinished, or has lost weights.
    """
    folder = only_training(run, "single-task", where)
    if folder is None:
        if where and (others := [place for _, kind, place in _trainings(run, None) if kind == "single-task"]):
            known = "; ".join(
                f"{name} is {', '.join(dict.fromkeys(str(one[name]) for one in others))}" for name in where
            )
            raise HeadwiseError(f"where: no single-task training in {run} has {_told(where)}: {known}")
        raise HeadwiseError(
            f"{run} holds no single-task training, one model for each task: train with the method single-task"
        )
    models = {str(name): folder / str(name) for name in manifest.read(folder)["tasks"]}
    for model in models.values():
        _check_weights(model)
    return models


def multi_task_model(run: str | Path, where: Mapping[str, Any] | None = None) -> Path | None:
    """The one model below `run` that plain multi-task training made, which goes with the single-task models there; None: there is none.

    Raises:
        HeadwiseError: there are several, it is of another model, seed or tasks than the single-task models, or its weights are gone.
    """
    folder, alone = only_training(run, "multi-task", where), only_training(run, "single-task", where)
    if folder is None:
        return None
    if alone is not None:
        place, other = place_of(folder), place_of(alone)
        if differs := [
            f"{name} ({place[name]}, {other[name]})"
            for name in ("model", "seed")
            if place[name] != other[name]
        ]:
            raise HeadwiseError(
                f"the multi-task model {folder} and the single-task models {alone} differ in {' and '.join(differs)}: choose by where"
            )
        known = {task["name"] for task in manifest.read(folder)["tasks"]}
        if lacking := [str(name) for name in manifest.read(alone)["tasks"] if name not in known]:
            raise HeadwiseError(
                f"the multi-task model {folder} was not trained on {', '.join(lacking)}, as the single-task models were"
            )
    _check_weights(folder)
    return folder


def _told(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in where.items())


def part_of_single(folder: Path) -> bool:
    """Whether a training is one task of a single-task training, which is a result of its own."""
    above = folder.parent / manifest.NAME
    return above.is_file() and manifest.read(folder.parent)["kind"] == "single-task"


def _fits(value: Any, wanted: Any) -> bool:
    hub = "models--" + str(wanted).replace("/", "--")  # the folder of a hub model in the cache
    return str(value) == str(wanted) or str(value).endswith(f"/{wanted}") or hub in Path(str(value)).parts
