"""One task of a multi-task model as an ordinary sequence classifier that plain transformers loads."""

from pathlib import Path
from typing import Any

from headwise._base.writing import saving
from headwise.errors import HeadwiseError, did_you_mean
from headwise.models._decoders.sequence import SequenceDecoder
from headwise.models._families import FAMILIES
from headwise.models._model import MultiTaskModel
from headwise.store import save_model, save_tokenizer
from headwise.tasks import KINDS


def export_task(
    model: MultiTaskModel, name: str, folder: str | Path | None = None, *, overwrite: bool = False
) -> Any:
    """The `AutoModelForSequenceClassification` that answers task `name` with the same logits.

    Args:
        model: the multi-task model.
        name: a task of kind "classes" or "number".
        folder: if given, model and tokenizer are saved there.
        overwrite: put them in the place of another model that is there.

    Raises:
        HeadwiseError: the task is not at sequence level, the family's own classifier has another shape, or
            the task sees an encoder of its own (masked heads, adapters), which a plain model cannot express;
            or the folder holds another model.
    """
    from transformers import AutoModelForSequenceClassification

    if name not in model.tasks:
        raise HeadwiseError(
            f"the model has no task {name!r}{did_you_mean(name, model.tasks)}; it has "
            f"{', '.join(model.tasks)}"
        )
    task, decoder, config = model.tasks[name], model.decoders[name], model.encoder.config
    family = FAMILIES.get(config.model_type)
    if not isinstance(decoder, SequenceDecoder):
        raise HeadwiseError(
            f"task {name!r} is of kind {task.kind!r}; only 'classes' and 'number' export as a sequence "
            "classifier"
        )
    if family is None or family.pooling != decoder.pooling:
        poolings = [f"{name} ({exported.pooling})" for name, exported in sorted(FAMILIES.items())]
        raise HeadwiseError(
            f"a {config.model_type} model with {decoder.pooling!r} pooling has no equivalent in plain "
            f"transformers; families that export, with their own pooling: {', '.join(poolings)}"
        )
    if name in model.contexts:
        raise HeadwiseError(
            f"task {name!r} masks heads or switches adapters in its forward pass, which a plain model cannot "
            "do"
        )
    classes, problem = task.classes, "single_label_classification"
    if KINDS[task.kind].numbers:
        classes, problem = (name,), "regression"
    labels = {"id2label": dict(enumerate(classes)), "label2id": {label: i for i, label in enumerate(classes)}}
    plain_config = type(config).from_dict(
        {**config.to_dict(), "problem_type": problem, "architectures": None, **labels}
    )
    plain = AutoModelForSequenceClassification.from_config(plain_config)
    base: str = plain.base_model_prefix
    weights = {f"{base}.{key}": value for key, value in model.encoder.state_dict().items()}
    paths = {"out": family.out}
    if decoder.dense is not None:
        paths["dense"] = family.dense.replace("@", base)
    for layer, path in paths.items():
        layer_weights = decoder.get_submodule(layer).state_dict()
        weights |= {f"{path}.{key}": value for key, value in layer_weights.items()}
    if KINDS[task.kind].numbers:
        _put_into_own_unit(weights, family.out, decoder, name)
    keys = plain.state_dict().keys()
    missing = keys - weights.keys()
    if missing:
        raise HeadwiseError(
            f"the classifier of {config.model_type} has weights that the multi-task model lacks: "
            f"{sorted(missing)}"
        )
    # a classifier of some families has no pooler; the encoder's own is not used by it
    plain.load_state_dict({key: weights[key] for key in keys})
    plain.eval()

    def write(empty_folder: Path) -> dict[str, Any]:
        with saving(empty_folder):
            plain.save_pretrained(empty_folder)
            save_tokenizer(model.tokenizer, empty_folder)
        return {}

    if folder is not None:
        save_model(folder, write, overwrite)
    return plain


def _put_into_own_unit(weights: dict[str, Any], layer: str, decoder: SequenceDecoder, name: str) -> None:
    """A decoder's mean and sd as part of its last layer, since plain transformers has neither."""
    weights[f"{layer}.weight"] = weights[f"{layer}.weight"] * decoder.unit[:, None]
    if f"{layer}.bias" in weights:
        weights[f"{layer}.bias"] = weights[f"{layer}.bias"] * decoder.unit + decoder.mean
    elif float(decoder.mean) != 0:
        raise HeadwiseError(
            f"task {name!r} predicts numbers around {float(decoder.mean):.4g}, and the classifier of this "
            "family has no bias to hold that mean: use the model through headwise, or subtract the mean from "
            "the targets before training"
        )
