"""`open_model`: whatever a user calls a model (a name, a folder, a live model) becomes a model here, and
nowhere else."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from headwise._base.adapters import find_adapter
from headwise._base.devices import checked_device
from headwise._base.names import file_name, one_spelling
from headwise._base.opener import (
    fill,
    no_head,
    open_config,
    open_tokenizer,
    open_weights,
    own_kind,
    tokenizer_beside,
    trusting,
)
from headwise._base.places import model_place
from headwise.errors import HeadwiseError
from headwise.heads import cuts_of_model, load_removed as load_cut, removed_from
from headwise.models._classes import order_note, output_names
from headwise.models._decoders.output import SavedTask, TaskLike
from headwise.models._finite import check_weights
from headwise.models._model import DECODERS, MultiTaskModel, with_padding
from headwise.models._plain import AUTO, TaskModel, answerable, as_task_model, head_kind, is_peft
from headwise.models._pooling import default_pooling
from headwise.settings import Opening
from headwise.store import load, manifest
from headwise.tasks import KINDS

TRANSFORMERS_FOLDERS = ("head-embedding",)  # saved by headwise in a folder that transformers opens as it is


def open_model(
    model: Any,
    tasks: TaskLike | Iterable[TaskLike] = (),
    need: Literal["answers", "trains", "encoder", "heads"] = "answers",
    *,
    tokenizer: Any = None,
    pooling: str | None = None,
    seed: int | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Whatever a user brings, as a model.

    Args:
        model: a folder or hub id of a transformers model or of a PEFT adapter; a GGUF file, or a folder with
            one, whose weights are dequantised; "demo"; a folder that headwise saved; or a live model:
            transformers' own with or without a head, one that PEFT wraps, a `MultiTaskModel` or a
            `TaskModel`.
        tasks: what it will be asked, or learn. Without any, a model with a head of its own answers what that
            head was made for.
        need: "answers": a model that answers the tasks by name, with trained weights only. "trains": the
            same, with new decoders for tasks it does not know; a folder or hub id of transformers gives its
            encoder, a live model keeps the head it has. "encoder": a `MultiTaskModel` around the encoder; of
            a multi-task model itself, else with no task. "heads": the transformers model as it was saved, to
            look at; it needs no tokenizer.
        tokenizer: default: the one beside the model's weights.
        pooling: of whole texts, "cls", "last" or "mean"; default: the family's own.
        seed: of weights that are new: decoders, where tasks are learned. Default: torch's random state.
        device: "cpu", "cuda", ...; "auto": a GPU if there is one for a model that is read from somewhere, and
            a live one where it is.
        dtype: "float32", "bfloat16", "float16", or "auto" as the checkpoint has it; default: float32, and on
            a GPU "auto" unless it trains. Live models, and those headwise saved, stay as they are.
        trust_remote_code: run the code that a folder or hub id contains; read that code first.

    Returns:
        a `MultiTaskModel` or a `TaskModel`, in evaluation mode if it was read; for "heads" a transformers
        model.

    Raises:
        HeadwiseError: there is no such model, it is not complete, it needs code of its own, it cannot do what
            is asked of it, or its weights hold NaN.
    """
    tasks = list(tasks) if isinstance(tasks, Iterable) else [tasks]
    by_name = isinstance(model, str | Path)
    if device == "auto" and by_name:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device == "auto":
        device = None
    elif device is not None:
        device = checked_device(device)
    with trusting(trust_remote_code), _drawing(need, seed, by_name):
        if by_name:
            folder = model_place(model)
            if _opens_in_transformers(folder):
                if tokenizer is None and need != "heads":
                    tokenizer = open_tokenizer(folder)
                model = _read(folder, tasks, need, _dtype(dtype, need, device))
            else:
                model = _saved(folder, dtype)
        opened = _in_form(model, tasks, need, tokenizer, pooling)
    loaded = by_name and isinstance(model, MultiTaskModel | TaskModel)
    if not loaded:  # loaders look at the weights themselves
        check_weights(opened)
    if device is not None:
        opened = opened.to(device)
    return opened


def open_with_tokenizer(model: Any, settings: Opening, tokenizer: Any = None) -> tuple[Any, Any]:
    """A transformers model to look at, and its tokenizer.

    Args:
        model: as `open_model` has it.
        settings: of an operation: device, dtype and trust_remote_code.
        tokenizer: default: the one beside the model's weights.
    """
    options = {name: getattr(settings, name) for name in ("dtype", "trust_remote_code")}
    live = open_model(model, need="heads", device=settings.device or "auto", **options)
    if tokenizer is not None:
        return live, tokenizer
    if not isinstance(model, str | Path):
        return live, tokenizer_beside(model)
    with trusting(settings.trust_remote_code):
        return live, open_tokenizer(_tokenizer_folder(model))


def _tokenizer_folder(name: str | Path) -> str:
    """Where the tokenizer of a model lies: a multi-task model has it with its encoder."""
    encoder_folder = Path(name) / "encoder"
    if encoder_folder.is_dir() and (Path(name) / manifest.NAME).is_file():
        return str(encoder_folder)
    return model_place(name)


