"""CA-MTL (Pilault, Elhattami & Pal 2021, "Conditionally Adaptive Multi-Task Learning"): one encoder, changed
by a task's embedding."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import VISIBLE_ATTENTION, Heads, eager, tiny_inputs, unchanged
from headwise.settings import option
from headwise.training.methods._arguments import arguments_by_name
from headwise.training.methods.base import Method, OneTaskAtATime, multi_task, stay_behind
from headwise.training.methods.conditional import Conditions

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun

KEY = "all tasks"  # where the modules lie in the model's adapters
HIDDEN = -1e30  # a masked score; in 16 bits still finite
LARGE = 24  # layers from which the larger variant is the default


class CAMTL(Method):
    """Modules that a task's embedding z controls change a shared encoder, whose lower half (embeddings
    included) is frozen.

    The paper has a section of the same title for each:

    - Conditional attention: softmax(M(z) + QKᵀ/√d) V, M(z) block diagonal, in the upper half of the layers.
    - Conditional alignment: FiLM of the embeddings, before the first layer.
    - Conditional layer normalisation: both layer norms of a layer in the upper half.
    - Conditional bottleneck: in the base variant one follows the last layer, LN(bottleneck(h) + a), where a
      is what its attention block gave; in the large one they make a path beside all layers, f_j =
      bottleneck_j(h_j + f_{j−1}), whose end is read.

    MT-Uncertainty sampling is not part of it: it mixes tasks in a batch, and all methods here are compared
    under one sampler.
    """

    name: ClassVar[str] = "ca-mtl"
    steps_alike: ClassVar[bool] = True
    stays: ClassVar[str] = (
        "its upper layers are conditioned on the embeddings of the tasks it was trained on; a new task has "
        "none"
    )

    class Options(Method.Options):
        variant: Literal["base", "large"] | None = option(
            None, "base or large; default: large from 24 layers on, as in the paper."
        )
        blocks: int | None = option(
            None,
            "N, blocks on the diagonal of M; default: the width divided by the most tokens, as in the "
            "released code (768 ÷ 128 = 6).",
            ge=1,
        )

    options: Options

    def prepare(self, run: "TrainingRun") -> None:
        from headwise.training._graphs import PAD

        model = multi_task(run.model, self.name)
        length = -(-run.max_length // PAD) * PAD  # on a GPU rows are padded so far
        large = len(run.heads.sites) >= LARGE
        if self.options.variant:
            large = self.options.variant == "large"
        model.notes["ca-mtl"] = {
            "tasks": run.names,
            "length": length,
            "blocks": self.options.blocks or max(1, model.dim // length),
            "large": large,
        }
        add_conditions(model, model.notes["ca-mtl"], run.heads)

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        add_conditions(model, record, Heads(model.encoder))

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        return run.model.contexts[task]()  # recomputed activations need the task's conditions too


def add_conditions(model: Any, record: Mapping[str, Any], heads: Heads) -> None:
    """Puts the conditional modules on the encoder and freezes its lower half; a task's forward passes see its
    own conditions.

    Args:
        model: a MultiTaskModel.
        record: "tasks", "length", "blocks" and "large".
        heads: of its encoder.

    Raises:
        HeadwiseError: the encoder's layers are not of the kind the method is defined for.
    """
    layers = find_layers(model, heads)
    sizes = (len(layers), record["length"], record["blocks"], record["large"])
    conditions = Conditions(len(record["tasks"]), model.dim, *sizes)
    model.adapters[KEY] = conditions.to(model.device)
    upper = len(layers) - len(conditions.attention)
    model.encoder.requires_grad_(False)
    for layer in layers[upper:]:
        layer.block.requires_grad_(True)
    hooks = _Hooks(conditions, record["tasks"], upper)
    for number, layer in enumerate(layers):
        layer.block.register_forward_pre_hook(partial(hooks.layer_starts, number), with_kwargs=True)
        layer.block.register_forward_hook(partial(hooks.layer_ends, number))
        if number >= upper:
            for which, norm in enumerate(layer.norms):
                norm.register_forward_hook(partial(hooks.norm_ends, number, which))
    for task in record["tasks"]:
        model.contexts[task] = partial(hooks.using, task)
    model.carry = partial(stay_behind, CAMTL)


class _Hooks(OneTaskAtATime):
    """What the conditional modules do in a pass, for the task that is in use."""

    def __init__(self, conditions: Conditions, tasks: list[str], upper: int) -> None:
        self.conditions, self.tasks, self.upper = conditions, list(tasks), upper
        self.attended: Tensor | None = None  # what the last layer's attention block gave
        self.path: dict[int, Tensor] = {}  # f_j of the large variant

    def forget(self) -> None:
        self.attended = None
        self.path.clear()

    @property
    def z(self) -> Tensor:
        """The embedding of the task in use, (dim,)."""
        assert self.task is not None
        return self.conditions.tasks.weight[self.tasks.index(self.task)]

    def layer_starts(self, layer: int, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self.task is None or 0 < layer < self.upper:
            return None
        inputs = arguments_by_name(module, args, kwargs)
        first = next(iter(inputs))  # hidden states
        if layer == 0:
            inputs[first] = self.conditions.align(self.z, inputs[first])
        if layer >= self.upper:
            attention: Any = self.conditions.attention[layer - self.upper]
            tokens, most = inputs[first].shape[1], len(attention.matrix)
            if tokens > most:
                raise HeadwiseError(
                    f"this CA-MTL model was trained on texts of at most {most} tokens, but got {tokens}"
                )
            inputs["attention_mask"] = with_scores(
                inputs.get("attention_mask"), attention(self.conditions.transform(self.z), tokens)
            )
        return (inputs.pop(first),), inputs

    def norm_ends(self, layer: int, which: int, module: nn.LayerNorm, args: Any, output: Tensor) -> Tensor:
        if self.task is None:
            return output
        conditional = self.conditions.norms[2 * (layer - self.upper) + which]
        normed: Tensor = conditional(self.conditions.transform(self.z), args[0], module)
        if which == 0:
            self.attended = normed
        return normed

    def layer_ends(self, layer: int, module: nn.Module, args: Any, output: Any) -> Any:
        if self.task is None:
            return output
        conditions, is_last = self.conditions, layer == self.upper + len(self.conditions.attention) - 1
        h = output if isinstance(output, Tensor) else output[0]
        if conditions.last is not None and is_last:
            z = conditions.transform(self.z)
            h = conditions.last(z, conditions.bottlenecks[0](z, h) + self.attended, conditions.last_norm)
        elif conditions.last is None:
            before = self.path.get(layer - 1)
            inputs = h
            if before is not None and layer > 0:
                inputs = h + before
            self.path[layer] = conditions.bottlenecks[layer](conditions.transform(self.z), inputs)
            if is_last:
                h = self.path[layer]
        if isinstance(output, Tensor):
            return h
        return (h, *output[1:])


def with_scores(mask: Tensor | None, scores: Tensor) -> Tensor:
    """An attention mask with `scores` (tokens, tokens) added: (batch or 1, 1, tokens, tokens).

    Raises:
        HeadwiseError: the mask is not one that is added to attention scores.
    """
    if mask is None:
        return scores[None, None]
    if mask.dtype == torch.bool and mask.ndim == 4:
        return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, HIDDEN) + scores
    if mask.is_floating_point() and mask.ndim == 4:
        return mask.clamp(min=HIDDEN) + scores
    raise HeadwiseError(
        f"its layers take an attention mask of type {mask.dtype} and {mask.ndim} axes, to which no scores "
        "can be added"
    )


@dataclass(frozen=True)
class Layer:
    """A block that ends in a layer norm, and its two layer norms: after attention, and after the feed-forward
    block."""

    block: nn.Module
    norms: tuple[nn.LayerNorm, nn.LayerNorm]


def find_layers(model: Any, heads: Heads) -> list[Layer]:
    """The layers of an encoder that CA-MTL can condition, checked on a tiny pass.

    Raises:
        HeadwiseError: they are of another kind, with what was found.
    """
    encoder = model.encoder
    refusal = f"method 'ca-mtl' does not fit {type(encoder).__name__}: "
    if model.tokenizer.padding_side != "right":
        raise HeadwiseError(
            f"{refusal}its texts are padded on the left, so a token's position depends on the other texts in "
            "the batch"
        )
    if encoder.config._attn_implementation not in VISIBLE_ATTENTION:
        raise HeadwiseError(
            f"{refusal}nothing can be added to the scores of {encoder.config._attn_implementation} "
            "attention; use sdpa"
        )
    layers = []
    for path in [site.layer_path for site in heads.sites]:
        block = encoder.get_submodule(path)
        norms = [
            module
            for module in block.modules()
            if isinstance(module, nn.LayerNorm) and module.normalized_shape == (model.dim,)
        ]
        if not path or len(norms) != 2 or any(norm.weight is None or norm.bias is None for norm in norms):
            raise HeadwiseError(
                f"{refusal}expected two layer norms with scale and shift in {path or 'each layer'}, "
                f"found {len(norms)}"
            )
        if "attention_mask" not in signature(block.forward).parameters:
            raise HeadwiseError(refusal + f"{path} takes no attention mask")
        layers.append(Layer(block, (norms[0], norms[1])))
    if len({id(layer.block) for layer in layers}) < len(layers):
        raise HeadwiseError(
            refusal + "its layers share their weights, so each layer cannot have its own conditions"
        )
    problem = _problem(encoder, layers)
    if problem:
        raise HeadwiseError(refusal + problem)
    return layers


def _problem(encoder: Any, layers: list[Layer]) -> str:
    """What is wrong with these layers, if anything: added scores must change attention as the softmax says,
    and blocks end in a norm."""
    inputs = tiny_inputs(encoder, batch=2)
    tokens = inputs["input_ids"].shape[1]
    scores = torch.linspace(-2, 2, tokens * tokens, device=encoder.device).sin().view(tokens, tokens)
    block, norm = layers[-1].block, layers[-1].norms[1]
    seen: dict[str, Any] = {}

    def add(module: nn.Module, args: Any, kwargs: Any) -> Any:
        arguments = arguments_by_name(module, args, kwargs)
        arguments["attention_mask"] = with_scores(arguments.get("attention_mask"), scores)
        return (arguments.pop(next(iter(arguments))),), arguments

    def passed() -> Any:
        maps = encoder(**inputs, output_attentions=True).attentions
        if not maps:
            return None
        return maps[-1].float()

    with torch.no_grad(), unchanged(encoder), eager(encoder):
        handles = [
            norm.register_forward_hook(lambda module, args, output: seen.__setitem__("norm", output)),
            block.register_forward_hook(lambda module, args, output: seen.__setitem__("block", output)),
        ]
        try:
            plain = passed()
            handles.append(block.register_forward_pre_hook(add, with_kwargs=True))
            changed = passed()
        except HeadwiseError as error:
            return str(error)
        finally:
            for handle in handles:
                handle.remove()
    end = seen["block"] if isinstance(seen["block"], Tensor) else seen["block"][0]
    if not torch.equal(end, seen["norm"]):
        return "its layers do not end in a layer norm, as the method's do"
    if plain is None or not torch.allclose(changed, (plain.log() + scores).softmax(dim=-1), atol=1e-4):
        return "what is added to its attention mask is not added to its attention scores"
    return ""
