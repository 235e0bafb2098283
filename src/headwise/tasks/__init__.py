"""What a model is asked: text, labels, metric, and where examples come from.

task = Task("reviews", path="reviews.csv", text="review", label="stars")
encoded = encode(task.split("train"), tokenizer, max_length=128)
for batch in batches(encoded, 32, seed=0): ...
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.tasks import grammar as grammar
    from headwise.tasks import readers as readers
    from headwise.tasks._ag_pair import ag_pair as ag_pair
    from headwise.tasks._batches import Batch as Batch
    from headwise.tasks._batches import Batches as Batches
    from headwise.tasks._batches import batches as batches
    from headwise.tasks._batches import collate as collate
    from headwise.tasks._encoding import Encoded as Encoded
    from headwise.tasks._encoding import encode as encode
    from headwise.tasks._examples import Example as Example
    from headwise.tasks._examples import Examples as Examples
    from headwise.tasks._kinds import KINDS as KINDS
    from headwise.tasks._kinds import SEQUENCE_KINDS as SEQUENCE_KINDS
    from headwise.tasks._kinds import TOKEN_KINDS as TOKEN_KINDS
    from headwise.tasks._kinds import WORD_KINDS as WORD_KINDS
    from headwise.tasks._kinds import Kind as Kind
    from headwise.tasks._metrics import METRICS as METRICS
    from headwise.tasks._metrics import Metric as Metric
    from headwise.tasks._names import find_tasks as find_tasks
    from headwise.tasks._presets import PRESETS as PRESETS
    from headwise.tasks._presets import preset as preset
    from headwise.tasks._presets import presets as presets
    from headwise.tasks._sentence import Predicate as Predicate
    from headwise.tasks._sentence import Sentence as Sentence
    from headwise.tasks._sentence import Span as Span
    from headwise.tasks._sentence import Tree as Tree
    from headwise.tasks._structured import structured as structured
    from headwise.tasks._submission import write_glue as write_glue
    from headwise.tasks._task import Task as Task
    from headwise.tasks._toml import read_toml as read_toml

# public name -> the module that defines it, "" for a folder of this room; imported when first used, since some need torch or pandas
_WHERE = {
    "Batch": "_batches",
    "Batches": "_batches",
    "Encoded": "_encoding",
    "Example": "_examples",
    "Examples": "_examples",
    "KINDS": "_kinds",
    "Kind": "_kinds",
    "METRICS": "_metrics",
    "Metric": "_metrics",
    "PRESETS": "_presets",
    "Predicate": "_sentence",
    "SEQUENCE_KINDS": "_kinds",
    "Sentence": "_sentence",
    "Span": "_sentence",
    "TOKEN_KINDS": "_kinds",
    "Task": "_task",
    "Tree": "_sentence",
    "WORD_KINDS": "_kinds",
    "ag_pair": "_ag_pair",
    "batches": "_batches",
    "collate": "_batches",
    "encode": "_encoding",
    "find_tasks": "_names",
    "grammar": "",
    "preset": "_presets",
    "presets": "_presets",
    "read_toml": "_toml",
    "readers": "",
    "structured": "_structured",
    "write_glue": "_submission",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.tasks", _WHERE)
