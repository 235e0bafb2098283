"""The papers' experiments and the recipe models, each a short text over the rooms below."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.studies._probing_study import probes_of as probes_of
    from headwise.studies._similarity_study import similarity_study as similarity_study

# kind of study in a recipe -> "module:object", the object being a `headwise.engine.Study`; imported when a recipe asks for it
STUDIES: dict[str, str] = {
    "training": "headwise.studies._training:study",
    "specialization": "headwise.studies._specialization:study",
    "stem-cells": "headwise.studies._stemcells_study:study",
    "head-finetuning": "headwise.studies._probing_finetuning:study",
    "probing": "headwise.studies._probing_study:study",
    "similarity": "headwise.studies._similarity_study:study",
    "transfer": "headwise.studies._transfer_study:study",
}

_WHERE = {
    "probes_of": "_probing_study",
    "similarity_study": "_similarity_study",
}
__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.studies", _WHERE)
