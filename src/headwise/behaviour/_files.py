"""Roles on disk: netCDF, beside a manifest that `headwise.load` reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.behaviour._section import HeadRoles
from headwise.scoring import load_scores, save_scores
from headwise.store import manifest

KIND, NAME = "roles", "roles.nc"


def keep(found: HeadRoles, folder: Path, **noted: Any) -> HeadRoles:
    """Writes a folder of roles; gives them back."""
    with manifest.new_folder(folder, KIND, **noted) as aside:
        save_scores(found, aside / NAME)
    return found


def load_folder(folder: Path, record: Mapping[str, Any]) -> HeadRoles:
    """Opens what `keep` wrote; `headwise.load` calls this."""
    found = load_scores(folder / NAME).rename("role score")
    return HeadRoles(
        found.assign_coords({name: found[name].astype(str) for name in ("role", "kind")})
    )  # netCDF gives texts back as objects
