"""How many draws intervals and tests need; apart from them, so that settings are checked without loading
SciPy."""

from math import ceil

EXPLAINED = (
    "docs/statistics.md explains every interval and p: what it generalises to, and the least number it needs"
)

# of a test by random arrangements: its p goes in steps of 0.005, so that ten pairs can pass a false discovery
# rate of 5 %
MIN_DRAWS = 199


def least_resamples(level: float = 0.95) -> int:
    """Bootstrap resamples that an interval needs: five beyond each of its ends, 199 at 95 % and 999 at 99
    %."""
    return ceil(round(10 / (1 - level), 6)) - 1


def least_random(level: float = 0.95) -> int:
    """Random draws whose lowest and highest hold a further one with that probability, (R − 1) ÷ (R + 1): 39
    at 95 %."""
    return ceil(round((1 + level) / (1 - level), 6))
