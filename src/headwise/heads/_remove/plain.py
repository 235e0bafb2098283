"""A model with heads removed as an ordinary model of its family, where the family's configuration can say how
many heads are left.

Nothing here goes by names or versions of families: a configuration is tried by building the model from it,
and counts only if that model, with the same tensors, has the same parameters and gives the same outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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

NOTE = (
    "headwise_removed"  # in the configuration of an ordinary model: the heads that were removed, cut by cut
)
# Name, place in a layer's (heads, groups)
COUNTS = (("num_attention_heads", 0), ("num_key_value_heads", 1), ("num_kv_heads", 1))

Left = list[tuple[int, int]]  # of each layer: heads and groups that are left


def what_is_left(sites: Sequence[Site], head_set: HeadSet) -> Left:
    """Heads and key/value groups of every layer without `head_set`."""
    gone = head_set.layers()
    kept = [(site, site.n_heads - len(gone.get(site.index, ()))) for site in sites]
    return [(heads, heads // site.group_size) for site, heads in kept]


def as_ordinary(
    model: Any, left: Left, head_dim: int, done: list[Surgery], same: Any
) -> PreTrainedModel | None:
    """The model rebuilt by its own class, with the same tensors, from a configuration that says what is left;
    None if none can.

    Args:
        model: the smaller model.
        left: heads and groups of every layer.
        head_dim: width of a head.
        done: what was cut out of it so far; noted in the configuration.
        same: takes the new model, says whether it computes what `model` does.
    """
    if getattr(transformers, type(model).__name__, None) is not type(model) or hasattr(
        model, "hf_device_map"
    ):
        return None
    if any(cut.headless or cut.arguments or cut.tables for cut in done):
        return None
    note = removed_before(model) + [[list(head) for head in cut.removed] for cut in done]
    for changes in _configurations(model.config, left, head_dim):
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


def _configurations(config: Any, left: Left, head_dim: int) -> Iterator[dict[str, Any]]:
    """Changes of a configuration that may say what is left, to be tried in turn."""
    named = [(name, place) for name, place in COUNTS if _has(config, name)]
    if len(set(left)) == 1:
        numbers = {name: left[0][place] for name, place in named}
        yield numbers
        yield {**numbers, "head_dim": head_dim}
    if hasattr(config, "per_layer_config") and getattr(config, "num_hidden_layers", 0) == len(left):
        yield {
            "per_layer_config": {
                i: {name: layer[place] for name, place in named} for i, layer in enumerate(left)
            }
        }


def _has(config: Any, name: str) -> bool:
    try:
        return isinstance(getattr(config, name, None), int)
    except RuntimeError:  # how transformers says that layers have numbers of their own
        return True


def _built(model: Any, config: Any) -> PreTrainedModel | None:
    """A new model of the same class that shares the tensors of `model`; None if its own are of other shapes."""
    with torch.device("meta"):  # in this thread; accelerate's way to do without weights is every thread's
        new: Any = type(model)(config)
    new.tie_weights()  # undone by each parameter that is put in
    own = dict(model.named_parameters())
    if {name: p.shape for name, p in new.named_parameters()} != {name: p.shape for name, p in own.items()}:
        return None
    new.load_state_dict(model.state_dict(), assign=True)
    new.tie_weights()
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(own[name].requires_grad)
    if not _share_tables(model, new):
        return None
    if model.can_generate():
        new.generation_config = deepcopy(model.generation_config)
    new.train(model.training)
    return new


def _share_tables(model: nn.Module, new: nn.Module) -> bool:
    """Gives `new` the tables of `model` that are no weights, such as rotary frequencies; whether it has them
    all in the same shapes."""
    modules = dict(model.named_modules())
    for path, module in new.named_modules():
        if path not in modules:
            return False
        for tables, held in ((module._buffers, modules[path]._buffers), (vars(module), vars(modules[path]))):
            for name, table in [
                (name, table) for name, table in tables.items() if isinstance(table, Tensor) and table.is_meta
            ]:
                if not isinstance(held.get(name), Tensor) or held[name].shape != table.shape:
                    return False
                tables[name] = held[name]
    return True
