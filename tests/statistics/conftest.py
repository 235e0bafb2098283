"""The slow simulations of this folder are marked, so that `make test-all` can leave them to `make statistics`."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "statistics" in item.path.parts and item.get_closest_marker("slow"):
            item.add_marker("simulation")
