"""What any value of a running program holds, as JSON that another process, and a copy of the value, gives as
well: nothing of addresses, places, devices or orders of keys."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Any

from headwise.store._code import LIBRARIES, class_code, digest, function_code, is_code, is_foreign

# attributes that say where something came from or lies, or that passes, saving and gradient checkpointing
# leave behind
PASSING = re.compile(
    r"cache|gradient_checkpointing|"
    r"^(_is_hf_initialized|_hf_hook|hf_device_map|_old_forward|_original_forward|_?name_or_path|"
    r"_commit_hash|base_model_name_or_path|revision|inference_mode|transformers_version|peft_version|"
    r"warnings_issued|deprecation_warnings|rope_deltas|recurrent_states|left_pad|\w*long_inv_freq|"
    r"_compiled_call_impl|_is_torch_compile|_use_kernels|_is_accelerate_prepared|"
    r"_output_capturing_hooks_installed|_weight_conversions|_require_grads_hooks?|_(tp|ep|pp|fsdp)_plan|"
    r"_is_expert_parallel|_no_split_modules|"
    r"_skip_keys_device_placement|_keep_in_fp32_modules\w*|_keys_to_ignore_on_\w+|\w*tied_weights_keys|"
    r"generation_config|__deepcopy__)$"
)
TABLES = {
    "numpy": ("ndarray", "generic"),
    "pandas": ("DataFrame", "Series"),
    "xarray": ("DataArray", "Dataset"),
}
# of a configuration: says nothing about what a model computes
VOLATILE = {"transformers_version", "dtype", "torch_dtype", "architectures", "use_cache", "output_attentions",
            "output_hidden_states", "return_dict", "model_type",
            "ignore_keys_at_rope_validation"}  # fmt: skip


@lru_cache(maxsize=4096)
def passes_by(name: str) -> bool:
    """Whether an attribute of this name says nothing about what its owner computes."""
    return PASSING.search(name) is not None


class Contents:
    """Reads values; each object once.

    Args:
        module: reads a module of torch; without it modules are read as other objects.
        parameters: names of the parameters that are counted elsewhere, by their `id`.
        settled: values that take the place of a configuration's own, by its `id`.
    """

    def __init__(
        self,
        module: Callable[[Any], Any] | None = None,
        parameters: Mapping[int, str] | None = None,
        settled: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        self._module, self._parameters, self._settled = module, parameters or {}, settled or {}
        self._open: list[int] = []  # objects that are being read
        self._read: dict[int, tuple[Any, str]] = {}  # by `id`: the object, which so stays alive, and its hash
        self._torch: Any = sys.modules.get("torch")

    def read(self, value: Any) -> Any:
        """What `value` holds."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in (list, tuple) and not any(isinstance(item, list | tuple | dict | set) for item in value):
            return [self.read(item) for item in value]
        for plain in (str, int, float):
            if isinstance(value, plain) and not isinstance(value, Enum):
                return plain(value)
        torch = self._torch
        if torch is not None and isinstance(value, torch.device):
            return None
        if id(value) in self._read:
            return self._read[id(value)][1]
        if id(value) in self._open:
            return {"itself": len(self._open) - self._open.index(id(value))}
        self._open.append(id(value))
        try:
            content = digest(self._composite(value))
        finally:
            self._open.pop()
        self._read[id(value)] = value, content
        return content

    def configuration(self, config: Any) -> dict[str, Any]:
        """The values of a configuration of transformers by name, and code of the user's that it names."""
        values = {
            name: value
            for name, value in vars(config).items()
            if not name.startswith("_") and name not in VOLATILE
        }
        values |= self._settled.get(id(config), {})
        values |= {f"{name} function": function for name, function in _own_attention(config).items()}
        return {name: self.read(_without_volatile(value)) for name, value in sorted(values.items())}

    def _composite(self, value: Any) -> Any:
        kind, torch = type(value), self._torch
        if kind is dict and all(type(key) is str and type(item) in (int, str) for key, item in value.items()):
            return {"dict": sorted(value.items())}  # vocabularies are long
        if isinstance(value, Mapping):
            return {
                "dict": sorted(
                    ([self.read(key), self.read(item)] for key, item in _ordered(value)), key=json.dumps
                )
            }
        if isinstance(value, list | tuple):
            return [self.read(item) for item in value]
        if isinstance(value, set | frozenset):
            return {"set": sorted((self.read(item) for item in value), key=json.dumps)}
        if is_code(value):
            return function_code(value, self.read)
        if isinstance(value, type):
            return class_code(value, self.read)
        if isinstance(value, Enum):
            return [kind.__qualname__, value.name]
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(value)
        if torch is not None and self._module is not None and isinstance(value, torch.nn.Module):
            return self._module(value)
        if _is_table(value):
            from headwise.store._fingerprints import canonical

            return canonical(value)
        if is_configuration(value):
            return {"configuration": [kind.__name__, *self.configuration(value).items()]}
        return {"object": [self.read(kind), self._attributes(value)]}

    def _tensor(self, tensor: Any) -> Any:
        from headwise.store._fingerprints import canonical

        name = self._parameters.get(id(tensor))
        if name is None and tensor.device.type == "meta":
            return {"without values": list(tensor.shape)}
        return {"parameter": name} if name is not None else canonical(tensor)

    def _attributes(self, value: Any) -> Any:
        """Those of an object, by name; of Python's own things, which locks and files and generators are, what
        they write of themselves."""
        home = type(value).__module__.partition(".")[0]
        if home == "datetime" or type(value).__name__ in (
            "bytes",
            "complex",
            "Decimal",
            "Fraction",
            "range",
            "slice",
            "dtype",
            "ellipsis",
        ):
            return str(value)
        if home in LIBRARIES - {"headwise", "torch", "transformers", "peft", "types"}:
            return None
        slots = chain.from_iterable(map(_slots, type(value).__mro__))
        held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        held |= getattr(value, "__dict__", {})
        return [[name, self.read(held[name])] for name in sorted(held) if not passes_by(name)]


