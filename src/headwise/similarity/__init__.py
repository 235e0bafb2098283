"""How alike two tasks are, from vectors and predictions."""

from headwise.similarity.affinity import ahp, transfer_affinity
from headwise.similarity.brain import BrainData, cnm, encoding_scores, read_pereira
from headwise.similarity.heads import head_similarity
from headwise.similarity.link import LinkResult, agreement, link
from headwise.similarity.mantel import MantelResult, mantel, partial_mantel
from headwise.similarity.representations import cra, dse, sentence_vectors

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
