"""TinyBERT distillation (Jiao et al. 2020; functional-specialization appendix A): a shallow student under a
fine-tuned teacher."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, mse_loss

from headwise.errors import HeadwiseError
from headwise.models import DecoderOutput
from headwise.settings import option
from headwise.store import Checkpoint, manifest, model_parts
from headwise.tasks import KINDS
from headwise.training.methods.base import Method, last_share

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class Distil(Method):
    """First the student's layers imitate every k-th layer of the teacher, then its predictions imitate the
    teacher's.

    First part (their transformer-layer and embedding-layer distillation): mean squared error of attention
    maps, mean over heads of MSE(A_S, A_T), and of hidden states, embeddings included, MSE(H_S W, H_T), with a
    learnt projection W where the widths differ. Student and teacher both run without dropout there: its noise
    would enter every map and every state behind it, so that a student equal to its teacher would have a loss
    and a gradient. Second part (prediction-layer distillation): cross-entropy with the teacher's class
    probabilities, at temperature 1, or squared error for numbers; the student's dropout is on, as in every
    other method.
    """

    name: ClassVar[str] = "distil"
    steps_alike: ClassVar[bool] = True

    class Options(Method.Options):
        teacher: Any = option(
            None,
            "A MultiTaskModel fine-tuned on the same tasks, or the folder of one; a hub id or a folder of "
            "plain weights is first fine-tuned on these tasks, by plain multi-task training with the same "
            "settings.",
        )
        intermediate: float = option(
            0.4, "Fraction of training spent on the first part (2 of 5 epochs).", ge=0, le=1
        )

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._distiller: Distiller | None = None
        if self.options.teacher is None:
            raise HeadwiseError(
                "distillation needs teacher=: a fine-tuned multi-task model, its folder, or a model to "
                "fine-tune first (a recipe: [teachers])"
            )

    def branch_step(self, steps: int) -> int | None:
        return last_share(1 - self.options.intermediate, steps)

    def trained(self, run: "TrainingRun") -> nn.Module:
        with torch.random.fork_rng(devices=[run.model.device] if run.model.device.type == "cuda" else []):
            teacher: Any = self.options.teacher
            if not isinstance(teacher, nn.Module):
                teacher = self._opened(run)
        student: Any = run.model
        missing = [name for name in run.names if name not in teacher.tasks]
        if missing:
            raise HeadwiseError(
                f"the teacher was not trained on {missing[0]!r}; it knows {', '.join(teacher.tasks)}"
            )
        if teacher.tokenizer.get_vocab() != student.tokenizer.get_vocab():
            raise HeadwiseError(
                "student and teacher must read the same tokens, but their tokenizers have different "
                "vocabularies"
            )
        self._distiller = Distiller(run.model, teacher.to(run.model.device)).to(run.model.device)
        return self._distiller

    def decides(self) -> dict[str, Any]:
        return {**super().decides(), "teacher": model_parts(self.options.teacher)}

    def _opened(self, run: "TrainingRun") -> Any:
        """The teacher that a folder or a hub id names, fine-tuned on the run's tasks if it is not yet; kept
        in the run's folder."""
        from headwise.models import open_model
        from headwise.store import load
        from headwise.training._loop import TrainingRun as Inner

        teacher_folder = run.folder / "teacher" if run.folder else None
        for folder in (Path(str(self.options.teacher)), teacher_folder):
            if folder is not None and (folder / manifest.NAME).is_file():
                return load(folder)
        student: Any = run.model
        teacher = open_model(
            str(self.options.teacher),
            run.tasks,
            need="trains",
            pooling=student.pooling,
            seed=run.settings.seed,
        )
        settings = run.settings.with_changes(trackers=(), evaluate="end", early_stopping=None)
        Inner(teacher, run.tasks, Method(), settings, folder=teacher_folder).train()
        if teacher_folder is not None:
            if run.accelerator.is_main_process:
                teacher.save(teacher_folder)
                Checkpoint(teacher_folder / "checkpoint").clear()
            run.accelerator.wait_for_everyone()
        return teacher

    def at_branch(self, run: "TrainingRun") -> None:
        assert self._distiller is not None
        self._distiller.imitate_predictions()

    def finish(self, run: "TrainingRun") -> None:
        self.at_branch(run)

    def resumed(self, run: "TrainingRun") -> None:
        branch = self.branch_step(len(run.plan))
        if branch is not None and run.step > branch:
            self.at_branch(run)


