"""Decoders of a user's own, by name: a saved model says which class it needs, and never causes one to be
imported."""

import sys
from typing import Any

from torch import nn

from headwise.errors import HeadwiseError


def decoder_name(decoder: Any) -> str:
    """The name "module:class" under which a saved model remembers a user's decoder.

    Raises:
        HeadwiseError: it is no class of torch modules.
    """
    if isinstance(decoder, str):
        return decoder
    if not (isinstance(decoder, type) and issubclass(decoder, nn.Module)):
        raise HeadwiseError(
            f"decoder is {decoder!r}; it is a subclass of torch.nn.Module that is called with (task, dim)"
        )
    return f"{decoder.__module__}:{decoder.__qualname__}"


def find_decoder(name: str) -> type[nn.Module]:
    """The class of that name, in a module that the program has imported.

    Raises:
        HeadwiseError: it has not, or the module has no such decoder.
    """
    module, _, path = name.partition(":")
    decoder: Any = sys.modules.get(module)
    for attribute in path.split("."):
        decoder = getattr(decoder, attribute, None)
    if not (isinstance(decoder, type) and issubclass(decoder, nn.Module)):
        raise HeadwiseError(
            f"the decoder {name} is a user's own: import the class {path} of {module} before the model is "
            "opened"
        )
    return decoder
