"""How alike two tasks are, from vectors and predictions."""

from headwise.similarity._affinity import ahp, transfer_affinity
from headwise.similarity._brain import BrainData, cnm, encoding_scores, read_pereira
from headwise.similarity._heads import head_similarity
from headwise.similarity._link import LinkResult, agreement, link
from headwise.similarity._mantel import MantelResult, mantel, partial_mantel
from headwise.similarity._representations import cra, dse, sentence_vectors

__all__ = [
    "BrainData",
    "LinkResult",
    "MantelResult",
    "agreement",
    "ahp",
    "cnm",
    "cra",
    "dse",
    "encoding_scores",
    "head_similarity",
    "link",
    "mantel",
    "partial_mantel",
    "read_pereira",
    "sentence_vectors",
    "transfer_affinity",
]
