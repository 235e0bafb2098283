"""What a module's forward pass was given, by name, for hooks that read or change it."""

from inspect import Parameter, signature
from typing import Any

from torch import nn


def arguments_by_name(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a forward pass by the names of its parameters, in their order."""
    # the class's: an instance's own may take anything (a block that is skipped)
    form = signature(type(module).forward)
    arguments = dict(form.bind_partial(module, *args, **kwargs).arguments)
    arguments.pop("self")
    for name, parameter in form.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name, {})
    return arguments
