"""Finding the sites of a model by watching one small forward pass.

Every attention result becomes a fresh leaf of the autograd graph. When a projection is called with an input
that depends on such leaves, gradients tell which slice of the input comes from which head: a site is a
projection whose input splits into slices of equal width, each from heads of its own. That needs no table of
names, and proves order and width.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.chance import noticing_draws
from headwise.heads._find.gradients import Leaf, Split, split_heads
from headwise.heads._find.observation import AttentionResult, Watcher
from headwise.heads._find.site_names import REASONS, attention_modules, kind_of, layer_of, within
from headwise.heads._inputs import ENCODER_TOKENS, root_of, tiny_inputs
from headwise.heads._reading import undisturbed
from headwise.heads._sites import Site, projection_weight
from headwise.heads._use.attention import visible

# Inputs to try: some classifiers take a batch only if a padding token is set, or want a decoder input as long
# as the encoder's.
ATTEMPTS: tuple[Callable[[nn.Module], dict[str, Any]], ...] = (
    lambda model: tiny_inputs(model, batch=2),
    lambda model: tiny_inputs(model, batch=2, decoder_tokens=ENCODER_TOKENS),
    lambda model: tiny_inputs(model, batch=1),
)


@dataclass
class Findings:
    """What one watched pass showed.

    Attributes:
        sites: in the order of the pass.
        missed: {module path: reason} for attention that no site covers.
        inputs: the keyword arguments that were passed.
        draws: whether passes draw random numbers, in evaluation mode too.
    """

    sites: list[Site] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    draws: bool = False

    def complaint(self, model: nn.Module) -> str:
        """What was looked for, what was found, and what can be done."""
        root: Any = root_of(model)
        name, family = type(root).__name__, root.config.model_type
        missed = "; ".join(f"{path}: {reason}" for path, reason in list(self.missed.items())[:3])
        if len(self.missed) > 3:
            missed += f"; and {len(self.missed) - 3} more"
        explanation = f" ({REASONS[family]})" if family in REASONS else ""
        if not self.sites:
            return (
                f"{name} has no heads that can be reached{explanation}: looked for attention (a "
                "softmax, then a product with values) whose result enters a projection module head by head; "
                f"found {missed or 'no attention at all'}"
            )
        return (
            f"{name}: {len(self.sites)} attention layers were found, but not all{explanation}: {missed}. "
            "Pass an input that reaches them, Heads(model, example={...}), or accept with "
            "Heads(model, partial=True) that they are out of reach"
        )


def find_sites(model: nn.Module, example: Mapping[str, Any] | None = None) -> Findings:
    """Watches one forward pass of a twin of `model`.

    Args:
        model: any model that `example` (default: a tiny input made for it) can be passed to.
        example: keyword arguments of the model's forward pass.

    Raises:
        UnsupportedModel: the pass failed.
    """
    root = root_of(model)
    if not isinstance(getattr(root, "config", None), PreTrainedConfig):
        advice = "pass a live PreTrainedModel or a PEFT model"
        if hasattr(model, "_orig_mod"):
            advice += "; build Heads on the inner model, before torch.compile"
        raise UnsupportedModel(f"{type(model).__name__} is not a transformers model: {advice}")
    problem: Exception | None = None
    attempts = ATTEMPTS if example is None else [lambda _: dict(example)]
    for inputs_for in attempts:
        try:
            with undisturbed(model) as (twin,), visible(twin), torch.no_grad():
                inputs = inputs_for(twin)
                with noticing_draws(twin, partial(twin, **inputs)) as chance:
                    findings = _Watch(twin).run(inputs)
                return replace(findings, draws=chance.drawn)
        except Exception as error:
            problem = problem or error
    raise UnsupportedModel(
        f"{type(root).__name__}: the small forward pass that finds its heads failed with "
        f"{type(problem).__name__}: {problem}. Pass an input it accepts: "
        "Heads(model, example={'input_ids': ...})"
    ) from problem


class _Watch:
    """The state of one watched pass."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {module: name for name, module in model.named_modules()}
        self.expected = attention_modules(model)
        self.running: list[str] = []  # paths of the modules being called, outermost first
        self.executed: set[str] = set()
        self.calls: dict[str, int] = {}
        self.leaves: list[Leaf] = []  # attention results that no projection has taken in yet
        # Path of a norm over all heads that is running -> what to call its output
        self.normed: dict[str, Leaf] = {}
        self.covered: set[str] = set()  # where found attention happened
        self.findings = Findings()

    def run(self, inputs: dict[str, Any]) -> Findings:
        self.findings.inputs = inputs
        handles = [module.register_forward_pre_hook(self._enter, with_kwargs=True) for module in self.names]
        handles += [module.register_forward_hook(self._leave) for module in self.names]
        try:
            with Watcher(on_result=self._result, on_functional=self._functional):
                self.model(**inputs)
        finally:
            for handle in handles:
                handle.remove()
        for leaf in self.leaves:
            holds_site = any(within([leaf.where], site.path) for site in self.findings.sites)
            if holds_site and not within(self.expected, leaf.where):
                continue  # a softmax that mixes streams around attention (hyper-connections), not attention
            reason = "its attention result reaches no projection module whose input splits into heads"
            self._miss(leaf.where, reason)
        for path in self.expected:
            if self.model.get_submodule(path) not in self.names:  # BigBird exchanges modules as it runs
                continue
            if any(within([path], where) for where in (*self.covered, *self.findings.missed)):
                continue
            if path in self.executed:
                self._miss(path, "it ran, but made no softmax attention")
            else:
                self._miss(path, "the example input does not reach it")
        self._count_calls()
        return self.findings

    def _result(self, result: AttentionResult) -> Tensor:
        leaf = Leaf.from_result(result, self.running[-1] if self.running else "")
        self.leaves.append(leaf)
        torch.set_grad_enabled(True)  # from here to the projection; the caller's no_grad ends it in any case
        return leaf.tensor.clone()  # models may work in place, which a leaf forbids

    def _functional(self, name: str) -> None:
        reason = f"it projects inside torch's {name}, where no module is called that could be hooked"
        self._miss(self.running[-1], reason)

    def _miss(self, path: str, reason: str) -> None:
        self.findings.missed.setdefault(path, reason)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = self.names[module]
        self.running.append(path)
        self.executed.add(path)
        self.calls[path] = self.calls.get(path, 0) + 1
        if self.leaves and args and isinstance(args[0], Tensor) and args[0].requires_grad:
            if projection_weight(module) is not None:
                self._try_site(path, args[0])
            elif any(scale.shape == args[0].shape[-1:] for scale in module.parameters(recurse=False)):
                self._try_norm(path, args[0])

    def _leave(self, module: nn.Module, args: Any, output: Any) -> Any:
        path = self.running.pop()
        if path in self.normed:
            leaf = self.normed.pop(path).renewed(output)
            self.leaves.append(leaf)
            return leaf.tensor.clone()
        if self.findings.sites and self.findings.sites[-1].path == path and isinstance(output, Tensor):
            return output.detach()
        return None

    def _try_site(self, path: str, x: Tensor) -> None:
        weight = projection_weight(self.model.get_submodule(path))
        if weight is None or x.shape[-1] not in weight.shape:
            return
        feeding = [leaf for leaf in self.leaves if leaf.reaches(x)]
        if not feeding:
            return
        split = split_heads(x, feeding)
        if split is not None and split.n_heads == 1 and not within(self.expected, feeding[0].where):
            # A softmax that pools tokens is not a head
            self.leaves = [leaf for leaf in self.leaves if leaf not in feeding]
            return
        if split is None:
            reason = f"the input of {path}, {tuple(x.shape)}, does not split into slices of one head each"
            for leaf in feeding:
                self._miss(leaf.where, reason)
        else:
            self._add_site(path, x, split, feeding)
        self.leaves = [leaf for leaf in self.leaves if leaf not in feeding]
        torch.set_grad_enabled(bool(self.leaves))

    def _try_norm(self, path: str, x: Tensor) -> None:
        """A norm over all heads mixes their gradients; they are side by side in its output still (BitNet)."""
        feeding = [leaf for leaf in self.leaves if leaf.reaches(x)]
        if not feeding:
            return
        split = split_heads(x, feeding)
        if split is not None and split.n_heads > 1:
            self.normed[path] = feeding[0].split(split)
            self.leaves = [leaf for leaf in self.leaves if leaf not in feeding]

    def _add_site(self, path: str, x: Tensor, split: Split, feeding: list[Leaf]) -> None:
        first = feeding[0].result
        groups = split.n_heads
        if len(feeding) == 1 and first.value_heads is not None and groups % first.value_heads == 0:
            groups = first.value_heads
        tensors = [value for value in self.findings.inputs.values() if isinstance(value, Tensor)]
        batch = next((tensor.shape[0] for tensor in tensors if tensor.ndim > 1), 1)
        self.covered |= {path, *(leaf.where for leaf in feeding)}
        self.findings.sites.append(
            Site(
                index=len(self.findings.sites),
                kind=kind_of(first, path, root_of(self.model).config, self.findings.inputs),
                path=path,
                n_heads=split.n_heads,
                head_dim=split.head_dim,
                n_groups=groups,
                call=self.calls[path] - 1,
                layer_path=layer_of(self.model, path),
                rest=x.shape[-1] - split.n_heads * split.head_dim,
                batch_first=not (x.ndim == 3 and x.shape[1] == batch != x.shape[0]),
                head_order=split.order,
            )
        )

    def _count_calls(self) -> None:
        totals: dict[str, int] = {}
        for site in self.findings.sites:
            totals[site.path] = max(totals.get(site.path, 0), site.call + 1)
        self.findings.sites = [replace(site, n_calls=totals[site.path]) for site in self.findings.sites]
