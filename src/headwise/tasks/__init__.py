"""What a model is asked: text, labels, metric, and where examples come from.

task = Task("reviews", path="reviews.csv", text="review", label="stars")
encoded = encode(task.split("train"), tokenizer, max_length=128)
for batch in batches(encoded, 32, seed=0): ...
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.tasks import readers as readers
    from headwise.tasks._batches import batches as batches
    from headwise.tasks._encoding import encode as encode
    from headwise.tasks._examples import Examples as Examples
    from headwise.tasks._head_rules import with_dependencies as with_dependencies
    from headwise.tasks._kinds import KINDS as KINDS, Kind as Kind
    from headwise.tasks._metrics import METRICS as METRICS, Metric as Metric
    from headwise.tasks._names import read_toml as read_toml
    from headwise.tasks._presets import PRESETS as PRESETS, preset as preset, presets as presets
    from headwise.tasks._sentence import Sentence as Sentence
    from headwise.tasks._structured import structured as structured
    from headwise.tasks._submission import write_glue as write_glue
    from headwise.tasks._task import Task as Task

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.tasks import _metrics as metrics, _sources as sources
    from headwise.tasks._ag_pair import ag_pair
    from headwise.tasks._batches import (
        BATCH_FIELDS,
        BUSY_TOKENS,
        MOST_TOKENS,
        Batch,
        Batches,
        collate,
        shuffled_plan,
    )
    from headwise.tasks._columns import column_values, read_texts
    from headwise.tasks._encoding import Encoded, own_limit
    from headwise.tasks._examples import Example
    from headwise.tasks._kinds import IGNORED, check_one_answer
    from headwise.tasks._labels import room_of_labels
    from headwise.tasks._metrics import (
        CHANCE_MEANING,
        at_chance,
        chance_level,
        chance_note,
        metric_label,
        metrics_of_kind,
    )
    from headwise.tasks._names import as_tasks, find_tasks
    from headwise.tasks._prefetch import on_device, prefetched
    from headwise.tasks._sentence import Predicate, Span, Tree, bare_label
    from headwise.tasks._source import TaskSource
    from headwise.tasks._sources import folder_files
    from headwise.tasks._splits import SPLIT_FRACTIONS, by_fraction, text_key
    from headwise.tasks._submission import GLUE_FILES
    from headwise.tasks._tables import open_text, read_table
    from headwise.tasks._texts import keep_texts

__getattr__, __all__ = lazily(__name__)