def _opens_in_transformers(folder: str) -> bool:
    """Whether a folder, or a hub id, is opened as transformers opens it, whoever saved it."""
    return (
        not (Path(folder) / manifest.NAME).is_file() or manifest.read(folder)["kind"] in TRANSFORMERS_FOLDERS
    )


def _in_form(model: Any, tasks: list[TaskLike], need: str, tokenizer: Any, pooling: str | None) -> Any:
    """A live model in the form that is needed; one that `torch.compile` wraps is the model inside, since
    twins run as they are written."""
    model = getattr(model, "_orig_mod", model)
    if need == "trains":
        encoder = getattr(model, "encoder", model)
        cuts_of_model(encoder)  # says now, not after the training, if it could not be saved
        check_gradients(encoder)
    if need == "heads":
        return model.encoder if isinstance(model, MultiTaskModel | TaskModel) else model
    if isinstance(model, MultiTaskModel) and need == "encoder":
        return model
    if isinstance(model, MultiTaskModel | TaskModel) and need != "encoder":
        return _with_tasks(model, tasks, need)
    if isinstance(model, TaskModel):
        if tokenizer is None:
            tokenizer = model.tokenizer
        model = model.encoder
    if not (isinstance(model, nn.Module) and hasattr(model, "config")):
        raise HeadwiseError(
            f"{type(model).__name__} is not a model: give a folder, a hub id, a transformers model, or a "
            "model trained by headwise"
        )
    if tokenizer is None:
        tokenizer = tokenizer_beside(model)
    if need == "encoder":
        return _around(_body(model), tokenizer, (), pooling or default_pooling(model.config))
    root: Any = model.get_base_model() if is_peft(model) else model  # type: ignore[operator]
    if root.base_model is not root:  # it has a head of its own
        answering = as_task_model(model, tokenizer, tasks or [_task_of_head(root)])
        _say_order(answering, tasks)
        return answering
    if need == "answers":
        name = str(root.config.name_or_path or "the model")
        raise no_head(name, "head", f"{type(root).__name__} is an encoder without a head")
    return _around(model, tokenizer, tasks, pooling)


def _with_tasks(
    model: MultiTaskModel | TaskModel, tasks: list[TaskLike], need: str
) -> MultiTaskModel | TaskModel:
    """A model that has the face we need, with decoders for tasks that are new to it, where it may learn
    them."""
    missing = [task for task in tasks if task.name not in model.tasks]
    if missing and (need == "answers" or isinstance(model, TaskModel)):
        knows = ", ".join(model.tasks) or "no task"
        raise no_head("the model", f"decoder for task {missing[0].name!r}", f"it knows {knows}")
    if isinstance(model, MultiTaskModel):
        for task in missing:
            model.add_task(task)
    _say_order(model, tasks)
    return model


def _around(
    encoder: Any, tokenizer: Any, tasks: Sequence[TaskLike], pooling: str | None, options: Any = None
) -> MultiTaskModel:
    """A new multi-task model around an encoder of transformers."""
    with_padding(encoder, tokenizer)
    return MultiTaskModel(encoder, tokenizer, tasks, pooling, options)


def check_gradients(model: Any) -> None:
    """Raises a HeadwiseError if torch takes no gradients through the weights of a live model."""
    if isinstance(model, nn.Module) and any(weight.is_inference() for weight in model.parameters()):
        raise HeadwiseError(
            f"{type(model).__name__} was made inside torch.inference_mode(), so that torch takes no "
            "gradients through its weights: make or open it outside"
        )


def load_multi_task_model(folder: Path, record: Mapping[str, Any]) -> MultiTaskModel:
    """Opens what `MultiTaskModel.save` wrote, on the CPU and in eval mode.

    `headwise.training._files` adds what its notes ask for.
    """
    encoder_folder = folder / "encoder"
    tokenizer = open_tokenizer(encoder_folder)
    if record.get("removed"):
        encoder = load_cut(encoder_folder, record["removed"])
    else:
        with _drawing("encoder", None, by_name=True):
            encoder = _read(model_place(encoder_folder), (), "encoder", torch.float32)
    tasks = [SavedTask.from_json(task) for task in record["tasks"]]
    model = _around(_body(encoder), tokenizer, tasks, record["pooling"], record["options"])
    fill(model.decoders, folder / DECODERS)
    model.notes = dict(record["notes"])
    return model.eval()


def load_plain_model(folder: Path, record: Mapping[str, Any]) -> TaskModel:
    """Opens what `TaskModel.save` wrote, on the CPU and in eval mode."""
    removed = record.get("removed")
    # of a PEFT model: what its adapter was trained on
    model = load_cut(folder, removed) if removed else open_weights(record["architecture"], folder)
    tasks = [SavedTask.from_json(task) for task in record["tasks"]]
    answering = TaskModel(model, open_tokenizer(folder), tasks, remembered=True)
    answering.notes = dict(record["notes"])
    return answering.eval()


