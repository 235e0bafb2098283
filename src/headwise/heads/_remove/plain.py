"""A model with heads removed as an ordinary model of its family, where the family's configuration can say how
many heads are left.

Nothing here goes by names or versions of families: a configuration is tried by building the model from it,
and counts only if that model, with the same tensors, has the same parameters and gives the same outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.heads._headset import HeadSet
from headwise.heads._sites import Site

if TYPE_CHECKING:
    from headwise.heads._remove.surgery import Surgery

# In the configuration of an ordinary model: the heads that were removed, cut by cut
NOTE = "headwise_removed"
# Names, and which of a layer's counts they say: heads, groups
COUNTS = (("num_attention_heads", 0), ("num_key_value_heads", 1), ("num_kv_heads", 1))

LayerCounts = list[tuple[int, int]]  # of each layer: heads and key/value groups


def remaining_counts(sites: Sequence[Site], head_set: HeadSet) -> LayerCounts:
    """Heads and key/value groups of every layer without `head_set`."""
    counts, removed = [], head_set.layers()
    for site in sites:
        heads = site.n_heads - len(removed.get(site.index, ()))
        counts.append((heads, heads // site.group_size))
    return counts


def as_ordinary(
    model: Any, counts: LayerCounts, head_dim: int, surgeries: list[Surgery], same: Any
) -> PreTrainedModel | None:
    """The model rebuilt by its own class, with the same tensors, from a configuration that says what is left;
    None if none can.

    Args:
        model: the smaller model.
        counts: heads and groups of every layer.
        head_dim: width of a head.
        surgeries: what was cut out of it so far; noted in the configuration.
        same: takes the new model, says whether it computes what `model` does.
    """
    if getattr(transformers, type(model).__name__, None) is not type(model):
        return None
    if hasattr(model, "hf_device_map"):
        return None
    if any(cut.headless or cut.arguments or cut.tables for cut in surgeries):
        return None
    note = removed_before(model) + [list(map(list, cut.removed)) for cut in surgeries]
    for changes in _configurations(model.config, counts, head_dim):
        try:
            built = _built(model, _as_reopened(model.config, {**changes, NOTE: note}))
        except Exception:  # whatever a family's code does with numbers it did not expect
            continue
        if built is not None and same(built):
            return built
    return None


def _as_reopened(config: Any, changes: dict[str, Any]) -> Any:
    """The configuration with changes, as it comes out of a saved `config.json`: some families derive numbers
    when one is read."""
    changed = deepcopy(config)
    for name, value in changes.items():
        setattr(changed, name, value)
    read = type(config).from_dict(json.loads(changed.to_json_string()))
    read._attn_implementation, read._name_or_path = config._attn_implementation, config._name_or_path
    return read


def removed_before(model: Any) -> list[Any]:
    """What was removed from an ordinary model, cut by cut; empty for any other."""
    return list(getattr(getattr(model, "config", None), NOTE, None) or [])


def _configurations(config: Any, counts: LayerCounts, head_dim: int) -> Iterator[dict[str, Any]]:
    """Changes of a configuration that may say what is left, to be tried in turn."""
    names = [(name, which) for name, which in COUNTS if _has(config, name)]
    by_layer = [{name: numbers[which] for name, which in names} for numbers in counts]
    if len(set(counts)) == 1:
        yield by_layer[0]
        yield {**by_layer[0], "head_dim": head_dim}
    if hasattr(config, "per_layer_config") and getattr(config, "num_hidden_layers", 0) == len(counts):
        yield {"per_layer_config": dict(enumerate(by_layer))}


def _has(config: Any, name: str) -> bool:
    try:
        return isinstance(getattr(config, name, None), int)
    except RuntimeError:  # how transformers says that layers have numbers of their own
        return True


def _built(model: Any, config: Any) -> PreTrainedModel | None:
    """A new model of the same class that shares the tensors of `model`; None if it has parameters of other
    shapes."""
    with torch.device("meta"):  # in this thread; accelerate's way to do without weights is every thread's
        new: Any = type(model)(config)
    new.tie_weights()  # undone by each parameter that is put in
    if _shapes(new) != _shapes(model):
        return None
    new.load_state_dict(model.state_dict(), assign=True)
    new.tie_weights()
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(model.get_parameter(name).requires_grad)
    if not _share_tables(model, new):
        return None
    if model.can_generate():
        new.generation_config = deepcopy(model.generation_config)
    new.train(model.training)
    return new


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def _share_tables(model: nn.Module, new: nn.Module) -> bool:
    """Gives `new` the tables of `model` that are no weights, such as rotary frequencies; whether it has them
    all in the same shapes."""
    modules = dict(model.named_modules())
    for path, module in new.named_modules():
        if path not in modules:
            return False
        if not _share(modules[path]._buffers, module._buffers):
            return False
        if not _share(vars(modules[path]), vars(module)):
            return False
    return True


def _share(held: Mapping[str, Any], tables: dict[str, Any]) -> bool:
    for name, table in list(tables.items()):
        if isinstance(table, Tensor) and table.is_meta:
            if not isinstance(held.get(name), Tensor) or held[name].shape != table.shape:
                return False
            tables[name] = held[name]
    return True
