"""Opening a model by name, to look at it."""

from pathlib import Path
from typing import Any

from headwise import loading, manifest
from headwise.opener import open_config, open_weights, own_kind, trusting
from headwise.places import model_place


def open_model(name: str, *, trust_remote_code: bool = False) -> Any:
    """Opens a model in float32, in evaluation mode, with the head its checkpoint was saved with.

    Args:
        name: a folder (of transformers, or saved by headwise), a hub id, or "demo" for the embedded MiniLM.
        trust_remote_code: run code that the model brings along; read it first.

    Raises:
        HeadwiseError: there is no such model, it is not complete, or it needs code of its own.
    """
    place = model_place(name)
    with trusting(trust_remote_code):
        if (Path(place) / manifest.NAME).is_file():
            saved = loading.load(place)
            return getattr(saved, "encoder", saved)
        config = open_config(place)
        return open_weights(own_kind(config), place, config)
