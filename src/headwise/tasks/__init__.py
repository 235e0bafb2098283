"""What a model is asked: text, labels, metric, and where examples come from.

task = Task("reviews", path="reviews.csv", text="review", label="stars")
encoded = encode(task.split("train"), tokenizer, max_length=128)
for batch in batches(encoded, 32, seed=0): ...
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.tasks import grammar as grammar, readers as readers
    from headwise.tasks._ag_pair import ag_pair as ag_pair
    from headwise.tasks._batches import Batch as Batch, Batches as Batches, batches as batches, collate as collate
    from headwise.tasks._columns import column_values as column_values
    from headwise.tasks._encoding import Encoded as Encoded, encode as encode
    from headwise.tasks._examples import Example as Example, Examples as Examples
    from headwise.tasks._head_rules import with_dependencies as with_dependencies
    from headwise.tasks._kinds import KINDS as KINDS, Kind as Kind
    from headwise.tasks._metrics import METRICS as METRICS, Metric as Metric
    from headwise.tasks._names import find_tasks as find_tasks
    from headwise.tasks._presets import PRESETS as PRESETS, preset as preset, presets as presets
    from headwise.tasks._sentence import Predicate as Predicate, Sentence as Sentence, Span as Span, Tree as Tree
    from headwise.tasks._structured import structured as structured
    from headwise.tasks._submission import write_glue as write_glue
    from headwise.tasks._task import Task as Task
    from headwise.tasks._toml import read_toml as read_toml

__getattr__, __all__ = lazily(__name__)
