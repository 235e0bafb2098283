"""A name that users import means one thing, whichever room they take it from."""

from importlib import import_module
from inspect import ismodule

import headwise as hw

ROOMS = sorted(
    {
        *(name for name in hw.__all__ if ismodule(getattr(hw, name))),
        "studies",
        "report",
        "settings",
        "errors",
        "training.methods",
        "tasks.readers",
    }
)


def test_no_two_public_names_mean_different_things() -> None:
    meanings: dict[str, dict[int, list[str]]] = {}
    for room in ROOMS:
        module = import_module(f"headwise.{room}")
        public = getattr(
            module, "__all__", [name for name, value in vars(module).items() if _own(value, module)]
        )
        for name in public:
            meanings.setdefault(name, {}).setdefault(id(getattr(module, name)), []).append(room)
    twice = {name: sorted(map(str, found.values())) for name, found in meanings.items() if len(found) > 1}
    assert not twice, twice


def _own(value: object, module: object) -> bool:
    return getattr(value, "__module__", "").startswith(module.__name__) and not getattr(
        value, "__name__", "_"
    ).startswith("_")  # type: ignore[attr-defined]
