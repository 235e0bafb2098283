"""Studies: steps, cells and recipes, and the engine that spreads them over processes or machines and resumes them."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise._base.progress import track as track
    from headwise.engine._export import export as export
    from headwise.engine._recipe import DataPath as DataPath
    from headwise.engine._recipe import ModelName as ModelName
    from headwise.engine._recipe import Recipe as Recipe
    from headwise.engine._recipe import RecipeError as RecipeError
    from headwise.engine._recipe import Settings as Settings
    from headwise.engine._run import Run as Run
    from headwise.engine._run import open as open
    from headwise.engine._steps import Cell as Cell
    from headwise.engine._steps import Step as Step
    from headwise.engine._steps import Study as Study
    from headwise.engine._steps import step as step
    from headwise.engine._study import ready as ready
    from headwise.engine._study import run_recipe as run_recipe
    from headwise.engine._study import run_study as run_study
    from headwise.engine._study import validate as validate
    from headwise.errors import Interrupted as Interrupted
    from headwise.store._checksums import DamagedResult as DamagedResult
    from headwise.store._results import Out as Out
    from headwise.store._results import Result as Result

# public name -> the module that defines it; imported when first used, since some need torch and some pydantic
_WHERE = {
    "Cell": "_steps",
    "DamagedResult": "headwise.store._checksums",
    "DataPath": "_recipe",
    "Interrupted": "headwise.errors",
    "ModelName": "_recipe",
    "Out": "headwise.store._results",
    "Recipe": "_recipe",
    "RecipeError": "_recipe",
    "Result": "headwise.store._results",
    "Run": "_run",
    "Settings": "_recipe",
    "Step": "_steps",
    "Study": "_steps",
    "export": "_export",
    "open": "_run",
    "ready": "_study",
    "run_recipe": "_study",
    "run_study": "_study",
    "step": "_steps",
    "track": "headwise._base.progress",
    "validate": "_study",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.engine", _WHERE)