class Distiller(nn.Module):
    """Student, and the projections its hidden states need; the teacher is looked at, never trained or saved.

    Args:
        student, teacher: MultiTaskModels; the teacher has a multiple of the student's layers and equally many
            heads.
    """

    def __init__(self, student: Any, teacher: Any) -> None:
        super().__init__()
        self.student: Any = student
        self.teacher: Any
        object.__setattr__(self, "teacher", teacher.eval().requires_grad_(False))  # not a submodule
        small, large = student.encoder.config, teacher.encoder.config
        self.every, remainder = divmod(large.num_hidden_layers, small.num_hidden_layers)
        if remainder or not self.every:
            raise HeadwiseError(
                f"the teacher has {large.num_hidden_layers} layers, which is not a multiple of the student's "
                f"{small.num_hidden_layers}"
            )
        if large.num_attention_heads != small.num_attention_heads:
            raise HeadwiseError(
                f"attention maps are compared head by head: the teacher has {large.num_attention_heads} "
                f"heads per layer, the student {small.num_attention_heads}"
            )
        self.widen: nn.Module = nn.Identity()
        if student.dim != teacher.dim:
            self.widen = nn.Linear(student.dim, teacher.dim, bias=False)
        self._usual = (small._attn_implementation, large._attn_implementation)
        self.layers = True
        for model in (student, teacher):
            model.encoder.set_attn_implementation("eager")  # the only one that shows its maps

    def imitate_predictions(self) -> None:
        """Begins the second part."""
        self.layers = False
        for model, usual in zip((self.student, self.teacher), self._usual, strict=True):
            model.encoder.set_attn_implementation(usual)

    def forward(self, name: str, batch: Any) -> DecoderOutput:
        if self.layers:
            return self._layers(name, batch)
        with torch.no_grad():
            taught = self.teacher(name, batch)
        output = self.student(name, batch)
        if KINDS[self.student.tasks[name].kind].numbers:
            # on the scale of the targets, as the student's own loss
            error = (output.logits - taught.logits) / self.student.decoders[name].unit
            loss = error.square().squeeze(-1)  # (batch,)
        else:
            agreement = taught.logits.softmax(dim=-1) * log_softmax(output.logits, dim=-1)
            loss = -agreement.sum(dim=-1)  # (batch,)
        return DecoderOutput(loss, output.prediction, output.logits)

    def _layers(self, name: str, batch: Any) -> DecoderOutput:
        with torch.no_grad():
            taught = self._shown(self.teacher, name, batch)
        shown = self._shown(self.student, name, batch)
        real = batch.inputs["attention_mask"].bool()  # (batch, tokens)
        loss = torch.zeros(len(real), device=real.device)
        for i, hidden in enumerate(shown.hidden_states):
            loss = loss + _error(self.widen(hidden), taught.hidden_states[i * self.every], real[:, :, None])
        for i, maps in enumerate(shown.attentions):
            both = real[:, None, :, None] & real[:, None, None, :]  # (batch, 1, tokens, tokens)
            loss = loss + _error(maps, taught.attentions[(i + 1) * self.every - 1], both)
        return DecoderOutput(loss, torch.zeros(len(real), device=real.device), None)

    def _shown(self, model: Any, name: str, batch: Any) -> Any:
        """The encoder's output for task `name` with all hidden states and attention maps, without dropout.

        Raises:
            HeadwiseError: the model does not give a hidden state and a map for each of its layers.
        """
        encoder = model.encoder
        with without_dropout(encoder), model.contexts.get(name, nullcontext)():
            output = encoder(**batch.inputs, output_hidden_states=True, output_attentions=True)
        layers, tokens = encoder.config.num_hidden_layers, batch.inputs["input_ids"].shape[1]
        maps, states = output.attentions or (), output.hidden_states or ()
        if (
            len(states) != layers + 1
            or len(maps) != layers
            or any(m.shape[-2:] != (tokens, tokens) for m in maps)
        ):
            raise HeadwiseError(
                "distillation compares one hidden state and one attention map for each layer, and "
                f"{type(encoder).__name__} gives {len(states)} states and {len(maps)} maps for {layers} "
                "layers: choose a student and a teacher that show them"
            )
        return output


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Inside, `module` computes what it computes in use, with gradients; afterwards each part has its mode
    back."""
    training = [module_ for module_ in module.modules() if module_.training]
    module.eval()
    try:
        yield
    finally:
        for module_ in training:
            module_.training = True


def _error(student: Tensor, taught: Tensor, real: Tensor) -> Tensor:
    """Mean squared error of each example over its real entries, (batch,); padding does not count."""
    weight = real.expand_as(taught).float()
    return (mse_loss(student.float(), taught.float(), reduction="none") * weight).flatten(1).sum(
        1
    ) / weight.flatten(1).sum(1)


def shallow(encoder: Any, layers: int) -> Any:
    """A student for `Distil`: the same encoder with every k-th of its layers, weights copied.

    Args:
        encoder: a transformers encoder with layers numbered in one list.
        layers: how many to keep; a divisor of their number.
    """
    total = encoder.config.num_hidden_layers
    if layers < 1 or total % layers:
        raise HeadwiseError(
            f"layers is {layers}; the model has {total}, so it must be one of "
            f"{[d for d in range(1, total) if total % d == 0]}"
        )
    config = type(encoder.config).from_dict({**encoder.config.to_dict(), "num_hidden_layers": layers})
    student = type(encoder)(config)
    every = total // layers

    def source(name: str) -> str:
        return re.sub(r"(^|\.)(\d+)\.", lambda m: f"{m[1]}{(int(m[2]) + 1) * every - 1}.", name, count=1)

    weights = encoder.state_dict()
    student.load_state_dict({name: weights[source(name)].clone() for name in student.state_dict()})
    return student
