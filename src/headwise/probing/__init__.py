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
    from headwise.probing._generation import (
        generate as generate,
        grammar_tasks as grammar_tasks,
        treebank_tasks as treebank_tasks,
    )
    from headwise.probing._logistic import fit as fit
    from headwise.probing._parameter_free import fixed_offset as fixed_offset, free_probe as free_probe
    from headwise.probing._probes import probe as probe
    from headwise.probing._profiles import profile as profile
    from headwise.probing._recording import record as record
    from headwise.probing._results import Probes as Probes
    from headwise.probing._senteval import senteval_tasks as senteval_tasks
    from headwise.probing._shifts import shift as shift

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.probing._fits import SPLIT_NAMES, Labels
    from headwise.probing._parameter_free import FreeProbe
    from headwise.probing._probes import probe_heads
    from headwise.probing._profiles import Profile
    from headwise.probing._recorded import Recording
    from headwise.probing._recording import NOT_KEPT
    from headwise.probing._results import ranked_heads
    from headwise.probing._ridge import fit_ridge
    from headwise.probing._section import BARS_NOTE, top_against
    from headwise.probing._senteval import SENTEVAL, senteval_name
    from headwise.probing._settings import BASELINES, Generate, Probe, ProbingTasks, Profiling, Source
    from headwise.probing._shifts import Shift
    from headwise.probing._splits import three_splits

__getattr__, __all__ = lazily(__name__)
