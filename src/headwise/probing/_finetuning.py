"""Fine-tuning from head embeddings, or from any layer: a model whose decoders read chosen head outputs (Jo &
Myaeng 2020, §5.2, A.4)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise._base.opener import fill
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, evaluating
from headwise.models import (
    DECODERS,
    HeadShape,
    MultiTaskModel,
    SavedTask,
    SequenceDecoder,
    TaskLike,
    check_weights,
    open_model,
    text_columns,
)
from headwise.probing._early_exit import head_outputs, layer_output
from headwise.tasks import check_one_answer

KIND = "embedded-model"
# linear → tanh → dropout 0.1 → classifier
SHAPE = HeadShape(dense=True, activation="tanh", dropout_in=0.0, dropout_out=0.1)


class EmbeddedModel(MultiTaskModel):
    """Concatenated outputs of chosen heads → linear → tanh → dropout 0.1 → classifier; trained by the
    ordinary loop.

    Layers above the source are not computed, and weights that cannot matter are frozen. All sources start
    from fresh decoders of the same shape, so that they can be compared.

    Args:
        encoder: a transformers model; all its used weights are trained.
        tokenizer: its tokenizer.
        tasks: tasks of kind "classes" or "number".
        source: the heads whose outputs are read, or the number of a layer whose hidden state is.
        pooling: "cls", "last" or "mean"; default: by the kind of model.
    """

    def __init__(
        self,
        encoder: Any,
        tokenizer: Any,
        tasks: Iterable[TaskLike],
        source: HeadSet | int,
        pooling: str | None = None,
    ) -> None:
        super().__init__(encoder, tokenizer, (), pooling)
        self.heads = Heads(encoder)
        if isinstance(source, HeadSet):
            if not len(source):
                raise HeadwiseError("an embedding needs at least one head, got none")
            self.heads.check(source)
        elif not 0 <= source < len(self.heads.sites):
            raise HeadwiseError(
                f"layer {source} is not in this model: it has {len(self.heads.sites)}, counted from 0"
            )
        self.source = source
        self._freeze_unused()
        for task in tasks:
            self.add_task(task)

    @property
    def dim(self) -> int:
        """Width of what decoders read."""
        if isinstance(self.source, HeadSet):
            return sum(self.heads.sites[layer].head_dim for layer, _ in self.source)
        return super().dim

    def new_decoder(self, task: TaskLike, **options: Any) -> nn.Module:
        """A fresh decoder of the paper's shape."""
        check_one_answer(task.name, task.kind, "embeddings are fine-tuned on")
        return SequenceDecoder(self.dim, len(task.classes), self.pooling, SHAPE).to(self.device)

    def states(self, batch: Any) -> Tensor:
        """The source's output at every token, (batch, tokens, dim)."""
        return text_columns(self.encoder, self._read(batch.inputs))

    def _read(self, inputs: Mapping[str, Tensor]) -> Tensor:
        arguments = {**inputs, **self._no_cache}
        if isinstance(self.source, HeadSet):
            return head_outputs(self.heads, self.source, arguments, "all", detach=False)
        return layer_output(self.heads, self.source, arguments, "all", detach=False)

    def _freeze_unused(self) -> None:
        """Weights that do not reach the source get no gradient; frozen, no optimizer and no other process
        waits for one."""
        trained = [parameter for parameter in self.encoder.parameters() if parameter.requires_grad]
        tokens = torch.zeros(1, 3, dtype=torch.long, device=self.device)
        with torch.enable_grad(), evaluating(self.encoder):
            total = self._read({"input_ids": tokens, "attention_mask": tokens + 1}).sum()
            gradients = torch.autograd.grad(total, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.requires_grad_(gradient is not None)

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes encoder, tokenizer and decoders; returns the fields of the manifest."""
        super().write(folder)
        tasks = [task.to_json() for task in self.tasks.values()]
        record = {"kind": KIND, "tasks": tasks, "pooling": self.pooling, "heads": None, "layer": None}
        if isinstance(self.source, HeadSet):
            return record | {"heads": [*map(list, self.source)]}
        return record | {"layer": self.source}


def load_folder(folder: Path, record: Mapping[str, Any]) -> EmbeddedModel:
    """Opens what `EmbeddedModel.save` wrote, on the CPU and in eval mode; `headwise.load` calls this."""
    opened = open_model(folder / "encoder", need="encoder")
    tasks = [SavedTask.from_json(task) for task in record["tasks"]]
    source: HeadSet | int = record["layer"]
    if record["heads"] is not None:
        source = HeadSet((layer, head) for layer, head in record["heads"])
    model = EmbeddedModel(opened.encoder, opened.tokenizer, tasks, source, record["pooling"])
    fill(model.decoders, folder / DECODERS)
    check_weights(model)
    return model.eval()
