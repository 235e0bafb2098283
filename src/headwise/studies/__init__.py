"""The papers' experiments and the recipe models, each a short text over the rooms below."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.studies._probing_study import probes_of as probes_of
    from headwise.studies._similarity_study import similarity_study as similarity_study
    from headwise.studies._stemcells import (
        claim as claim,
        claim_agreement as claim_agreement,
        stem_cell_test as stem_cell_test,
        stem_cells as stem_cells,
    )
    from headwise.studies._stemcells_effects import stem_cell_effect as stem_cell_effect
    from headwise.studies._stemcells_settings import SMALL as SMALL, StemCells
    from headwise.studies._stemcells_study import stem_cell_study as stem_cell_study
    from headwise.studies._transfer import (
        compare_transfers as compare_transfers,
        summary as summary,
        transfer as transfer,
    )

# kind of study in a recipe -> "module:object", the object being a `headwise.engine.Study`; imported when a
# recipe asks for it
STUDIES: dict[str, str] = {
    "training": "headwise.studies._training:study",
    "specialization": "headwise.studies._specialization:study",
    "stem-cells": "headwise.studies._stemcells_study:stemcells_study",
    "head-finetuning": "headwise.studies._probing_finetuning:study",
    "probing": "headwise.studies._probing_study:probing_study",
    "similarity": "headwise.studies._similarity_study:SIMILARITY",
    "transfer": "headwise.studies._transfer_study:transfer_study",
    "estimators": "headwise.studies._estimators_study:study",
    "roles": "headwise.studies._roles_study:study",
}

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.studies._demo import run_demo
    from headwise.studies._probing_study import probing_study
    from headwise.studies._similarity_study import SIMILARITY
    from headwise.studies._stemcells_settings import SMALL_RECIPE
    from headwise.studies._stemcells_study import stemcells_study
    from headwise.studies._trained import part_of_single, single_task_models, trained_models
    from headwise.studies._transfer_study import transfer_study

__getattr__, __all__ = lazily(__name__)
__all__ += ["STUDIES"]
