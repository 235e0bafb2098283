"""Plain transformers models with the face of a MultiTaskModel: `forward(task_name, batch)` gives losses per
example."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise._base.lazy import resolve
from headwise._base.opener import no_head
from headwise._base.writing import saving
from headwise.errors import HeadwiseError
from headwise.heads import cuts_of_model, virtual_tokens
from headwise.models._attention import without_plans
from headwise.models._classes import answer_by_name, numbering, output_names
from headwise.models._decoders.language import gold_tokens, projecting_only
from headwise.models._decoders.output import DecoderOutput, SavedTask, TaskLike
from headwise.models._model import with_padding
from headwise.models._soft_prompts import classified_at_the_end, text_columns
from headwise.store import save_model, save_tokenizer
from headwise.tasks import IGNORED, KINDS

KIND = "task-model"
# the transformers class that opens a model with each kind of head
AUTO = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
}


def head_kind(model: Any) -> str:
    """Which of `AUTO` a transformers model is, by its class."""
    from transformers.models.auto import modeling_auto as auto

    name = type(model).__name__
    for head in AUTO:
        if name in getattr(auto, f"MODEL_FOR_{head.upper().replace('-', '_')}_MAPPING_NAMES").values():
            return head
    raise no_head(
        name, "head", "it is not a sequence classifier, token classifier, causal or masked language model"
    )


def answerable(head: str) -> list[str]:
    """The kinds of task that a kind of transformers head answers."""
    return [name for name, kind in KINDS.items() if kind.head == head]


class TaskModel(nn.Module):
    """A transformers model with its own head, answering one task (or several that read the same head).

    Attributes:
        encoder: the whole transformers model: `Heads(model.encoder)` finds its heads.
        decoders: empty: the head is part of the model.
        tasks: by name, the facts of each task; its classes are those of the model's outputs, in their order.
        by_order: by name, what is said of a task whose classes could not be matched by name.

    Args:
        model, tokenizer: of transformers.
        tasks: what it is asked.
        remembered: the tasks are what a saved model remembers, so that their classes are in the order of its
            outputs.
    """

    def __init__(
        self, model: Any, tokenizer: Any, tasks: Sequence[TaskLike], remembered: bool = False
    ) -> None:
        super().__init__()
        self.encoder, self.tokenizer = model, tokenizer
        self.head = head_kind(model.get_base_model() if is_peft(model) else model)
        self.tasks: dict[str, SavedTask] = {}
        self.by_order: dict[str, str] = {}
        self.decoders = nn.ModuleDict()
        self.contexts: dict[str, Callable[[], AbstractContextManager[Any]]] = {}
        self.notes: dict[str, Any] = {}
        self._no_cache = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
        self._selects = self.head.endswith("-lm") and model.get_output_embeddings() is not None
        for task in tasks:
            if task.kind not in answerable(self.head):
                raise HeadwiseError(
                    f"task {task.name!r} is of kind {task.kind!r}; a {self.head} model answers "
                    f"{', '.join(answerable(self.head))}"
                )
            self.tasks[task.name] = self._answered(SavedTask.from_task(task), remembered)

    def _answered(self, task: SavedTask, remembered: bool) -> SavedTask:
        """A task with its classes as the model's head numbers them."""
        if not self.head.endswith("classification"):
            return task
        names = output_names(self.encoder.config)
        if KINDS[task.kind].numbers:
            if len(names) != 1:
                raise HeadwiseError(
                    f"task {task.name!r} needs 1 output, the model's head has {len(names)}: set num_labels=1"
                )
            return task
        if remembered and len(task.classes) == len(names):
            return task
        matched = numbering(names, task.classes, task.name)
        if not matched.note:
            return replace(task, classes=names)
        self.by_order[task.name] = matched.note
        read = dict(zip(matched.outputs, task.classes, strict=True))
        return replace(task, classes=tuple(read.get(output, name) for output, name in enumerate(names)))

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Writes the model as transformers does, so that it opens there too, with a manifest for
        `headwise.load`.

        Args:
            folder: where; it appears whole or not at all.
            overwrite: put this model in the place of another one that is there.

        Raises:
            HeadwiseError: another model is there.
        """
        save_model(folder, self.write, overwrite)

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes what `save` does into an empty folder, without the manifest, whose fields it returns."""
        removed = {"removed": cut} if (cut := cuts_of_model(self.encoder)) else {}
        with saving(folder):
            self.encoder.save_pretrained(folder)
            save_tokenizer(self.tokenizer, folder)
        tasks = [task.to_json() for task in self.tasks.values()]
        architecture = type(self.encoder).__name__
        return {"kind": KIND, "architecture": architecture, "tasks": tasks, "notes": self.notes, **removed}

    def forward(self, name: str, batch: Any) -> DecoderOutput:
        """One loss and one prediction per example of a batch of task `name`."""
        if name not in self.tasks:
            raise HeadwiseError(f"the model has no task {name!r}; it has {', '.join(self.tasks)}")
        kind, classes = self.tasks[name].kind, self.tasks[name].classes
        with self.contexts.get(name, nullcontext)(), without_plans(batch.inputs["input_ids"]):
            if self.head.endswith("-lm"):
                logits = self.token_logits(kind, batch)
            else:
                logits = self.logits(batch).float()
        if classes and logits.shape[-1] != len(classes):
            raise HeadwiseError(
                f"the model gives {logits.shape[-1]} outputs, and its configuration names {len(classes)}: "
                "set model.config.id2label"
            )
        output = resolve(KINDS[kind].output)
        return answer_by_name(classes, batch, name, lambda numbered: output(logits, numbered))

    def logits(self, batch: Any) -> Any:
        """What the model's head gives: (batch, outputs), or (rows, tokens, outputs) at the tokens of the
        texts."""
        if self.head != "sequence-classification":
            return text_columns(self.encoder, self.encoder(**batch.inputs, **self._no_cache).logits)
        with classified_at_the_end(self.encoder, batch.inputs):
            return self.encoder(**batch.inputs, **self._no_cache).logits

    def token_logits(self, kind: str, batch: Any) -> Any:
        """Logits at the positions where something is predicted, (predicted, vocabulary), where the model can;
        else at all."""
        if not self._selects or _captured(batch.labels) or virtual_tokens(self.encoder):
            return self.logits(batch)
        predicted = gold_tokens(kind, batch) != IGNORED
        with projecting_only(self.encoder, predicted):
            logits = self.encoder(**batch.inputs, **self._no_cache).logits
        if logits.shape[:-1] == (1, int(predicted.sum())):
            return logits[0]
        # the projection was not called on token states, so nothing was left out
        if logits.shape[:-1] == predicted.shape:
            return logits
        self._selects = False  # the model does something of its own with the logits
        return self.encoder(**batch.inputs, **self._no_cache).logits


def _captured(tensor: torch.Tensor) -> bool:
    """Whether the pass is being captured or compiled, when no position can be looked at."""
    return torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def is_peft(model: Any) -> bool:
    """Whether PEFT wraps the model."""
    return any(cls.__name__ == "PeftModel" for cls in type(model).__mro__)


def as_task_model(model: Any, tokenizer: Any, task: TaskLike | Sequence[TaskLike]) -> TaskModel:
    """Gives a plain transformers model the face of a MultiTaskModel, so that scoring, lesions and training
    read one kind.

    Args:
        model: an `AutoModelForSequenceClassification`, `...ForTokenClassification`, `...ForCausalLM` or
            `...ForMaskedLM`.
        tokenizer: its tokenizer; it gets a padding token if it has none.
        task: a task the model's head can answer; several may share one language-model head.

    Raises:
        HeadwiseError: the model has no such head, or the task needs another one.
    """
    with_padding(model, tokenizer)
    return TaskModel(model, tokenizer, task if isinstance(task, Sequence) else [task])
