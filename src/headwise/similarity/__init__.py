"""How alike two tasks are, from vectors and predictions."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.similarity._affinity import ahp as ahp
    from headwise.similarity._brain import BrainData as BrainData, cnm as cnm, read_pereira as read_pereira
    from headwise.similarity._heads import head_similarity as head_similarity
    from headwise.similarity._link import link as link
    from headwise.similarity._mantel import mantel as mantel, partial_mantel as partial_mantel
    from headwise.similarity._matrices import labelled as labelled
    from headwise.similarity._representations import (
        cra as cra,
        dse as dse,
        sentence_vectors as sentence_vectors,
    )

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.similarity._affinity import transfer_affinity
    from headwise.similarity._brain import encoding_scores
    from headwise.similarity._link import agreement
    from headwise.similarity._settings import Similarity

__getattr__, __all__ = lazily(__name__)
