"""The one source where configurations, weights and tokenizers are read from a folder or the hub.

Nothing here runs code that a model contains, unless the user allows it; nothing is unpickled; and no weight
is filled with random numbers silently.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from headwise._base.adapters import INSIDE, find_adapter, outputs
from headwise._base.names import listed
from headwise._base.places import in_gguf, model_place, not_opened
from headwise._base.progress import reading_weights
from headwise.errors import HeadwiseError

TRUST = "HEADWISE_TRUST_REMOTE_CODE"  # set to 1 by --trust-remote-code, so that worker processes inherit it
# what encoders carry on top for whole texts; many checkpoints lack it, and no token state depends on it
POOLER = "pooler"
_trusted: ContextVar[bool] = ContextVar("headwise_trusted", default=False)


@contextmanager
def trusting(trust_remote_code: bool) -> Iterator[None]:
    """Inside the block, models may run code of their own if `trust_remote_code`, or if a block around this
    one says so."""
    token = _trusted.set(_trusted.get() or bool(trust_remote_code))
    try:
        yield
    finally:
        _trusted.reset(token)


def trusted() -> bool:
    """Whether the user has written that code in a model folder may run."""
    return _trusted.get() or os.environ.get(TRUST) == "1"


def open_config(name: str | Path) -> Any:
    """The configuration of a model, by folder, hub id, or "demo".

    Raises:
        HeadwiseError: there is none, or it needs code of its own.
    """
    from transformers import AutoConfig

    source = model_place(name)
    if (adapter := find_adapter(source)) is not None:
        return open_config(adapter.base)
    folder, options = in_gguf(source)
    config = _read(
        source, "model", lambda: AutoConfig.from_pretrained(folder, trust_remote_code=trusted(), **options)
    )
    if options:  # GGUF files are of language models, and name no class
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

        architecture = NAMES.get(config.model_type)
        config.architectures = architecture and [architecture]
    return config


def open_tokenizer(name: str | Path) -> Any:
    """The tokenizer of a folder or hub id.

    Raises:
        HeadwiseError: there is none, it has no words, or it needs code of its own.
    """
    from transformers import AutoTokenizer

    source = model_place(name)
    folder, options = in_gguf(source)
    remedy = (
        f"save the tokenizer into {source} (tokenizer.save_pretrained({source!r})), "
        "or pass tokenizer= in Python"
    )
    if options:  # the file holds its own, and nothing can be saved into it
        remedy = (
            "convert the model to GGUF again with its tokenizer, or pass tokenizer= in Python: that of the "
            "model it was made from"
        )
    try:
        tokenizer = _read(
            source,
            "tokenizer",
            lambda: AutoTokenizer.from_pretrained(folder, trust_remote_code=trusted(), **options),
        )
    except ForeignCode:
        raise
    except HeadwiseError as error:
        adapter = find_adapter(source)
        if adapter is not None:
            return open_tokenizer(adapter.base)
        raise HeadwiseError(
            f"no tokenizer could be opened with the model's weights at {source!r}: {remedy}"
        ) from error
    words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    if len(words) < 2:  # transformers makes an empty one where files are missing
        raise HeadwiseError(
            f"{source!r} has no tokenizer: without its vocabulary every word would be read as "
            f"{tokenizer.unk_token or 'nothing'}; {remedy}"
        )
    return tokenizer


def tokenizer_beside(model: Any) -> Any:
    """The tokenizer a live model came with: its own, or the one in the source its weights were read from."""
    if getattr(model, "tokenizer", None) is not None:
        return model.tokenizer
    source = model.config.name_or_path
    if not source:
        raise HeadwiseError(
            f"{type(model).__name__} was made from a configuration, so it has no tokenizer: pass tokenizer="
        )
    return open_tokenizer(source)


def open_weights(
    kind: str | type, name: str | Path, config: Any = None, *, brought: Collection[str] = (), **loading: Any
) -> Any:
    """A model with all its weights, in float32 (by default) and evaluation mode.

    Args:
        kind: the transformers class: "AutoModel", "BertForMaskedLM", ..., or one derived from it. A bare
            encoder may lack its pooler.
            Of an adapter that was saved alone, the model it was trained on is opened instead, as the class it
            was trained on.
        name: a folder or hub id; or a GGUF file, whose weights transformers dequantises.
        config: if it was opened already.
        brought: names of weights that come from elsewhere and may be missing.
        loading: passed on to `from_pretrained`.

    Raises:
        HeadwiseError: there is no such model; its weights are pickled; weights are missing or have another
            shape than its configuration says; or it needs code of its own.
    """
    import torch
    import transformers

    source = model_place(name)
    refuse_pickles(source)
    adapter = find_adapter(source)
    if adapter is not None:
        tensors = read_tensors(adapter.weights)
        config = open_config(adapter.base)
        config.num_labels = outputs(tensors) or config.num_labels
        inner = {name.removeprefix(INSIDE) for name in tensors}
        base = open_weights(adapter.kind or own_kind(config), adapter.base, config, brought=inner, **loading)
        return adapter.put_on(base, tensors)
    folder, packed = in_gguf(source)
    if packed and hasattr(transformers, "GgufConfig"):  # older versions of transformers always dequantise
        loading = {"quantization_config": transformers.GgufConfig(dequantize=True), **loading}
    options: dict[str, Any] = {"dtype": torch.float32, **loading, **packed}
    if config is not None:
        options["config"] = config
    model_class: Any = getattr(transformers, kind) if isinstance(kind, str) else kind
    task = model_class.__name__.removeprefix("AutoModelFor")
    with reading_weights():
        model, info = _read(
            source,
            "model" if task == model_class.__name__ else f"{task} model",
            lambda: model_class.from_pretrained(
                folder,
                trust_remote_code=trusted(),
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are named below
                **options,
            ),
        )
        _check_complete(source, model, info, brought)
    if packed:
        model.config.name_or_path = source  # not only the folder
        if getattr(model, "hf_quantizer", None) is not None:
            # its weights are plain now, and it saves as any model
            model.hf_quantizer.remove_quantization_config(model)
    return model


def identity(config: Any) -> tuple[str, str | None]:
    """Id and revision of the model that a configuration belongs to; of a folder its name, and no revision."""
    text = str(getattr(config, "_name_or_path", "") or getattr(config, "model_type", "") or "a model")
    parts = Path(text).parts
    if "snapshots" in parts[1:-1]:
        index = parts.index("snapshots")
        if parts[index - 1].startswith("models--"):  # in the hub's cache
            return parts[index - 1].removeprefix("models--").replace("--", "/"), parts[index + 1]
    if Path(text).is_dir() or Path(text).is_absolute():
        path = Path(text)
        return (
            path.parent.name if path.name == "encoder" else path.name,
            None,
        )  # `encoder` of a multi-task model
    return text, getattr(config, "_commit_hash", None)


def own_kind(config: Any) -> str:
    """The class a checkpoint was saved with, for `open_weights`; "AutoModel" if its configuration does not
    say."""
    import transformers

    for name in config.architectures or ():
        if hasattr(transformers, name):
            return str(name)
        for auto, reference in getattr(config, "auto_map", {}).items():  # a class of its own code
            if auto.startswith("AutoModel") and str(reference).endswith(f".{name}"):
                return str(auto)
    return "AutoModel"


def fill(module: Any, file: Path) -> None:
    """Puts the tensors of a safetensors file into a module, all of them and no others.

    Args:
        module: what they belong to.
        file: the file.

    Raises:
        HeadwiseError: the file cannot be read, or its tensors are not the module's; names them.
    """
    tensors = read_tensors(file)
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    missing, foreign = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
    if missing or foreign:
        mistake = f"holds {listed(foreign, 3)}, which the model does not have"
        if missing:
            mistake = f"lacks {listed(missing, 3)}"
        raise HeadwiseError(
            f"{file} {mistake}: it does not belong to this model, or is truncated; save the model again"
        )
    wrong = []
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            wrong.append((name, tensors[name].shape, shape))
    if wrong:
        raise HeadwiseError(f"{file}: {_shapes(wrong)}; it does not belong to this model")
    module.load_state_dict(tensors)


def read_tensors(file: Path) -> dict[str, Any]:
    """The tensors of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(file))
    except (OSError, SafetensorError) as error:
        raise HeadwiseError(f"{file} could not be read as safetensors: {error}") from error


