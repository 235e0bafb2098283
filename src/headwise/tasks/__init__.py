"""What a model is asked: text, labels, metric, and where examples come from.

task = Task("reviews", path="reviews.csv", text="review", label="stars")
encoded = encode(task.split("train"), tokenizer, max_length=128)
for batch in batches(encoded, 32, seed=0): ...
"""

from headwise.tasks import grammar, readers
from headwise.tasks.ag_pair import ag_pair
from headwise.tasks.batching import Batch, Batches, batches, collate
from headwise.tasks.encoding import Encoded, encode
from headwise.tasks.examples import Example, Examples
from headwise.tasks.kinds import KINDS, SEQUENCE_KINDS, TOKEN_KINDS, WORD_KINDS, Kind
from headwise.tasks.metrics import METRICS, Metric
from headwise.tasks.naming import find_tasks
from headwise.tasks.presets import PRESETS, preset, presets
from headwise.tasks.sentence import Predicate, Sentence, Span, Tree
from headwise.tasks.structured import structured
from headwise.tasks.submission import write_glue
from headwise.tasks.task import Task
from headwise.tasks.toml import read_toml

__all__ = [
    "KINDS",
    "METRICS",
    "PRESETS",
    "SEQUENCE_KINDS",
    "TOKEN_KINDS",
    "WORD_KINDS",
    "Batch",
    "Batches",
    "Encoded",
    "Example",
    "Examples",
    "Kind",
    "Metric",
    "Predicate",
    "Sentence",
    "Span",
    "Task",
    "Tree",
    "ag_pair",
    "batches",
    "collate",
    "encode",
    "find_tasks",
    "grammar",
    "preset",
    "presets",
    "read_toml",
    "readers",
    "structured",
    "write_glue",
]
