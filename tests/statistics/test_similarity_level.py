"""Mantel and partial Mantel: pairs that share tasks depend on one another, and input paradigms differ in level and in spread."""

import numpy as np
import pytest
from level import DRAWS, MOST_REJECTED, rejected

from headwise.similarity import mantel, partial_mantel
from headwise.similarity._matrices import labelled

KINDS = {5: [0, 0, 0, 1, 1], 7: [0, 0, 0, 0, 1, 1, 1]}


def distances(rng: np.random.Generator, n: int, world: str = "none") -> np.ndarray:
    """Distances between random points; the paradigm adds a constant, moves its points, or scatters them further."""
    points, kinds = rng.normal(size=(n, 2)), np.array(KINDS[n])
    if world in ("moved", "scattered"):
        points = (
            points * (np.where(kinds == 0, 1, 3)[:, None] if world == "scattered" else 1) + 3 * kinds[:, None]
        )
    values = np.linalg.norm(points[:, None] - points[None], axis=-1)
    return values + 2.0 * (kinds[:, None] == kinds[None]) if world == "constant" else values


def matrix(values: np.ndarray):  # type: ignore[no-untyped-def]
    return labelled(values * (1 - np.eye(len(values))), list("abcdefg")[: len(values)], "test")


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize("alternative", ["less", "two-sided"])
def test_the_level_of_the_mantel_test(kind: str, alternative: str) -> None:
    rng = np.random.default_rng(7)
    p = [
        mantel(*(matrix(distances(rng, 5)) for _ in range(2)), kind=kind, alternative=alternative).p
        for _ in range(DRAWS)
    ]  # type: ignore[arg-type]
    assert 0.02 <= rejected(p, "Mantel", f"five tasks, {kind}, {alternative}") <= MOST_REJECTED


def test_a_link_is_found() -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(40):
        one, other = distances(rng, 5), distances(rng, 5)
        found.append(mantel(matrix(one), matrix(-one - 0.2 * other), alternative="less").p <= 0.05)
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize("world", ["constant", "moved", "scattered"])
def test_the_level_of_the_partial_mantel_test(world: str) -> None:
    rng = np.random.default_rng(9)
    kinds = np.array(KINDS[7])
    given = matrix((kinds[:, None] == kinds[None]).astype(float))
    p = [partial_mantel(*(matrix(distances(rng, 7, world)) for _ in range(2)), given).p for _ in range(DRAWS)]
    assert rejected(p, "partial Mantel", f"four and three tasks, paradigm: {world}") <= MOST_REJECTED
    found = []
    for _ in range(40):
        one, other = distances(rng, 7, world), distances(rng, 7, world)
        found.append(partial_mantel(matrix(one), matrix(one + 0.1 * other), given).p <= 0.05)
    assert np.mean(found) >= 0.9
