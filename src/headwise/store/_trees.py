"""Nested state (dicts, lists, tuples, tensors, numbers) as one safetensors file and one JSON value, and back
without loss."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.errors import HeadwiseError


class Flat(dict[str, Tensor]):
    """Tensors by name, for one safetensors file, and the memory they lie in."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()


def flatten(value: Any, tensors: Flat, path: str = "") -> Any:
    """Describes `value` as JSON and moves its tensors and arrays into `tensors` (contiguous, on the CPU).

    Plain JSON values stand for themselves; everything else is a one-key object that names its type, so that
    tuples, integer keys, dtypes and strides come back exactly.

    Raises:
        HeadwiseError: `value` holds something that neither JSON nor safetensors can carry.
    """
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, Tensor):
        return _put_tensor(value.detach(), tensors)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise HeadwiseError(
                f"cannot checkpoint {path.lstrip('.')}: its array holds {value.dtype}, only numbers can be "
                "kept"
            )
        return {"array": _put_tensor(torch.from_numpy(np.array(value, order="C")), tensors)}
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, value.item()]}
    if isinstance(value, list):
        return [flatten(item, tensors, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [flatten(item, tensors, f"{path}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        # MultiStepLR keeps its milestones in a Counter
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [[_key(k, path), flatten(v, tensors, f"{path}.{k}")] for k, v in value.items()]}
    raise HeadwiseError(
        f"cannot checkpoint {path.lstrip('.') or 'the state'}: it is a {type(value).__name__}; "
        "allowed are numbers, strings, None, lists, tuples, dicts, tensors and arrays"
    )


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value that `flatten` described."""
    if isinstance(tree, list):
        return [unflatten(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return _get_tensor(tree, tensors)
    if "array" in tree:
        return _get_tensor(tree["array"], tensors).numpy()
    if "scalar" in tree:
        return np.dtype(tree["scalar"][0]).type(tree["scalar"][1])
    if "tuple" in tree:
        return tuple(unflatten(item, tensors) for item in tree["tuple"])
    if "counter" in tree:
        return Counter(dict(tree["counter"]))
    return {key: unflatten(item, tensors) for key, item in tree["dict"]}


def _key(key: Any, path: str) -> Any:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise HeadwiseError(
            f"cannot checkpoint {path.lstrip('.')}: its key {key!r} is neither a string nor a whole number"
        )
    return key


def _put_tensor(tensor: Tensor, tensors: Flat) -> dict[str, Any]:
    """Files a tensor under a new name; tied weights are stored twice, loading copies them into one storage
    again."""
    name = f"{len(tensors):06d}"
    stored = tensor.cpu().contiguous()
    # safetensors refuses tensors that share memory, so all but the first of them are copied.
    storage = stored.untyped_storage().data_ptr()
    tensors[name] = stored.clone() if storage in tensors.storages else stored
    tensors.storages.add(storage)
    # The layout comes back too: elementwise kernels may round differently over other strides.
    if tensor.is_contiguous():
        return {"tensor": name}
    return {"tensor": name, "stride": list(tensor.stride())}


def _get_tensor(tree: dict[str, Any], tensors: Mapping[str, Tensor]) -> Tensor:
    tensor = tensors[tree["tensor"]]
    if "stride" not in tree or 0 in tree["stride"]:
        return tensor.clone()  # its own memory: what safetensors gives may be a mapped file
    return torch.empty_strided(tuple(tensor.shape), tuple(tree["stride"]), dtype=tensor.dtype).copy_(tensor)
