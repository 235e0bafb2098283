"""Plain transformers models with the face of a MultiTaskModel: `forward(task_name, batch)` gives losses per example."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise._base.opener import no_head, open_tokenizer, open_weights
from headwise._base.writing import saving
from headwise.errors import HeadwiseError
from headwise.heads._remove.files import cuts, load_folder as load_cut
from headwise.models._attention import without_plans
from headwise.models._decoders.language import OUTPUTS, gold_tokens, only_where
from headwise.models._decoders.output import DecoderOutput, SavedTask, TaskLike
from headwise.models._decoders.sequence import sequence_output
from headwise.models._model import with_padding
from headwise.store import _manifest as manifest
from headwise.tasks._kinds import IGNORED, KINDS

KIND = "task-model"
# what kinds of task each kind of transformers head answers
ANSWERS: dict[str, tuple[str, ...]] = {
    head: tuple(name for name, kind in KINDS.items() if kind.head == head)
    for head in dict.fromkeys(kind.head for kind in KINDS.values() if kind.head)
}
# the transformers class that opens a model with each kind of head
AUTO = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
}


def head_kind(model: Any) -> str:
    """Which of `ANSWERS` a transformers model is, by its class."""
    from transformers.models.auto import modeling_auto as auto

    name = type(model).__name__
    for head in ANSWERS:
        if name in getattr(auto, f"MODEL_FOR_{head.upper().replace('-', '_')}_MAPPING_NAMES").values():
            return head
    raise no_head(name, "head", "it is not a sequence classifier, token classifier, causal or masked language model")


class TaskModel(nn.Module):
    """A transformers model with its own head, answering one task (or several that read the same head).

    Attributes:
        encoder: the whole transformers model: `Heads(model.encoder)` finds its heads.
        decoders: empty: the head is part of the model.
        tasks: by name, the facts of each task.
    """

    def __init__(self, model: Any, tokenizer: Any, tasks: Sequence[TaskLike]) -> None:
        super().__init__()
        self.encoder, self.tokenizer = model, tokenizer
        self.head = head_kind(model.get_base_model() if is_peft(model) else model)
        self.tasks = {task.name: SavedTask.of(task) for task in tasks}
        self.decoders = nn.ModuleDict()
        self.contexts: dict[str, Callable[[], AbstractContextManager[Any]]] = {}
        self.notes: dict[str, Any] = {}
        self._no_cache = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
        self._selects = self.head.endswith("-lm") and model.get_output_embeddings() is not None
        for task in tasks:
            if task.kind not in ANSWERS[self.head]:
                raise HeadwiseError(
                    f"task {task.name!r} is of kind {task.kind!r}; a {self.head} model answers {', '.join(ANSWERS[self.head])}"
                )
            outputs = model.config.num_labels
            wanted = 1 if task.kind == "number" else len(task.classes or ())
            if self.head.endswith("classification") and outputs != wanted:
                raise HeadwiseError(
                    f"task {task.name!r} needs {wanted} outputs, the model's head has {outputs}: set num_labels={wanted}"
                )

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    def save(self, folder: str | Path) -> None:
        """Writes the model as transformers does, so that it opens there too, with a manifest for `headwise.load`."""
        folder = Path(folder)
        removed = {"removed": cut} if (cut := cuts(self.encoder)) else {}
        with saving(folder, self.encoder.state_dict().values()):
            self.encoder.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        tasks = [task.to_json() for task in self.tasks.values()]
        manifest.write(folder, KIND, architecture=type(self.encoder).__name__, tasks=tasks, notes=self.notes, **removed)

    def forward(self, name: str, batch: Any) -> DecoderOutput:
        """One loss and one prediction per example of a batch of task `name`."""
        if name not in self.tasks:
            raise HeadwiseError(f"the model has no task {name!r}; it has {', '.join(self.tasks)}")
        kind = self.tasks[name].kind
        with self.contexts.get(name, nullcontext)(), without_plans(batch.inputs["input_ids"]):
            if self.head.endswith("-lm"):
                logits = self.token_logits(kind, batch)
            else:
                logits = self.encoder(**batch.inputs, **self._no_cache).logits.float()
        if self.head == "sequence-classification":
            return sequence_output(kind, logits, batch.labels)
        return OUTPUTS[kind](logits, batch)

    def token_logits(self, kind: str, batch: Any) -> Any:
        """Logits at the positions where something is predicted, (predicted, vocabulary), where the model can; else at all."""
        if not self._selects or _captured(batch.labels):
            return self.encoder(**batch.inputs, **self._no_cache).logits
        wanted = gold_tokens(kind, batch) != IGNORED
        with only_where(self.encoder, wanted):
            logits = self.encoder(**batch.inputs, **self._no_cache).logits
        if logits.shape[:-1] == (1, int(wanted.sum())):
            return logits[0]
        if logits.shape[:-1] == wanted.shape:  # the projection was not called on token states, so nothing was left out
            return logits
        self._selects = False  # the model does something of its own with the logits
        return self.encoder(**batch.inputs, **self._no_cache).logits


def _captured(tensor: torch.Tensor) -> bool:
    """Whether the pass is being captured or compiled, when no position can be looked at."""
    return torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def load_folder(folder: Path, record: Mapping[str, Any]) -> TaskModel:
    """Opens what `TaskModel.save` wrote, on the CPU and in eval mode."""
    removed = record.get("removed")
    # of a PEFT model: what its adapter was trained on
    model = load_cut(folder, removed) if removed else open_weights(record["architecture"], folder)
    tasks = [SavedTask.from_json(task) for task in record["tasks"]]
    found = TaskModel(model, open_tokenizer(folder), tasks)
    found.notes = dict(record["notes"])
    return found.eval()


def is_peft(model: Any) -> bool:
    """Whether PEFT wraps the model."""
    return any(cls.__name__ == "PeftModel" for cls in type(model).__mro__)


def as_task_model(model: Any, tokenizer: Any, task: TaskLike | Sequence[TaskLike]) -> TaskModel:
    """Gives a plain transformers model the face of a MultiTaskModel, so that scoring, lesions and training read one kind.

    Args:
        model: an `AutoModelForSequenceClassification`, `...ForTokenClassification`, `...ForCausalLM` or `...ForMaskedLM`.
        tokenizer: its tokenizer; it gets a padding token if it has none.
        task: a task the model's head can answer; several may share one language-model head.

    Raises:
        HeadwiseError: the model has no such head, or the task needs another one.
    """
    with_padding(model, tokenizer)
    return TaskModel(model, tokenizer, task if isinstance(task, Sequence) else [task])