class ForeignCode(HeadwiseError):
    """A model needs code of its own, and its user has not said that it may run."""


def refuse_pickles(source: str) -> None:
    """Raises a HeadwiseError if a folder's only weights are pickled ones, which can run code when they are
    read."""
    folder = Path(source)
    if not folder.is_dir():
        return
    for pickles, tensors in (
        ("pytorch_model*.bin", "model*.safetensors*"),
        ("adapter_model*.bin", "adapter_model*.safetensors"),
    ):
        pickled = sorted(file.name for file in folder.glob(pickles))
        if pickled and not any(folder.glob(tensors)):
            raise HeadwiseError(_pickled(source, pickled[0]))


def _pickled(source: str, file: str) -> str:
    return (
        f"{source} has its weights as {file}, a pickle, which can run any code when it is read; headwise "
        "reads only model.safetensors. If you trust its source, convert it once: "
        f"AutoModel.from_pretrained({source!r}).save_pretrained(NEW_FOLDER), with the class its config.json "
        "names instead of AutoModel if it has a head"
    )


def _read(source: str, kind: str, reading: Callable[[], Any]) -> Any:
    """Runs a `from_pretrained`; whatever a file can make it raise is one error."""
    try:
        return reading()
    except HeadwiseError:
        raise
    except Exception as error:  # tokenizers raises bare Exceptions, and broken files anything
        text = str(error)
        if "trust_remote_code" in text:
            raise ForeignCode(
                f"{source} needs its own code{_scripts(source)}, which is not run by default: read it and, "
                "if you trust it, pass --trust-remote-code (in Python: trust_remote_code=True)"
            ) from error
        if (
            "does not appear to have a file named model.safetensors" in text
            or "cannot be loaded with `safetensors`" in text
        ):
            raise HeadwiseError(_pickled(source, "pytorch_model.bin")) from error
        raise not_opened(source, error, kind) from error


