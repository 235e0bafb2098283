"""List options that take several values in a row."""

from collections.abc import Collection, Sequence
from typing import Any


def spread_lists(params: Sequence[Any], args: Sequence[str], commands: Collection[str] = ()) -> list[str]:
    """Arguments in which every value of a list option has the option before it: `--shots 4 16` is `--shots 4
    --shots 16`.

    A last word that the command needs for itself is no value of a list: in `--set epochs=2 recipe.toml` the
    recipe is the recipe.

    Args:
        params: the options of the command.
        args: as they were typed.
        commands: the names of commands within this one; from the first of them on the words belong to that
            command.
    """
    list_options: set[str] = set()
    switches: set[str] = set()
    for param in params:
        if getattr(param, "multiple", False):
            list_options.update(param.opts)
        if getattr(param, "is_flag", False):
            switches.update(param.opts, param.secondary_opts)
    arguments_due = sum(param.param_type_name == "argument" and param.required for param in params)
    spread: list[str] = []
    repetition = 0  # index in `spread` of the latest option that was repeated before a further value
    current_list = ""  # the list option that further words belong to
    awaits_value = False  # whether the word before is an option, and this word its value
    for index, word in enumerate(args):
        if word.startswith("-") and not _is_number(word):
            name, has_value, _ = word.partition("=")
            current_list = name if name in list_options else ""
            awaits_value = not has_value and name not in switches
        elif awaits_value:
            awaits_value = False
        elif word in commands:
            return [*spread, *args[index:]]
        elif current_list:
            repetition = len(spread)
            spread.append(current_list)
        else:
            arguments_due -= 1
        spread.append(word)
    last_word_was_repeated = 0 < repetition == len(spread) - 2
    if arguments_due == 1 and last_word_was_repeated:
        del spread[repetition]
    return spread


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
