"""Opening a model by name, to look at it."""

from pathlib import Path
from typing import Any

from headwise import loading, manifest
from headwise.errors import HeadwiseError
from headwise.heads.embedded import default_model

EMBEDDED = "demo"


def open_model(name: str) -> Any:
    """Opens a model in float32, in evaluation mode, with the head its checkpoint was saved with.

    Args:
        name: a folder (of transformers, or saved by headwise), a hub id, or "demo" for the embedded MiniLM.

    Raises:
        HeadwiseError: there is no such model, or it needs code of its own, which is never run.
    """
    import torch
    import transformers

    place = default_model() if name in (EMBEDDED, "default") else name
    if (Path(place) / manifest.NAME).is_file():
        saved = loading.load(place)
        return getattr(saved, "encoder", saved)
    try:
        config = transformers.AutoConfig.from_pretrained(place)
        names = [kind for kind in config.architectures or () if hasattr(transformers, kind)]
        kind = getattr(transformers, names[0]) if names else transformers.AutoModel
        return kind.from_pretrained(place, dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        raise HeadwiseError(
            f"could not open the model {name!r}: {str(error).splitlines()[0]} "
            "Give a folder with config.json and model.safetensors, the id of a model on the hub, or 'demo' for the embedded one"
        ) from error
