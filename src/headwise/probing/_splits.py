"""The three splits a probe needs: to fit on, to choose on, to report."""

from headwise.errors import HeadwiseError
from headwise.probing._fits import SPLIT_NAMES
from headwise.tasks import Examples, Task, by_fraction, check_one_answer, text_key

CARVED = {"train": 0.9, "validation": 0.1}  # of train, where nothing else is left to choose on


def three_splits(task: Task, examples: int | None = None, seed: int = 0) -> dict[str, Examples]:
    """Train, validation and test examples, all labelled; at most `examples` of each.

    A task without a labelled test split is tested on its validation split. Where no validation split is left
    it is carved from train (10 %, identical texts kept together), so that nothing is ever chosen on the
    examples that are reported.
    """
    splits = _labelled(task)
    if examples is not None:
        splits = {name: split.sample(examples, seed) for name, split in splits.items()}
    if len(splits) < len(SPLIT_NAMES):
        train = splits["train"]
        splits["test"] = splits.get("test", splits.get("validation", train))
        # a tenth may have been cut out of train by the same hash: by that, nothing of what is left would be
        # cut out again
        prefix = "probed\x1f" if task.validation_carved else ""
        rows = by_fraction([prefix + text_key(text) for text in train.texts], CARVED, seed)
        splits |= {name: train.subset(rows[name]) for name in CARVED}
    return splits


def carved(task: Task) -> bool:
    """Whether a task lacks a labelled validation split beside the one that it is tested on."""
    return len(_labelled(task)) < len(SPLIT_NAMES) or task.validation_carved


def _labelled(task: Task) -> dict[str, Examples]:
    check_one_answer(task.name, task.kind, "probes read")
    splits = {name: task.split(name) for name in SPLIT_NAMES if name in task.splits}
    labelled = {name: split for name, split in splits.items() if split.labelled}
    if "train" not in labelled or len(labelled) < 2:
        raise HeadwiseError(
            f"task {task.name!r} has the labelled splits {', '.join(labelled) or 'none'}: train and one more "
            "are needed"
        )
    return labelled
