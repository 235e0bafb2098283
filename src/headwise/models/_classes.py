"""Classes of a task and outputs of a model: matched by name wherever the two meet, so that no output is read
as another class."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise._base.parsing import read_json
from headwise._base.places import model_folder
from headwise.errors import HeadwiseError
from headwise.models._decoders.output import DecoderOutput
from headwise.store import manifest
from headwise.tasks import KINDS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LISTED = 40  # names that a message shows
NUMBER = re.compile(r"\d+")
PLACEHOLDER = re.compile(r"label \d+")  # what transformers calls outputs without names, as `_spelling` has it
REMEDY = "name the task's classes as the model does, or set model.config.id2label"


@dataclass(frozen=True)
class Numbering:
    """How the classes of a task are numbered in a model.

    Attributes:
        outputs: the model's output for each class of the task.
        size: outputs that the model has; those that are no class of the task are wrong answers.
        note: empty where names decided; where their order did, a sentence that says so.
    """

    outputs: tuple[int, ...]
    size: int
    note: str = ""
    _tables: dict["torch.device", tuple["Tensor", "Tensor", "Tensor"]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def same(self) -> bool:
        """Whether class i is output i."""
        return self.outputs == tuple(range(len(self.outputs)))

    def tables(self, device: "torch.device") -> tuple["Tensor", "Tensor", "Tensor"]:
        """The output of each class, the class of each output (a number beyond the task's classes where it is
        none), and all outputs in the order of these classes; made once for a device, since nothing can be
        copied to it while a pass is captured."""
        if device not in self._tables:
            import torch

            unmatched = [output for output in range(self.size) if output not in self.outputs]
            with torch.inference_mode(False):  # passes with gradients use them too, whoever came first
                order = torch.tensor([*self.outputs, *unmatched])
                self._tables[device] = (
                    torch.tensor(self.outputs).to(device),
                    order.argsort().to(device),
                    order.to(device),
                )
        return self._tables[device]

    def as_outputs(self, batch: Any) -> Any:
        """A batch of the task with its labels numbered as the model's outputs."""
        if self.same:
            return batch
        import torch

        outputs = self.tables(batch.labels.device)[0]
        kind = KINDS[batch.kind]
        if kind.one_hot:
            labels = batch.labels.new_zeros(len(batch.labels), self.size)
            labels[:, outputs] = batch.labels
            return replace(batch, labels=labels)
        labels = batch.labels.clone()
        column = kind.class_column + (kind.batched == "list")  # lists are led by the number of the example
        classes = labels if kind.width == 1 else labels[..., column]
        classes.copy_(_looked_up(outputs, classes))
        trees = batch.trees
        if trees is not None:  # these count classes from 1; 0 is no constituent
            trees = trees.clone()
            trees[..., 2] = torch.where(
                trees[..., 2] > 0, _looked_up(outputs, trees[..., 2] - 1) + 1, trees[..., 2]
            )
        return replace(batch, labels=labels, trees=trees)

    def as_classes(self, output: DecoderOutput, kind: str) -> DecoderOutput:
        """An answer with predictions and logits numbered as the task's classes; outputs that are none of them
        come after these."""
        if self.same or KINDS[kind].batched == "list" or KINDS[kind].width > 1:
            return output  # counts, which have no class
        _, classes, order = self.tables(output.logits.device)
        prediction = output.prediction if KINDS[kind].counts else _looked_up(classes, output.prediction)
        return DecoderOutput(output.loss, prediction, output.logits.index_select(-1, order))


def answer_by_name(
    names: Sequence[str], batch: Any, task: str, run: Callable[[Any], DecoderOutput]
) -> DecoderOutput:
    """The answer to a batch, numbered as the batch's classes are.

    Args:
        names: of the model's outputs.
        batch: of the task.
        task: its name.
        run: answers a batch whose labels are numbered as the outputs.
    """
    if not batch.classes:
        return run(batch)
    matched = numbering(names, batch.classes, task)
    return matched.as_classes(run(matched.as_outputs(batch)), batch.kind)


def output_names(config: Any) -> tuple[str, ...]:
    """What a classifier of transformers calls its outputs, in their order."""
    names = {int(number): str(name) for number, name in config.id2label.items()}
    return tuple(names[number] for number in sorted(names))


def numbering(names: Sequence[str], classes: Sequence[str], task: str) -> Numbering:
    """Finds the model's output for each class of a task: by name, apart from case, spaces, underscores and
    hyphens; where no class has the name of an output and there are equally many, by order; outputs and
    classes with numbers (LABEL_0, "4 stars") by these.

    Args:
        names: of the model's outputs.
        classes: of the task.
        task: its name.

    Raises:
        HeadwiseError: neither names nor numbers fit; shows both lists.
    """
    return _numbering(tuple(names), tuple(classes), task)


