"""PALs (Stickland & Murray 2019, "BERT and PALs: Projected Attention Layers for Efficient Adaptation in
Multi-Task Learning")."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import default_pooling
from headwise.settings import option
from headwise.training.methods._arguments import arguments_by_name
from headwise.training.methods.base import Method, OneTaskAtATime, multi_task, stay_behind
from headwise.training.methods.houlsby import bottleneck_paths

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class PALs(Method):
    """In parallel with every layer runs a small attention layer of the task's own; the encoder is shared, and
    all of it is trained.

    A layer with its task's function TS is h^{l+1} = LN(h^l + SA(h^l) + TS(h^l)), where h^l is the layer's
    input and SA all the layer does to it; TS(h) = V^D g(V^E h), with V^E of size d_s × d_m and V^D of size
    d_m × d_s. In a projected attention layer g is multi-head attention without its last projection W^o, with
    weights of its own for each layer and task; V^E and V^D are shared by all layers, not by tasks. With d_s =
    204 and 12 heads that is T (2 d_m d_s + 3 L d_s²) weights: 1.13 × BERT-base for eight tasks.
    """

    name: ClassVar[str] = "pals"
    steps_alike: ClassVar[bool] = True
    stays: ClassVar[str] = (
        "its projected attention layers belong to the tasks it was trained on; a new task has none"
    )

    class Options(Method.Options):
        size: int = option(204, "d_s, the width of a projected attention layer.", ge=1)
        n_heads: int = option(12, "Heads of each such layer; a divisor of size.", ge=1)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        size, n_heads = self.options.size, self.options.n_heads
        if size % n_heads:
            raise HeadwiseError(
                f"pals: size is {size} and n_heads {n_heads}; size must be a multiple of n_heads"
            )

    def prepare(self, run: "TrainingRun") -> None:
        model = multi_task(run.model, self.name)
        model.notes["pals"] = {"tasks": run.names, **self.options.decides()}
        add_pals(model, model.notes["pals"], run.heads)

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        add_pals(model, record, Heads(model.encoder))

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        return run.model.contexts[task]()  # recomputed activations need the task's own layers too


class ProjectedAttention(nn.Module):
    """g of one layer and task: multi-head attention in d_s dimensions without W^o, 3 d_s² weights."""

    def __init__(self, size: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value = (_linear(size, size) for _ in range(3))

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        """x: (batch, tokens, size); allowed: (batch, 1, queries or 1, keys), which keys a query may see."""
        q, k, v = (
            project(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )  # (batch, heads, tokens, size ÷ heads)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5  # (batch, heads, queries, keys)
        maps = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return (maps @ v).transpose(1, 2).flatten(2)  # (batch, tokens, size)


class TaskPALs(nn.Module):
    """All projected attention layers of one task, with the projections V^E and V^D that they share."""

    def __init__(self, dim: int, layers: int, size: int, n_heads: int) -> None:
        super().__init__()
        self.encode, self.decode = _linear(dim, size), _linear(size, dim)
        self.layers = nn.ModuleList(ProjectedAttention(size, n_heads) for _ in range(layers))

    def forward(self, layer: int, h: Tensor, allowed: Tensor) -> Tensor:
        """TS(h) of one layer, (batch, tokens, dim)."""
        return self.decode(self.layers[layer](self.encode(h), allowed))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """A matrix as BERT begins one, N(0, 0.02²): TS is small at first, so that a layer begins near the
    pre-trained one."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


def add_pals(model: Any, record: Mapping[str, Any], heads: Heads) -> None:
    """Puts one set of projected attention layers per task beside the encoder's layers; a task's forward
    passes go through its own.

    Args:
        model: a MultiTaskModel.
        record: "tasks", "size" and "n_heads".
        heads: of its encoder.

    Raises:
        HeadwiseError: the model's layers, or the last projection of each, cannot be identified.
    """
    ends = bottleneck_paths(heads)[
        1::2
    ]  # the feed-forward block's last projection, whose output the residual is added to
    blocks = [site.layer_path for site in heads.sites]
    if "" in blocks:
        raise HeadwiseError(
            "pals: the block of an attention layer could not be identified, so no adapter can run in "
            "parallel with it"
        )
    for task in record["tasks"]:
        layers = TaskPALs(model.dim, len(ends), record["size"], record["n_heads"])
        model.adapters[task] = layers.to(model.device)
    beside = _Beside(model.adapters, model.encoder.config)
    model.encoder.register_forward_pre_hook(beside.model_starts, with_kwargs=True)
    for layer, (block, end) in enumerate(zip(blocks, ends, strict=True)):
        model.encoder.get_submodule(block).register_forward_pre_hook(
            partial(beside.layer_starts, layer), with_kwargs=True
        )
        model.encoder.get_submodule(end).register_forward_hook(partial(beside.layer_ends, layer))
    for task in record["tasks"]:
        model.contexts[task] = partial(beside.using, task)
    model.carry = partial(stay_behind, PALs)


class _Beside(OneTaskAtATime):
    """The hooks: what a layer is given is kept, and the task's own function of it is added where the residual
    will be."""

    def __init__(self, adapters: nn.ModuleDict, config: Any) -> None:
        self.adapters = adapters
        self.inputs: dict[int, Tensor] = {}
        self.mask: Tensor | None = None
        self.causal = bool(getattr(config, "is_decoder", False)) or default_pooling(config) == "last"

    def forget(self) -> None:
        self.inputs.clear()

    def model_starts(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.task is not None:
            self.mask = arguments_by_name(module, args, kwargs).get("attention_mask")

    def layer_starts(self, layer: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.task is not None:
            self.inputs[layer] = args[0] if args else kwargs["hidden_states"]

    def layer_ends(self, layer: int, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if self.task is None:
            return output
        h = self.inputs[layer]
        added: Tensor = self.adapters[self.task](layer, h, self._allowed(h))
        return output + added

    def _allowed(self, h: Tensor) -> Tensor:
        """Which keys a query may see: real tokens, in left-to-right models none that come later; (batch, 1,
        queries or 1, keys)."""
        batch, tokens = h.shape[:2]
        real = self.mask
        if real is None:
            real = torch.ones(batch, tokens, device=h.device)
        allowed = real.bool()[:, None, None, :]
        if self.causal:
            allowed = allowed & torch.ones(tokens, tokens, dtype=torch.bool, device=h.device).tril()
        return allowed
