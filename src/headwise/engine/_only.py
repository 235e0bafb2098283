"""Some cells of a study: those at chosen coordinates, and what they need."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from headwise.engine._plan import Plan
from headwise.errors import HeadwiseError, did_you_mean


def parse_only(texts: Iterable[str]) -> dict[str, set[str]]:
    """Coordinates as the command line gives them, `seed=4`; one that is given twice may have either value.

    Raises:
        HeadwiseError: one is not written as name=value.
    """
    coordinates: dict[str, set[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise HeadwiseError(f"--only {text}: write it as name=value, e.g. --only seed=0")
        coordinates.setdefault(name.strip(), set()).add(value.strip())
    return coordinates


def selected_cells(plan: Plan, only: Mapping[str, set[str]]) -> Sequence[int]:
    """Numbers of the plan's cells that have all these coordinates, and of all that those need; without any,
    of all cells.

    Raises:
        HeadwiseError: no cell has a coordinate of that name or value, or none has all of them.
    """
    if not only:
        return range(len(plan))
    coordinates: list[dict[str, str]] = []
    for number in range(len(plan)):
        coords = plan.task(number)["coords"]
        coordinates.append({name: str(value) for name, value in coords.items()})
    names = dict.fromkeys(chain.from_iterable(coordinates))
    for name, values in only.items():
        existing = dict.fromkeys(coords[name] for coords in coordinates if name in coords)
        if not existing:
            raise HeadwiseError(
                f"--only {name}: no cell has it{did_you_mean(name, names)}; cells have {', '.join(names)}"
            )
        if foreign := sorted(values - existing.keys()):
            raise HeadwiseError(
                f"--only {name}={foreign[0]}: no cell has it{did_you_mean(foreign[0], existing)}; {name} is "
                f"{_few(existing)}"
            )
    added = {number for number, coords in enumerate(coordinates) if _fits(coords, only)}
    if not added:
        flags = []
        for name, values in only.items():
            flags += [f"--only {name}={value}" for value in sorted(values)]
        raise HeadwiseError(f"{' '.join(flags)}: no cell has all of them")
    selected: set[int] = set()
    while added:
        selected |= added
        needed = chain.from_iterable(plan.after.get(number, ()) for number in added)
        added = set(needed) - selected
    return sorted(selected)


def _fits(coords: Mapping[str, str], only: Mapping[str, set[str]]) -> bool:
    return all(coords.get(name) in values for name, values in only.items())


def _few(values: Iterable[str]) -> str:
    """Up to ten values."""
    every = list(values)
    return ", ".join(every[:10]) + (f", … ({len(every)} in all)" if len(every) > 10 else "")
