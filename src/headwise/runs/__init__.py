"""Where results live: atomic, resumable, provenance-stamped; checkpoints; the engine that spreads work."""

from typing import TYPE_CHECKING

from headwise.lazy import lazily

if TYPE_CHECKING:
    from headwise.errors import Interrupted as Interrupted
    from headwise.runs.atomic import atomic_folder as atomic_folder
    from headwise.runs.checkpoint import Checkpoint as Checkpoint
    from headwise.runs.checkpoint import random_state as random_state
    from headwise.runs.checkpoint import set_random_state as set_random_state
    from headwise.runs.checksums import DamagedResult as DamagedResult
    from headwise.runs.fingerprints import fingerprint as fingerprint
    from headwise.runs.progress import track as track
    from headwise.runs.reading import Run as Run
    from headwise.runs.reading import open as open
    from headwise.runs.recipe import DataPath as DataPath
    from headwise.runs.recipe import ModelName as ModelName
    from headwise.runs.recipe import Recipe as Recipe
    from headwise.runs.recipe import RecipeError as RecipeError
    from headwise.runs.recipe import Settings as Settings
    from headwise.runs.results import Out as Out
    from headwise.runs.results import Result as Result
    from headwise.runs.steps import Cell as Cell
    from headwise.runs.steps import Step as Step
    from headwise.runs.steps import Study as Study
    from headwise.runs.steps import step as step
    from headwise.runs.study import run_study as run_study
    from headwise.runs.study import validate as validate
    from headwise.runs.tidy import export as export

# public name -> the module that defines it; imported when first used, since some need torch and some pydantic
_WHERE = {
    "Cell": "steps",
    "Checkpoint": "checkpoint",
    "DamagedResult": "checksums",
    "DataPath": "recipe",
    "Interrupted": "study",
    "ModelName": "recipe",
    "Out": "results",
    "Recipe": "recipe",
    "RecipeError": "recipe",
    "Result": "results",
    "Run": "reading",
    "Settings": "recipe",
    "Step": "steps",
    "Study": "steps",
    "atomic_folder": "atomic",
    "export": "tidy",
    "fingerprint": "fingerprints",
    "open": "reading",
    "random_state": "checkpoint",
    "run_study": "study",
    "set_random_state": "checkpoint",
    "step": "steps",
    "track": "progress",
    "validate": "study",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.runs", _WHERE)
