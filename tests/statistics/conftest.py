"""The slow simulations of this folder are marked, so that `make test-all` can leave them to `make statistics`, which writes a table."""

import os

import level
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "statistics" in item.path.parts and item.get_closest_marker("slow"):
            item.add_marker("simulation")


def pytest_sessionfinish(exitstatus: int) -> None:
    """Prints what was simulated and, where all of it holds, writes the page's table (`make statistics`)."""
    if "HEADWISE_SIMULATIONS" not in os.environ:
        return
    print(f"\n{level.table(level.rows)}")
    if exitstatus == 0 and os.environ.get("HEADWISE_STATISTICS") == "write":
        level.write()
