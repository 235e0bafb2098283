"""An encoder with one decoder per task."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise import models as decoders
from headwise._base.adapters import check_savable
from headwise._base.writing import save_tensors, saving
from headwise.errors import HeadwiseError
from headwise.heads import cuts_of_model
from headwise.models._attention import without_plans
from headwise.models._classes import answer_by_name
from headwise.models._decoders.output import DecoderOutput, SavedTask, TaskLike
from headwise.models._decoders.own import decoder_name
from headwise.models._decoders.sequence import SequenceDecoder
from headwise.models._families import FAMILIES
from headwise.models._pooling import default_pooling
from headwise.models._soft_prompts import token_states
from headwise.store import save_model, save_tokenizer

KIND = "multi-task"
DECODERS, ADAPTERS = "decoders.safetensors", "adapters.safetensors"


class MultiTaskModel(nn.Module):
    """One shared encoder, one decoder per task; a forward pass answers one task.

    Args:
        encoder: a transformers model whose output has `last_hidden_state` (what `AutoModel` gives).
        tokenizer: its tokenizer.
        tasks: the tasks, each with name, kind, classes and metric.
        pooling: how sequence-level tasks pool the token states; default: the family's own.
        options: per task name, settings of its decoder.

    Attributes:
        tasks: by name, the facts of each task; its classes are in the order of its decoder's outputs.
        by_order: empty: a decoder's outputs always have names.
        contexts: by task name, a function that gives a context entered around that task's forward passes.
            Methods whose tasks see different encoders (masked heads, adapters) put theirs here, so that the
            model is whole without them.
        adapters: modules such a method adds beside the encoder, by task name.
        notes: JSON values a saved model keeps, from which those contexts are made again.
        carry: puts what a method added for every task into a copy of the encoder, for a new task; None:
            nothing was added.
        save_encoder: writes the encoder's own weights into a folder.
    """

    def __init__(
        self,
        encoder: Any,
        tokenizer: Any,
        tasks: Iterable[TaskLike],
        pooling: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.pooling = pooling or default_pooling(encoder.config)
        self.tasks: dict[str, SavedTask] = {}
        self.by_order: dict[str, str] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self.decoders = nn.ModuleDict()
        self.adapters = nn.ModuleDict()
        self.contexts: dict[str, Callable[[], AbstractContextManager[Any]]] = {}
        self.notes: dict[str, Any] = {}
        if not hasattr(encoder, "save_pretrained"):
            raise HeadwiseError(
                f"{type(encoder).__name__} is a part of a model that transformers cannot save by itself, so "
                "it cannot be trained with task decoders: choose another model"
            )
        self.save_encoder: Callable[[Path], None] = encoder.save_pretrained
        self.carry: Callable[[Any], None] | None = None
        self._no_cache = {"use_cache": False} if "use_cache" in signature(encoder.forward).parameters else {}
        for task in tasks:
            self.add_task(task, **dict((options or {}).get(task.name, {})))

    @property
    def dim(self) -> int:
        """Width of the token states."""
        return int(self.encoder.config.get_text_config().hidden_size)

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    def add_task(self, task: TaskLike, **options: Any) -> None:
        """Gives the model a fresh decoder for `task` (few-shot transfer adds one to a trained model)."""
        if task.name in self.tasks:
            raise HeadwiseError(f"the model already has a task {task.name!r}: give the new one another name")
        if "." in task.name:
            raise HeadwiseError(
                f"task name {task.name!r} has a '.', which names of modules cannot have: rename the task"
            )
        if hasattr(self.decoders, task.name):
            raise HeadwiseError(
                f"task name {task.name!r} is also that of a function of torch's modules: rename the task"
            )
        decoder = self.new_decoder(task, **options)
        named = {"decoder": decoder_name(options["decoder"])} if "decoder" in options else {}
        self.tasks[task.name], self.options[task.name] = SavedTask.from_task(task), {**options, **named}
        self.decoders[task.name] = decoder

    def new_decoder(self, task: TaskLike, **options: Any) -> nn.Module:
        """A fresh decoder for `task` that fits this encoder, on its device; the model does not keep it."""
        decoder = decoders.build(task, self.dim, config=self.encoder.config, pooling=self.pooling, **options)
        if isinstance(decoder, SequenceDecoder):
            _start_from_pooler(decoder, self.encoder)
        return decoder.to(self.device)

    def new_encoder(self) -> Any:
        """A copy of the encoder for a task the model was not trained on, all of it requiring gradients, in
        evaluation mode.

        Adapters come along: the new task starts from the mean of what those of the trained tasks add. Head
        masks are a trained task's own, and stay behind.

        Raises:
            HeadwiseError: a method added adapters that cannot be carried over.
        """
        if len(self.adapters) and self.carry is None:
            raise HeadwiseError(f"the adapters of {', '.join(self.adapters)} cannot be carried to a new task")
        copied = deepcopy(self.encoder)
        if self.carry is not None:
            self.carry(copied)
        return copied.requires_grad_(True).eval()

    def standardise(self, name: str, targets: Any) -> None:
        """Tells the decoder of a number task the training targets, whose mean and sd it learns under; others
        need not know.

        Args:
            name: the task.
            targets: its training labels.
        """
        decoder = self.decoders[name]
        if isinstance(decoder, SequenceDecoder):
            decoder.standardise(targets)

    def states(self, batch: Any) -> Tensor:
        """Token states of the encoder, (batch, tokens, dim); those of virtual tokens are left out."""
        return token_states(self.encoder, batch.inputs, **self._no_cache)

    def forward(self, name: str, batch: Any) -> DecoderOutput:
        """One loss and one prediction per example of a batch of task `name`."""
        if name not in self.tasks:
            raise HeadwiseError(f"the model has no task {name!r}; it has {', '.join(self.tasks) or 'none'}")
        with self.contexts.get(name, nullcontext)(), without_plans(batch.inputs["input_ids"]):
            states = self.states(batch)
            return answer_by_name(
                self.tasks[name].classes, batch, name, lambda numbered: self.decoders[name](states, numbered)
            )

    @classmethod
    def from_pretrained(
        cls, name: str | Path, tasks: Iterable[TaskLike], *, pooling: str | None = None, **opening: Any
    ) -> "MultiTaskModel":
        """A new multi-task model on the encoder that `name` (a folder or a hub id) holds; `opening`: options
        of `open_model`."""
        opened = decoders.open_model(name, need="encoder", pooling=pooling, **opening)
        return cls(opened.encoder, opened.tokenizer, tasks, opened.pooling)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Writes encoder, tokenizer, decoders and adapters as safetensors, with a manifest;
        `headwise.load(folder)` opens it.

        Args:
            folder: where; it appears whole or not at all.
            overwrite: put this model in the place of another one that is there.

        Raises:
            HeadwiseError: another model is there.
        """
        save_model(folder, self.write, overwrite)

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes what `save` does into an empty folder, without the manifest, whose fields it returns."""
        if self.save_encoder == self.encoder.save_pretrained:  # a method may have one of its own
            check_savable(self.encoder)
        removed = {"removed": cut} if (cut := cuts_of_model(self.encoder)) else {}
        with saving(folder):
            self.save_encoder(folder / "encoder")
            save_tokenizer(self.tokenizer, folder / "encoder")
        for modules, file in ((self.decoders, DECODERS), (self.adapters, ADAPTERS)):
            tensors = {name: tensor.contiguous().cpu() for name, tensor in modules.state_dict().items()}
            save_tensors(tensors, folder / file)
        tasks = [task.to_json() for task in self.tasks.values()]
        return {
            "kind": KIND,
            "tasks": tasks,
            "pooling": self.pooling,
            "options": self.options,
            "notes": self.notes,
            **removed,
        }


def with_padding(model: Any, tokenizer: Any) -> None:
    """Gives a tokenizer without a padding token (GPT-2, Llama) its end token for it; masked positions are
    never read."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if model.config.get_text_config().pad_token_id is None:
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id


def _start_from_pooler(decoder: SequenceDecoder, encoder: Any) -> None:
    """BERT's pooler is pre-trained: a task's dense layer starts from it. The pooler itself is not used and
    not trained."""
    family = FAMILIES.get(encoder.config.model_type)
    if (
        family is None
        or not family.dense.startswith("@")
        or decoder.dense is None
        or decoder.pooling != family.pooling
    ):
        return
    body = encoder.get_base_model() if hasattr(encoder, "get_base_model") else encoder
    pooler: Any = body.get_submodule(family.dense.removeprefix("@."))
    dense = pooler
    if hasattr(pooler, "get_base_layer"):  # PEFT's all-linear targets poolers too
        merged = deepcopy(pooler)
        if not pooler.disable_adapters:
            merged.merge()
        dense = merged.get_base_layer()
    decoder.dense.load_state_dict({key: value.clone() for key, value in dense.state_dict().items()})
    pooler.requires_grad_(False)