def _read(name: str, tasks: Sequence[TaskLike], need: str, dtype: Any) -> Any:
    """A model of transformers (or an adapter on one) with the head that is needed."""
    config = open_config(name)
    if need == "heads" or find_adapter(name) is not None:
        kind = own_kind(config)
    elif need == "answers":
        kind = _kind_for(name, config, tasks)
    else:
        kind = _encoder_kind(name, config)
    return open_weights(kind, name, config, dtype=dtype)


def _saved(folder: str, dtype: Any) -> Any:
    """The model in a folder that headwise saved; a trained one keeps its data type, unless float32 is asked
    for."""
    from transformers import PreTrainedModel

    model = load(folder)
    if isinstance(model, Mapping):
        folders = ", ".join(f"{folder}/{name}" for name in model)
        raise HeadwiseError(f"{folder} holds one model per task: give one of {folders}")
    if not isinstance(model, MultiTaskModel | TaskModel | PreTrainedModel):
        raise HeadwiseError(f"{folder} holds a {type(model).__name__}, not a model")
    saved_dtype = next(model.parameters()).dtype
    if dtype in (None, "auto"):
        return model
    dtype = _dtype(dtype, "", None)
    if dtype == saved_dtype:
        return model
    if isinstance(model, PreTrainedModel) or dtype == torch.float32:
        return model.to(dtype)
    raise HeadwiseError(
        f"{folder} is a model that headwise trained; it keeps its data type, "
        f"{str(saved_dtype).removeprefix('torch.')}: leave out dtype; precision='bf16' computes faster"
    )


def _kind_for(name: str, config: Any, tasks: Sequence[TaskLike]) -> str:
    """The transformers class whose head can answer the tasks; without tasks, that with which a checkpoint was
    saved."""
    kinds = sorted({task.kind for task in tasks})
    classes = {AUTO.get(KINDS[kind].head) for kind in kinds}
    if len(classes) > 1 or None in classes:
        together = " together" if len(kinds) > 1 else ""
        raise no_head(name, f"head for tasks of kind {', '.join(kinds)}{together}", "transformers has none")
    return str(classes.pop()) if classes else own_kind(config)


def _encoder_kind(name: str, config: Any) -> str:
    """The transformers class of the encoder (or left-to-right decoder) without a head."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES

    if not config.is_encoder_decoder:
        return "AutoModel"
    if config.model_type not in MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        raise HeadwiseError(
            f"{name} is an encoder-decoder ({config.model_type}) whose encoder transformers cannot load alone"
        )
    return "AutoModelForTextEncoding"


def _body(model: Any) -> Any:
    """The model without its task's head, so that no vocabulary-wide logits are computed.

    PEFT puts adapters into the layers themselves, so the body has them too; prompts it adds to the input are
    only in the whole.
    """
    if is_peft(model):
        root = model.get_base_model()
        prompts = any(settings.is_prompt_learning for settings in model.peft_config.values())
        if prompts or root.base_model is root:
            return model
        model = root
    body = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
    if body is not model and removed_from(model):
        body.headwise_part_of = type(model).__name__
    return body


def _say_order(model: MultiTaskModel | TaskModel, tasks: Iterable[TaskLike]) -> None:
    """Warns of tasks whose classes are matched with outputs by order alone; raises where they do not fit at
    all."""
    for task in tasks:
        learnt = model.tasks[task.name].kind
        if task.kind != learnt:
            raise HeadwiseError(
                f"task {task.name!r} is of kind {task.kind!r}, and the model has learnt it as {learnt!r}: "
                "rename the task"
            )
        if note := order_note(model, task):
            warnings.warn(note, stacklevel=2)


def _task_of_head(model: Any) -> SavedTask:
    """What a plain model answers by itself."""
    head = head_kind(model)
    kinds = answerable(head)
    if head == "sequence-classification" and model.config.num_labels == 1:
        kinds = [kind for kind in kinds if KINDS[kind].numbers]
    kind = kinds[0]
    classifies = head.endswith("-classification") and not KINDS[kind].numbers
    classes: tuple[str, ...] = ()
    if classifies:
        classes = output_names(model.config)
    return SavedTask(file_name(Path(model.config.name_or_path or "model").name), kind, classes, "accuracy")


def _dtype(dtype: Any, need: str, device: Any) -> Any:
    """The data type to open weights in, as torch or `from_pretrained` takes it."""
    if dtype is None:
        return "auto" if need != "trains" and device is not None and str(device) != "cpu" else torch.float32
    if dtype == "auto" or not isinstance(dtype, str):
        return dtype
    name = one_spelling(dtype, ("float32", "bfloat16", "float16"))
    if not isinstance(getattr(torch, name, None), torch.dtype):
        raise HeadwiseError(f"dtype is {name!r}; choose float32, bfloat16, float16, or auto")
    return getattr(torch, name)


@contextmanager
def _drawing(need: str, seed: int | None, by_name: bool) -> Iterator[None]:
    """New decoders follow the seed alone, a pooler that a checkpoint lacks is the same each time where
    nothing is trained; of a live model nothing else is new, so that torch's random state, which belongs to
    all threads, stays untouched."""
    if need == "trains":
        if seed is not None:
            torch.manual_seed(seed)
        yield
        return
    if not by_name:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed or 0)
        yield
