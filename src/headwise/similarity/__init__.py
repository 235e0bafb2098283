"""How alike two tasks are, from vectors and predictions."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.similarity._affinity import ahp as ahp, transfer_affinity as transfer_affinity
    from headwise.similarity._brain import (
        BrainData as BrainData,
        cnm as cnm,
        encoding_scores as encoding_scores,
        read_pereira as read_pereira,
    )
    from headwise.similarity._heads import head_similarity as head_similarity
    from headwise.similarity._link import LinkResult as LinkResult, agreement as agreement, link as link
    from headwise.similarity._mantel import (
        MantelResult as MantelResult,
        mantel as mantel,
        partial_mantel as partial_mantel,
    )
    from headwise.similarity._matrices import labelled as labelled
    from headwise.similarity._representations import (
        cra as cra,
        dse as dse,
        sentence_vectors as sentence_vectors,
    )
    from headwise.similarity._settings import Similarity as Similarity

__getattr__, __all__ = lazily(__name__)
