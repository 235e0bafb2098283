"""The models that a run of `headwise train` or of a training study left, by method and in the order of their
seeds."""

from collections.abc import Iterator, Mapping
from itertools import chain
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
    """Folders of multi-task models below `run`, by the method that trained them; the n-th of every method has
    the same seed.

    Args:
        run: a folder.
        where: choose among several: model (its name, or the end of it), sampling, seed, method.

    Raises:
        HeadwiseError: there are none, two that differ in nothing but what `where` could choose, or one whose
            weights are gone.
    """
    trainings: dict[tuple[str, int], tuple[Path, dict[str, Any]]] = {}
    for folder, kind, coords in _trainings(run, where):
        if kind != "multi-task":
            continue
        key = coords["method"], int(coords["seed"])
        if key in trainings:
            differs = [name for name in PLACES if coords[name] != trainings[key][1][name]] or [
                "nothing that is noted"
            ]
            raise HeadwiseError(
                f"{run} holds two models of method {key[0]} and seed {key[1]}, {trainings[key][0]} and "
                f"{folder}; they differ in {', '.join(differs)}: choose one, e.g. by model or sampling"
            )
        _check_weights(folder)
        trainings[key] = folder, coords
    models: dict[str, list[Path]] = {}
    for (method, _), (folder, _) in sorted(trainings.items(), key=lambda entry: entry[0][1]):
        models.setdefault(method, []).append(folder)
    if not models:
        condition = f" with {_conditions(where)}" if where else ""
        raise HeadwiseError(f"{run} holds no trained multi-task model{condition}")
    order = [name for name in ("multi-task", *METHODS, *models) if name in models]
    return {name: models[name] for name in order}


def only_training(run: str | Path, method: str, where: Mapping[str, Any] | None = None) -> Path | None:
    """The folder of the one finished training below `run` by this method (see `trained_models`); None: there
    is none.

    Raises:
        HeadwiseError: there are several, or the run is unfinished, so that it may lack some.
    """
    _check_finished(Path(run))
    trainings = [
        (folder, coords) for folder, _, coords in _trainings(run, where) if coords["method"] == method
    ]
    if len(trainings) > 1:
        raise HeadwiseError(
            f"{run} holds {len(trainings)} trainings by the method {method}, {_difference(trainings)}"
        )
    return trainings[0][0] if trainings else None


def _difference(trainings: list[tuple[Path, dict[str, Any]]]) -> str:
    """In what several trainings differ, and how one of them is named."""
    differs = {}
    for name in PLACES:
        values = dict.fromkeys(str(coords[name]) for _, coords in trainings)
        if len(values) > 1:
            differs[name] = f"{name} ({', '.join(values)})"
    if differs:
        return (
            f"which differ in {' and '.join(differs.values())}: choose one by where, as in "
            f"where.{next(iter(differs))}"
        )
    return f"{' and '.join(str(folder) for folder, _ in trainings)}: give one of them"


