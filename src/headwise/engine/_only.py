"""Some cells of a study: those at chosen coordinates, and what they need."""

from collections.abc import Iterable, Mapping, Sequence

from headwise.engine._plan import Plan
from headwise.errors import HeadwiseError, did_you_mean


def parse_only(given: Iterable[str]) -> dict[str, set[str]]:
    """Coordinates as the command line gives them, `seed=4`; one that is given twice may have either value.

    Raises:
        HeadwiseError: one is not written as name=value.
    """
    found: dict[str, set[str]] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise HeadwiseError(f"--only {one}: write it as name=value, e.g. --only seed=0")
        found.setdefault(name.strip(), set()).add(value.strip())
    return found


def chosen(plan: Plan, only: Mapping[str, set[str]]) -> Sequence[int]:
    """Numbers of the plan's cells that have all these coordinates, and of all that those need; without any, of all cells.

    Raises:
        HeadwiseError: no cell has a coordinate of that name or value, or none has all of them.
    """
    if not only:
        return range(len(plan))
    places = [
        {name: str(value) for name, value in plan.task(number)["coords"].items()}
        for number in range(len(plan))
    ]
    for name, values in only.items():
        known = dict.fromkeys(place[name] for place in places if name in place)
        names = dict.fromkeys(other for place in places for other in place)
        if not known:
            raise HeadwiseError(
                f"--only {name}: no cell has it{did_you_mean(name, names)}; cells have {', '.join(names)}"
            )
        if foreign := sorted(values - known.keys()):
            raise HeadwiseError(
                f"--only {name}={foreign[0]}: no cell has it{did_you_mean(foreign[0], known)}; {name} is {_few(known)}"
            )
    found = {
        number
        for number, place in enumerate(places)
        if all(place.get(name) in values for name, values in only.items())
    }
    if not found:
        told = " ".join(f"--only {name}={value}" for name, values in only.items() for value in sorted(values))
        raise HeadwiseError(f"{told}: no cell has all of them")
    wanted: set[int] = set()
    while found:
        wanted |= found
        found = {needed for number in found for needed in plan.after.get(number, ())} - wanted
    return sorted(wanted)


def _few(values: Iterable[str]) -> str:
    """Up to ten values."""
    every = list(values)
    return ", ".join(every[:10]) + (f", … ({len(every)} in all)" if len(every) > 10 else "")
