"""PEFT adapters that were saved alone: a folder with `adapter_config.json` and no model, which names the
model it belongs on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise._base.parsing import read_json
from headwise.errors import HeadwiseError, MissingExtra

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
INSIDE = "base_model.model."  # before the names of the model's own modules
CLASSES = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "FEATURE_EXTRACTION": "AutoModel",
}
HEADS = ("classifier", "score", "out_proj")  # the last layer of a classifier, by family


@dataclass(frozen=True)
class Adapter:
    """A saved adapter.

    Attributes:
        source: its folder or hub id.
        base: folder or hub id of the model it was trained on.
        kind: the transformers class of that model; None if the adapter does not say.
        weights: its safetensors file.
    """

    source: str
    base: str
    kind: str | None
    weights: Path

    def put_on(self, model: Any, tensors: Mapping[str, Any]) -> Any:
        """The model with the adapter in it, as a `PeftModel` in evaluation mode; only the adapter's weights
        would be trained.

        Args:
            model: what `base` holds; it is changed.
            tensors: of the adapter.

        Raises:
            HeadwiseError: the tensors are not those its configuration asks for; names them.
        """
        try:
            import peft
        except ImportError as error:
            raise MissingExtra("peft", "peft") from error
        settings = peft.PeftConfig.from_pretrained(str(self.weights.parent))
        settings.inference_mode = False
        adapted = peft.get_peft_model(model, settings)
        expected = peft.get_peft_model_state_dict(adapted)
        missing = sorted(set(expected) - set(tensors))
        if missing:
            raise HeadwiseError(
                f"{self.weights} lacks {', '.join(missing[:3])}, which would be filled with random numbers: "
                "save or download the adapter again"
            )
        wrong = [name for name in expected if expected[name].shape != tensors[name].shape]
        foreign = sorted(set(tensors) - set(expected))
        if wrong or foreign:
            raise HeadwiseError(
                f"{self.weights} holds {(wrong or foreign)[0]}, which does not fit {self.base}: the adapter "
                "was trained on another model"
            )
        peft.set_peft_model_state_dict(adapted, dict(tensors))
        return adapted.eval()


def find_adapter(source: str) -> Adapter | None:
    """The adapter that a folder or hub id holds; None where it holds a model, or nothing.

    Raises:
        HeadwiseError: it does not say which model it belongs on.
    """
    settings = _file(source, CONFIG)
    if settings is None or (Path(source).is_dir() and any(Path(source).glob("model*.safetensors*"))):
        return None
    record = read_json(settings)
    base = record.get("base_model_name_or_path")
    if not isinstance(base, str) or not base or base == source:
        raise HeadwiseError(
            f"{settings} does not say on which model the adapter was trained: set base_model_name_or_path in "
            "it to that model's folder or hub id"
        )
    return Adapter(
        source,
        base,
        CLASSES.get(str(record.get("task_type"))),
        _file(source, WEIGHTS) or Path(source) / WEIGHTS,
    )


def outputs(tensors: Mapping[str, Any]) -> int | None:
    """How many outputs the classifier inside an adapter has; None if it has no classifier."""
    ends = tuple(f".{name}.weight" for name in HEADS)
    for name, tensor in tensors.items():
        if name.endswith(ends) and "lora_" not in name:
            return int(tensor.shape[0])
    return None


def check_savable(model: Any) -> None:
    """Raises a HeadwiseError for the inside of a PEFT model, which transformers would save in a form that it
    cannot open."""
    if not hasattr(model, "get_base_model") and any(
        hasattr(module, "base_layer") for module in model.modules()
    ):
        raise HeadwiseError(
            f"this {type(model).__name__} contains the adapters of a PEFT model and cannot be saved without "
            "it: merge them first (peft: model = model.merge_and_unload()), and use the result"
        )


def _file(source: str, name: str) -> Path | None:
    """A file of a folder; of a hub id only where it has no model of its own."""
    if Path(source).is_dir():
        path = Path(source) / name
        if path.is_file():
            return path
        return None
    from transformers.utils import cached_file

    quiet = {
        f"_raise_exceptions_for_{reason}": False
        for reason in ("gated_repo", "missing_entries", "connection_errors")
    }
    try:
        if name == CONFIG and cached_file(source, "config.json", **quiet) is not None:
            return None
        file = cached_file(source, name, **quiet)
    except (OSError, ValueError):  # no such name on the hub: whoever asks for the model itself says so
        return None
    return None if file is None else Path(file)