def _scripts(source: str) -> str:
    names = sorted(file.name for file in Path(source).glob("*.py"))
    return f" ({listed(names, 3)})" if names else ""


def no_head(model: str, head: str, why: str) -> HeadwiseError:
    """The error for a model that was to answer and has nothing trained to answer with."""
    return HeadwiseError(
        f"{model} has no trained {head}: {why}. Train it first (headwise train --model MODEL --tasks ..., or "
        "headwise.train in Python), or give a model that was fine-tuned for the task"
    )


def _check_complete(source: str, model: Any, info: Mapping[str, Any], brought: Collection[str]) -> None:
    """Raises where transformers has filled weights with random numbers, a bare encoder's pooler aside."""
    prefix = ""
    if model.base_model is not model:
        prefix = f"{model.base_model_prefix}."
    wrong = sorted(tuple(entry) for entry in info["mismatched_keys"] if entry[0] not in brought)
    if wrong:
        raise HeadwiseError(
            f"{source}: {_shapes(wrong)} by its config.json. Weights and configuration belong to different "
            "models: download or save both again"
        )
    missing = sorted(set(info["missing_keys"]) - set(brought))
    inner = [
        name for name in missing if name.startswith(prefix) and not name.startswith(f"{prefix}{POOLER}.")
    ]
    if inner:
        raise HeadwiseError(
            f"{source} lacks {listed(inner, 3)}, which would be filled with random numbers: its weights are "
            "incomplete; save or download them again"
        )
    if missing and prefix:
        raise no_head(source, f"{type(model).__name__} head", f"{listed(missing, 3)} would be random numbers")


def _shapes(wrong: list[Any]) -> str:
    """What is wrong with shapes: names, shapes in the file, and shapes of the model."""
    name, shape, expected = wrong[0]
    further = f" (and {len(wrong) - 1} more)" * (len(wrong) > 1)
    return f"{name}{further} has shape {tuple(shape)} and should have {tuple(expected)}"


def fresh(model: Any, seed: int) -> Any:
    """The same architecture with new random weights, drawn by the seed alone."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        copy = type(model)(model.config)
    return copy.to(next(model.parameters()).device).train(model.training)
