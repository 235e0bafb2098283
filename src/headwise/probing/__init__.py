"""What head outputs know: probes, and embeddings built from chosen heads.

probes = probe(model, tasks)          # every head and every layer, all L2 strengths, at once
probes.table(), probes.heatmap(), probes.top(12)
HeadEmbedding(model, probes.top(12)).encode(texts)
"""

from typing import TYPE_CHECKING

from headwise.lazy import lazily

if TYPE_CHECKING:
    from headwise.probing.balancing import Options as Options
    from headwise.probing.embedding import HeadEmbedding as HeadEmbedding
    from headwise.probing.encoder import Encoder as Encoder
    from headwise.probing.finetuning import EmbeddedModel as EmbeddedModel
    from headwise.probing.generation import generate as generate
    from headwise.probing.generation import grammar_tasks as grammar_tasks
    from headwise.probing.generation import treebank_tasks as treebank_tasks
    from headwise.probing.logistic import fit as fit
    from headwise.probing.parameter_free import FreeProbe as FreeProbe
    from headwise.probing.parameter_free import fixed_offset as fixed_offset
    from headwise.probing.parameter_free import free_probe as free_probe
    from headwise.probing.probes import probe as probe
    from headwise.probing.profiles import Profile as Profile
    from headwise.probing.profiles import profile as profile
    from headwise.probing.reading import Recording as Recording
    from headwise.probing.recording import record as record
    from headwise.probing.results import Probes as Probes
    from headwise.probing.ridge import fit_ridge as fit_ridge
    from headwise.probing.senteval import SENTEVAL as SENTEVAL
    from headwise.probing.senteval import senteval_tasks as senteval_tasks
    from headwise.probing.shifts import Shift as Shift
    from headwise.probing.shifts import shift as shift

# public name -> the module that defines it; imported when first used
_WHERE = {
    "SENTEVAL": "senteval",
    "EmbeddedModel": "finetuning",
    "Encoder": "encoder",
    "FreeProbe": "parameter_free",
    "HeadEmbedding": "embedding",
    "Options": "balancing",
    "Probes": "results",
    "Profile": "profiles",
    "Recording": "reading",
    "Shift": "shifts",
    "fit": "logistic",
    "fit_ridge": "ridge",
    "fixed_offset": "parameter_free",
    "free_probe": "parameter_free",
    "generate": "generation",
    "grammar_tasks": "generation",
    "probe": "probes",
    "profile": "profiles",
    "record": "recording",
    "senteval_tasks": "senteval",
    "shift": "shifts",
    "treebank_tasks": "generation",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.probing", _WHERE)
