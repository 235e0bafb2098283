"""Settings of intervals by bootstrap."""

from pydantic import ValidationInfo, field_validator

from headwise._base.least import least_resamples
from headwise.settings import Settings, option


class Resampling(Settings):
    """Intervals by bootstrap: part of the settings of every operation that has them."""

    level: float = option(0.95, "Confidence level of the intervals.", gt=0, lt=1)
    bootstrap: int = option(
        1000,
        "Bootstrap resamples for the intervals: 0 (no intervals), or at least 199 (95 %) or 999 (99 %).",
        ge=0,
    )

    @field_validator("bootstrap")
    @classmethod
    def _enough(cls, value: int, info: ValidationInfo) -> int:
        level = info.data.get("level")  # None where it is wrong itself, which is said there
        if level and 0 < value < (least := least_resamples(level)):
            raise ValueError(
                f"given {value}; intervals at {100 * level:g} % need {least} resamples or more (0: no intervals)"
            )
        return value
