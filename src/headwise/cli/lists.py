"""List options that take several values in a row."""

from collections.abc import Collection, Sequence
from typing import Any


def spread_lists(params: Sequence[Any], args: Sequence[str], commands: Collection[str] = ()) -> list[str]:
    """Arguments in which every value of a list option has the option before it: `--shots 4 16` is `--shots 4 --shots 16`.

    A last word that the command needs for itself is no value of a list: in `--set epochs=2 recipe.toml` the recipe is the recipe.

    Args:
        params: the options of the command.
        args: as they were typed.
        commands: the names of commands within this one; from the first of them on the words belong to that command.
    """
    lists = {name for param in params if getattr(param, "multiple", False) for name in param.opts}
    flags = {
        name
        for param in params
        if getattr(param, "is_flag", False)
        for name in (*param.opts, *param.secondary_opts)
    }
    needed = sum(param.param_type_name == "argument" and param.required for param in params)
    spread: list[str] = []
    latest = 0  # place of the latest option that was put before a further value
    open_list = ""  # the list option that further words belong to
    awaits_value = False  # whether the word before is an option, and this word its value
    for place, argument in enumerate(args):
        if argument.startswith("-") and not _is_number(argument):
            name, has_value, _ = argument.partition("=")
            open_list = name if name in lists else ""
            awaits_value = not has_value and name not in flags
        elif awaits_value:
            awaits_value = False
        elif argument in commands:
            return [*spread, *args[place:]]
        elif open_list:
            latest = len(spread)
            spread.append(open_list)
        else:
            needed -= 1
        spread.append(argument)
    if needed == 1 and 0 < latest == len(spread) - 2:  # the last word of all
        del spread[latest]
    return spread


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True