@lru_cache(maxsize=1024)
def _numbering(names: tuple[str, ...], classes: tuple[str, ...], task: str) -> Numbering:
    for spelled in (str, _spelling):
        output_of = {spelled(name): output for output, name in enumerate(names)}
        labels = [spelled(label) for label in classes]
        unambiguous = len(output_of) == len(names) and len(set(labels)) == len(labels)
        if unambiguous and output_of.keys() >= set(labels):
            return Numbering(tuple(output_of[label] for label in labels), len(names))
    outputs = _by_number(names, classes)
    if outputs is None or set(map(_spelling, names)) & set(
        map(_spelling, classes)
    ):  # names that fit in part mean something
        raise HeadwiseError(
            f"the classes of task {task!r} do not fit the outputs of the model. The task has {len(classes)}: "
            f"{_listed(classes)}; the model has {len(names)}: {_listed(names)}. Use a model that was trained "
            f"for this task, or {REMEDY}"
        )
    read = [f"{names[output]} as {label}" for output, label in zip(outputs, classes, strict=True)]
    note = (
        f"task {task!r}: its classes are not among the names of the model's outputs, so they are read in "
        f"order: {_listed(read)}. If that is wrong, {REMEDY}"
    )
    return Numbering(outputs, len(names), note)


def _by_number(names: Sequence[str], classes: Sequence[str]) -> tuple[int, ...] | None:
    """The output of each class where no name says it; None where the numbers of outputs and classes do not
    tell it either."""
    output_of = {}
    for output, name in enumerate(names):
        digits = NUMBER.findall(name)
        if len(digits) == 1:  # "LABEL_0", "4 stars"
            output_of[int(digits[0])] = output
    unnamed = all(PLACEHOLDER.fullmatch(_spelling(name)) for name in names)
    placeholders = unnamed and output_of.keys() == set(range(len(names)))
    numbers = [int(name) for name in classes] if all(name.isdecimal() for name in classes) else []
    numbered_alike = len(numbers) == len(names) or (
        placeholders and 0 in numbers
    )  # fewer may be counted from 1
    if numbered_alike and len(output_of) == len(names) and output_of.keys() >= set(numbers):
        return tuple(output_of[number] for number in numbers)
    if len(names) != len(classes):
        return None
    order = range(len(classes))
    return tuple(output_of[number] for number in order) if placeholders else tuple(order)


def order_note(model: Any, task: Any) -> str:
    """What must be said of a task whose classes a model answers by order, not by name; else empty.

    Raises:
        HeadwiseError: the model does not answer such classes.
    """
    saved = model.tasks[task.name]
    if not saved.classes:
        return ""
    return numbering(saved.classes, task.classes, task.name).note or str(model.by_order.get(task.name, ""))


def order_notes(model: Any, tasks: Iterable[Any]) -> dict[str, dict[str, str]]:
    """For the settings of a result: what `order_note` says, by task, where there is something to say."""
    notes = {task.name: order_note(model, task) for task in tasks}
    notes = {name: note for name, note in notes.items() if note}
    return {"by_order": notes} if notes else {}


def renumbered(model: Any, tasks: Iterable[Any]) -> dict[str, list[int]]:
    """The outputs of tasks whose classes a model numbers otherwise, by name: what decides a result beside the
    model and the data.

    Args:
        model: a folder, a hub id, or a live model; it is not opened.
        tasks: with their data.
    """
    outputs = {}
    for task in tasks:
        if not task.classes:
            continue
        names = _names_in(model, task.name)
        if not names:
            continue
        try:
            matched = numbering(names, task.classes, task.name)
        except HeadwiseError:  # whoever opens the model says so, or finds that it has no such head at all
            continue
        if not matched.same:
            outputs[task.name] = list(matched.outputs)
    return outputs


def _names_in(model: Any, task: str) -> tuple[str, ...]:
    """Names of the outputs that answer a task, as a model that is not opened, or a live one, has them; ()
    where it has none."""
    if not isinstance(model, str | Path):
        saved = getattr(model, "tasks", {}).get(task)
        if saved is not None:
            return tuple(saved.classes)
        return output_names(getattr(model, "encoder", model).config)
    folder = model_folder(model)
    if (folder / manifest.NAME).is_file():
        records = [record for record in manifest.read(folder).get("tasks", []) if isinstance(record, dict)]
        return next((tuple(record["classes"]) for record in records if record["name"] == task), ())
    if not (folder / "config.json").is_file():
        return ()
    names = read_json(folder / "config.json").get("id2label") or {}
    return tuple(str(names[number]) for number in sorted(names, key=int))


def _looked_up(table: "Tensor", numbers: "Tensor") -> "Tensor":
    """Entries of a table; negative numbers stay as they are."""
    import torch

    return torch.where(numbers >= 0, table[numbers.clamp(min=0)], numbers)


def _spelling(name: str) -> str:
    """A name apart from case, spaces, underscores and hyphens, and from how its accents are written."""
    return " ".join(re.sub("[_-]", " ", unicodedata.normalize("NFC", name)).split()).casefold()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:LISTED])
    return f"{shown} and {len(names) - LISTED} more" if len(names) > LISTED else shown
