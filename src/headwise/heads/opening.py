"""Opening a model by name, to look at it."""

from pathlib import Path
from typing import Any

from headwise import loading, manifest
from headwise.places import model_place, not_opened


def open_model(name: str) -> Any:
    """Opens a model in float32, in evaluation mode, with the head its checkpoint was saved with.

    Args:
        name: a folder (of transformers, or saved by headwise), a hub id, or "demo" for the embedded MiniLM.

    Raises:
        HeadwiseError: there is no such model, or it needs code of its own, which is never run.
    """
    import torch
    import transformers

    place = model_place(name)
    if (Path(place) / manifest.NAME).is_file():
        saved = loading.load(place)
        return getattr(saved, "encoder", saved)
    try:
        config = transformers.AutoConfig.from_pretrained(place)
        names = [kind for kind in config.architectures or () if hasattr(transformers, kind)]
        kind = getattr(transformers, names[0]) if names else transformers.AutoModel
        return kind.from_pretrained(place, dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        raise not_opened(name, error) from error
