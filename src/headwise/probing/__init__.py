"""What head outputs know: probes, and embeddings built from chosen heads.

probes = probe(model, tasks)          # every head and every layer, all L2 strengths, at once
probes.table(), probes.heatmap(), probes.top(12)
HeadEmbedding(model, probes.top(12)).encode(texts)
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.probing._embedding import HeadEmbedding as HeadEmbedding
    from headwise.probing._encoder import Encoder as Encoder
    from headwise.probing._finetuning import EmbeddedModel as EmbeddedModel
    from headwise.probing._generation import generate as generate
    from headwise.probing._generation import grammar_tasks as grammar_tasks
    from headwise.probing._generation import treebank_tasks as treebank_tasks
    from headwise.probing._logistic import fit as fit
    from headwise.probing._parameter_free import FreeProbe as FreeProbe
    from headwise.probing._parameter_free import fixed_offset as fixed_offset
    from headwise.probing._parameter_free import free_probe as free_probe
    from headwise.probing._probes import probe as probe
    from headwise.probing._profiles import Profile as Profile
    from headwise.probing._profiles import profile as profile
    from headwise.probing._recorded import Recording as Recording
    from headwise.probing._recording import record as record
    from headwise.probing._results import Probes as Probes
    from headwise.probing._ridge import fit_ridge as fit_ridge
    from headwise.probing._senteval import SENTEVAL as SENTEVAL
    from headwise.probing._senteval import senteval_tasks as senteval_tasks
    from headwise.probing._settings import Generate as Generate
    from headwise.probing._settings import Probe as Probe
    from headwise.probing._settings import Profiling as Profiling
    from headwise.probing._shifts import Shift as Shift
    from headwise.probing._shifts import shift as shift

# public name -> the module that defines it; imported when first used
_WHERE = {
    "SENTEVAL": "_senteval",
    "EmbeddedModel": "_finetuning",
    "Encoder": "_encoder",
    "FreeProbe": "_parameter_free",
    "HeadEmbedding": "_embedding",
    "Generate": "_settings",
    "Probe": "_settings",
    "Probes": "_results",
    "Profile": "_profiles",
    "Profiling": "_settings",
    "Recording": "_recorded",
    "Shift": "_shifts",
    "fit": "_logistic",
    "fit_ridge": "_ridge",
    "fixed_offset": "_parameter_free",
    "free_probe": "_parameter_free",
    "generate": "_generation",
    "grammar_tasks": "_generation",
    "probe": "_probes",
    "profile": "_profiles",
    "record": "_recording",
    "senteval_tasks": "_senteval",
    "shift": "_shifts",
    "treebank_tasks": "_generation",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.probing", _WHERE)