def is_configuration(value: Any) -> bool:
    """Whether `value` is a configuration of transformers."""
    return any(base.__name__ in ("PreTrainedConfig", "PretrainedConfig") for base in type(value).__mro__)


def _is_table(value: Any) -> bool:
    """Whether `value` is an array or a table of a library that is in use."""
    for name, kinds in TABLES.items():
        if name in sys.modules and any(
            isinstance(value, getattr(sys.modules[name], kind, ())) for kind in kinds
        ):
            return True
    return False


def _ordered(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    def rank(pair: tuple[Any, Any]) -> tuple[str, str]:
        if isinstance(pair[0], str | int):
            return str(type(pair[0])), str(pair[0])
        return "", ""

    return sorted(value.items(), key=rank)


def _slots(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    named = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in named if name not in ("__dict__", "__weakref__"))


def _without_volatile(value: Any) -> Any:
    """A table within a configuration: a part's own settings, or plain values."""
    if not isinstance(value, dict):
        return value
    return {
        key: _without_volatile(item)
        for key, item in value.items()
        if key not in VOLATILE and key != "_name_or_path"
    }


def _own_attention(config: Any) -> dict[str, Any]:
    """Functions for attention and its masks that the user has registered and a configuration names."""
    name = getattr(config, "_attn_implementation", None)
    library = sys.modules.get("transformers.modeling_utils")
    masks = sys.modules.get("transformers.masking_utils")
    tables = {
        "attention": getattr(library, "ALL_ATTENTION_FUNCTIONS", {}),
        "mask": getattr(masks, "ALL_MASK_ATTENTION_FUNCTIONS", {}),
    }
    named = {
        table_name: table[name]
        for table_name, table in tables.items()
        if isinstance(name, str) and name in table
    }
    return {table_name: function for table_name, function in named.items() if is_foreign(function)}
