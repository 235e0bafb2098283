"""Settings of scores and lesions: declared once, without torch."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator, model_validator

from headwise._base.lazy import Registry
from headwise._passes.settings import Reading as Reading
from headwise.errors import HeadwiseError, did_you_mean
from headwise.settings import Settings, checked, option

ESTIMATORS: Registry[Callable[..., Any]] = Registry(
    "estimator",
    {
        "gate-gradient": "headwise.scoring._gradient:gate_gradient",
        "ablation": "headwise.scoring._ablation:ablation",
        "integrated-gradients": "headwise.scoring._integrated:integrated_gradients",
        "attention-attribution": "headwise.scoring._attribution:attention_attribution",
        "l0": "headwise.scoring._l0:l0",
        "subset": "headwise.scoring._subset:subset",
        "causal-gating": "headwise.scoring._causal:causal_gating",
        "shapley": "headwise.scoring._shapley:shapley",
        "taylor-mean": "headwise.scoring._taylor:taylor_mean",
        "patching": "headwise.scoring._patching:patching",
        "attribution-patching": "headwise.scoring._patching:attribution_patching",
        "random": "headwise.scoring._random:random_scores",
    },
)
# Published codes that share the name "head importance" and differ: abs level, divisor, per-layer L2 norm,
# min–max.
VARIANTS: dict[str, dict[str, Any]] = {
    "eq4": {},
    "michel": {"absolute": "token", "divisor": "tokens, last layer examples", "layer_norm": True},
    "iap": {"absolute": "token", "divisor": "tokens"},
    "iat": {"absolute": "token", "divisor": "tokens, last layer none"},
    "bertology": {"absolute": "batch", "divisor": "tokens", "layer_norm": True, "min_max": True},
    "super-tickets": {"absolute": "token", "divisor": "batches", "layer_norm": True},
}
OF_BATCHES = ("bertology", "super-tickets")  # variants whose scores depend on the batch size


class Estimation(Reading):
    """Which estimator scores the heads, and its own options."""

    method: str | Callable[..., Any] = option(
        "gate-gradient",
        f"How heads are scored: {', '.join(ESTIMATORS)}; in Python also a function of a model and a task.",
    )
    variant: str | None = option(
        None, "Variant of gate-gradient: eq4 (default), michel, iap, iat, bertology, super-tickets."
    )
    options: dict[str, Any] = option(
        {}, "More options of the method, e.g. permutations=20 for shapley.", flag="--set"
    )

    @model_validator(mode="before")
    @classmethod
    def _own_options(cls, arguments: Any) -> Any:
        """Options of the method may stand beside the others: `score(..., method="l0", steps=100)`."""
        if not isinstance(arguments, dict):
            return arguments
        fields: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for name, value in arguments.items():
            if isinstance(value, list):  # JSON has no tuples
                value = tuple(value)
            if name in cls.model_fields:
                fields[name] = value
            else:
                options[name] = value
        method = fields.get("method", cls.model_fields["method"].default)
        if not options or not (callable(method) or method in ESTIMATORS):
            return fields | options
        try:
            check_options(method, options, cls)
        except HeadwiseError as error:
            raise ValueError(str(error)) from None
        return {**fields, "options": {**fields.get("options", {}), **options}}

    @field_validator("method")
    @classmethod
    def _is_there(cls, method: Any) -> Any:
        if not callable(method) and method not in ESTIMATORS:
            raise ValueError(
                f"{method!r} is unknown{did_you_mean(method, ESTIMATORS)}; choose one of "
                f"{', '.join(ESTIMATORS)}"
            )
        return method

    @property
    def own(self) -> dict[str, Any]:
        """The options of the method."""
        if self.variant is None:
            return dict(self.options)
        return {"variant": self.variant, **self.options}

    def decides(self) -> dict[str, Any]:
        facts = super().decides()
        if {"absolute", "divisor"} & set(self.own) or self.own.get("variant") in OF_BATCHES:
            facts["batch_size"] = self.batch_size
        return facts


class Score(Estimation):
    """Settings of `headwise.score`."""

    out: Path | None = option(
        None, "Save the scores in this folder; finished ones are shown again.", short="-o", decides=False
    )

    examples: int | None = option(
        None,
        "At most this many examples of the split, drawn at random; default: depends on the method.",
        ge=1,
    )
    iterative: float | int | None = option(
        None,
        "Silence this many heads, score the rest again, and repeat; a fraction of all heads (0.1) or a "
        "number (5).",
        gt=0,
    )
    silence: Literal["most", "least"] = option(
        "most",
        "With iterative: silence the most important of the remaining heads (most, as in lesions) or the "
        "least important (least, as in pruning).",
    )


def estimator(method: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function that computes a method."""
    return method if callable(method) else ESTIMATORS[method]


def option_names(method: str | Callable[..., Any]) -> list[str] | None:
    """The options that a method has of its own; None: it takes any."""
    function = estimator(method)
    declared = getattr(function, "settings", None)
    if declared is not None:
        return [name for name in declared.model_fields if name not in Reading.model_fields]
    parameters = list(signature(function).parameters.values())[2:]
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.name not in Reading.model_fields]


def check_options(
    method: str | Callable[..., Any], options: Mapping[str, Any], beside: type[Settings] = Reading
) -> None:
    """Checks the options of a method: their names, and their values where the method declares them.

    Raises:
        HeadwiseError: the method has no such option, or its value is out of bounds.
    """
    if isinstance(method, str) and not options:
        return  # estimators of headwise need no option: they are not imported for nothing
    names = option_names(method)
    label = method if isinstance(method, str) else getattr(method, "__name__", "given")
    for name in options:
        if names is not None and name not in names:
            near = did_you_mean(name, [*names, *beside.model_fields])
            has = f"its own are {', '.join(names)}" if names else "it has none of its own"
            raise HeadwiseError(f"method {label!r} has no option {name!r}{near}; {has}")
    declared = getattr(estimator(method), "settings", None)
    if declared is not None:
        checked(declared, options)