def _trainings(
    run: str | Path, where: Mapping[str, Any] | None
) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every finished training below `run` that fits `where`: its folder, the kind of its result and its place
    (see `place_of`)."""
    if unknown := next((name for name in where or {} if name not in (*PLACES, "method")), None):
        near = did_you_mean(unknown, (*PLACES, "method"))
        raise HeadwiseError(f"where.{unknown}: unknown{near}; choose by {', '.join(PLACES)} or method")
    for folder in _finished(Path(run)):
        if not (folder / manifest.NAME).is_file() or part_of_single(folder):
            continue
        kind = manifest.read(folder)["kind"]
        if kind not in ("multi-task", "single-task"):
            continue
        coords = place_of(folder)
        if all(_fits(coords.get(name), value) for name, value in (where or {}).items()):
            yield folder, kind, coords


def _finished(run: Path) -> list[Path]:
    """Folders of finished trainings; of a study only those of its present recipe, which may have had another
    one before."""
    folders = [run]
    if (run / manifest.NAME).is_file() and manifest.read(run)["kind"] == "study":
        folders = [result.folder for _, result in engine.open(run).results()]
    files = chain.from_iterable(sorted(folder.rglob(TRAINING_FILE)) for folder in folders)
    return [file.parent for file in files]


def _check_finished(run: Path) -> None:
    if (run / manifest.NAME).is_file() and manifest.read(run)["kind"] == "study":
        cells = [cell["state"] == "done" for cell in engine.open(run).cells()]
        if not all(cells):
            raise HeadwiseError(
                f"{run} is unfinished: {sum(cells)} of its {len(cells)} cells are done; resume it with "
                f"headwise study run {run}"
            )
    elif started := [
        file.parent for file in sorted(run.rglob(STARTED_FILE)) if not (file.parent / TRAINING_FILE).is_file()
    ]:
        raise HeadwiseError(f"the training in {started[0]} is unfinished: run its command again to resume it")


def _check_weights(folder: Path) -> None:
    if (empty := without_weights(folder)) is not None:
        raise HeadwiseError(
            f"the weights of {folder} are missing ({empty}/*.safetensors): copy the whole run, or train it "
            "again"
        )


def place_of(folder: Path) -> dict[str, Any]:
    """Method (or what its study calls the training: a variant, a setting of a sweep), model, sampling and
    seed of a finished training."""
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
    """By task, the model trained on it alone, of a run that holds one single-task training: of `headwise
    train` or of a training study.

    Raises:
        HeadwiseError: the folder holds none or several, is unfinished, or has lost weights.
    """
    folder = only_training(run, "single-task", where)
    if folder is None:
        singles = [coords for _, kind, coords in _trainings(run, None) if kind == "single-task"]
        if where and singles:
            available = []
            for name in where:
                values = dict.fromkeys(str(coords[name]) for coords in singles)
                available.append(f"{name} is {', '.join(values)}")
            raise HeadwiseError(
                f"where: no single-task training in {run} has {_conditions(where)}: {'; '.join(available)}"
            )
        raise HeadwiseError(
            f"{run} holds no single-task training, one model for each task: train with the method single-task"
        )
    models = {str(name): folder / str(name) for name in manifest.read(folder)["tasks"]}
    for model in models.values():
        _check_weights(model)
    return models


def multi_task_model(run: str | Path, where: Mapping[str, Any] | None = None) -> Path | None:
    """The one model below `run` that plain multi-task training made, which goes with the single-task models
    there; None: there is none.

    Raises:
        HeadwiseError: there are several, it is of another model, seed or tasks than the single-task models,
            or its weights are gone.
    """
    folder, alone = only_training(run, "multi-task", where), only_training(run, "single-task", where)
    if folder is None:
        return None
    if alone is not None:
        coords, alone_coords = place_of(folder), place_of(alone)
        if differs := [
            f"{name} ({coords[name]}, {alone_coords[name]})"
            for name in ("model", "seed")
            if coords[name] != alone_coords[name]
        ]:
            raise HeadwiseError(
                f"the multi-task model {folder} and the single-task models {alone} differ in "
                f"{' and '.join(differs)}: choose by where"
            )
        trained_tasks = {task["name"] for task in manifest.read(folder)["tasks"]}
        if lacking := [str(name) for name in manifest.read(alone)["tasks"] if name not in trained_tasks]:
            raise HeadwiseError(
                f"the multi-task model {folder} was not trained on {', '.join(lacking)}, as the single-task "
                "models were"
            )
    _check_weights(folder)
    return folder


def _conditions(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in where.items())


def part_of_single(folder: Path) -> bool:
    """Whether a training is one task of a single-task training, which is a result of its own."""
    above = folder.parent / manifest.NAME
    return above.is_file() and manifest.read(folder.parent)["kind"] == "single-task"


def _fits(value: Any, expected: Any) -> bool:
    hub = "models--" + str(expected).replace("/", "--")  # the folder of a hub model in the cache
    return str(value) == str(expected) or str(value).endswith(f"/{expected}") or hub in Path(str(value)).parts
