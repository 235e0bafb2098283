"""Studies: steps, cells and recipes, and the engine that spreads them over processes or machines and resumes
them."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise._base.progress import track as track
    from headwise.engine._export import export as export
    from headwise.engine._recipe import (
        DataPath as DataPath,
        ModelName as ModelName,
        Recipe as Recipe,
        RecipeError as RecipeError,
        Settings as Settings,
    )
    from headwise.engine._run import Run as Run, open as open
    from headwise.engine._steps import Cell as Cell, Step as Step, Study as Study, step as step
    from headwise.engine._study import (
        ready as ready,
        run_recipe,
        run_study as run_study,
        validate as validate,
    )
    from headwise.errors import Interrupted as Interrupted
    from headwise.store import DamagedResult, Out as Out, Result as Result

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.engine._only import parse_only
    from headwise.engine._plan import PLAN_FILE
    from headwise.engine._recipe import (
        apply_overrides,
        apply_scale,
        find_recipe,
        packaged_recipes,
        read_recipe_file,
        set_value,
    )
    from headwise.engine._steps import resolve, study_of
    from headwise.engine._study import stored_recipe

__getattr__, __all__ = lazily(__name__)
