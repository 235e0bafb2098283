"""The content of a live model and of its tokenizer: what decides a result that is computed with them. The one
key of live models."""

from collections.abc import Set
from functools import partial
from typing import Any

from torch import Tensor

from headwise._base.opener import tokenizer_beside
from headwise.errors import HeadwiseError
from headwise.store._code import digest, name_of
from headwise.store._contents import Contents, is_configuration
from headwise.store._fingerprints import fingerprint
from headwise.store._structure import bare, refuse_code, structure
from headwise.store._tokenizers import tokenizer_state

GENERATION = {
    "transformers_version",
    "_from_model_config",
    "_commit_hash",
}  # of its settings: say nothing of what is generated


def live_parts(model: Any, tokenizer: Any = None, training: bool = False) -> dict[str, Any]:
    """The content of a live model with its tokenizer, part by part; see `structure` for those without
    weights.

    Args:
        model: of transformers, PEFT or headwise.
        tokenizer: default: its own.
        training: it will be trained, so that frozen parameters count.

    Raises:
        HeadwiseError: it has no tokenizer, or code of the user's hangs on it.
    """
    if tokenizer is None:
        tokenizer = tokenizer_beside(model)
    hashes = model_content(model, tokenizer)
    if training:
        frozen = [bare(n) for n, p in model.named_parameters() if not p.requires_grad]
        hashes["frozen"] = digest(sorted(frozen))
    return {**hashes, "tokenizer": tokenizer_content(tokenizer)}


def model_content(model: Any, tokenizer: Any = None) -> dict[str, Any]:
    """The content of a module: of its weights one hash; of its configuration, classes, attributes, buffers
        and hooks one by name.

    Args:
        model: any module of torch.
        tokenizer: whose padding token a configuration without one will take over.

    Raises:
        HeadwiseError: weights cannot be read, or code of the user's hangs on it.
    """
    ours = hasattr(model, "contexts") and hasattr(model, "decoders")  # a model with tasks
    if ours:
        refuse_code(model, model.contexts)
        inner = model.encoder
    else:
        refuse_code(model, {})
        inner = model
    config, generation = getattr(inner, "config", None), getattr(inner, "generation_config", None)
    settled = _settled(config, tokenizer)
    contents = Contents(settled=settled)
    values: dict[str, Any] = {}
    if is_configuration(config):
        values |= contents.configuration(config)
    if generation is not None:
        values["generation"] = [
            [k, contents.read(v)] for k, v in sorted(generation.to_dict().items()) if k not in GENERATION
        ]
    if ours:
        values |= _answers(model, contents)
    by_task = set[str]()
    if ours and "lora" in model.notes:
        by_task.add("_active_adapter")  # each task's passes set their own
    return {
        "weights": fingerprint(_weights(model)),
        "configuration": {name: digest(value) for name, value in sorted(values.items())},
        **structure(model, config, settled, frozenset(by_task), root=not ours),
    }


def tokenizer_content(tokenizer: Any) -> str:
    """Hash of how a tokenizer reads texts, whatever was last asked of its padding and truncation."""
    named = {**tokenizer.special_tokens_map, "pad_token": _padding(tokenizer)}
    sides = [
        getattr(tokenizer, name, None) for name in ("model_max_length", "padding_side", "truncation_side")
    ]
    return fingerprint(
        [tokenizer_state(tokenizer), {name: str(token) for name, token in named.items()}, sides]
    )


def _answers(model: Any, contents: Contents) -> dict[str, Any]:
    """What a model of headwise knows of its tasks, and what it does in their passes."""
    values = {name: contents.read(getattr(model, name, None)) for name in ("pooling", "options", "notes")}
    tasks = {name: task.to_json() for name, task in model.tasks.items()}
    ways = {task: _arguments(context) for task, context in model.contexts.items()}
    return {**values, "tasks": contents.read(tasks), "contexts": contents.read(ways)}


def _arguments(context: Any) -> list[Any]:
    """What a context of headwise's own does: its name, and gates and heads that it was given."""
    args = [*context.args, *context.keywords.values()] if isinstance(context, partial) else []
    plain_arguments = [arg for arg in args if isinstance(arg, Tensor | Set | str | int | float)]
    return [name_of(context), *plain_arguments]


def _settled(config: Any, tokenizer: Any) -> dict[int, dict[str, Any]]:
    """The padding token that a configuration without one is given, and a tokenizer without one, once they are
    used together."""
    if not is_configuration(config):
        return {}
    text = config.get_text_config()
    if tokenizer is None or getattr(text, "pad_token_id", None) is not None:
        return {}
    token = _padding(tokenizer)
    return {id(text): {"pad_token_id": None if token is None else tokenizer.convert_tokens_to_ids(token)}}


def _padding(tokenizer: Any) -> Any:
    return tokenizer.pad_token or tokenizer.eos_token or tokenizer.unk_token


def _weights(model: Any) -> dict[str, Any]:
    """All weights by name; those that accelerate has laid elsewhere from there.

    Raises:
        HeadwiseError: some have no values.
    """
    weights = model.state_dict()
    if any(tensor.device.type == "meta" for tensor in weights.values() if isinstance(tensor, Tensor)):
        from accelerate.utils.modeling import get_state_dict_offloaded_model

        weights |= get_state_dict_offloaded_model(model)
    empty = [
        name
        for name, tensor in weights.items()
        if isinstance(tensor, Tensor) and tensor.device.type == "meta"
    ]
    if empty:
        raise HeadwiseError(
            f"{empty[0]} of this {type(model).__name__} has no values (it is on the device meta): load its "
            "weights first"
        )
    return {bare(name): tensor for name, tensor in weights.items()}
