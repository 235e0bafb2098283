"""How alike two tasks are, from vectors and predictions."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.similarity._affinity import ahp as ahp
    from headwise.similarity._affinity import transfer_affinity as transfer_affinity
    from headwise.similarity._brain import BrainData as BrainData
    from headwise.similarity._brain import cnm as cnm
    from headwise.similarity._brain import encoding_scores as encoding_scores
    from headwise.similarity._brain import read_pereira as read_pereira
    from headwise.similarity._heads import head_similarity as head_similarity
    from headwise.similarity._link import LinkResult as LinkResult
    from headwise.similarity._link import agreement as agreement
    from headwise.similarity._link import link as link
    from headwise.similarity._mantel import MantelResult as MantelResult
    from headwise.similarity._mantel import mantel as mantel
    from headwise.similarity._mantel import partial_mantel as partial_mantel
    from headwise.similarity._matrices import labelled as labelled
    from headwise.similarity._representations import cra as cra
    from headwise.similarity._representations import dse as dse
    from headwise.similarity._representations import sentence_vectors as sentence_vectors
    from headwise.similarity._settings import Similarity as Similarity

# public name -> the module that defines it; imported when first used
_WHERE = {
    "BrainData": "_brain",
    "LinkResult": "_link",
    "MantelResult": "_mantel",
    "Similarity": "_settings",
    "agreement": "_link",
    "ahp": "_affinity",
    "cnm": "_brain",
    "cra": "_representations",
    "dse": "_representations",
    "encoding_scores": "_brain",
    "head_similarity": "_heads",
    "labelled": "_matrices",
    "link": "_link",
    "mantel": "_mantel",
    "partial_mantel": "_mantel",
    "read_pereira": "_brain",
    "sentence_vectors": "_representations",
    "transfer_affinity": "_affinity",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.similarity", _WHERE)
