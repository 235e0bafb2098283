"""GLUE submission files: predictions of the unlabelled test sets, as the benchmark's server wants them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from headwise._base.writing import make_folder, write_bytes
from headwise.errors import HeadwiseError

NLI = ("entailment", "neutral", "contradiction")
TWO = ("entailment", "not_entailment")
# task -> file name, what each class number is called there (None: 0 or 1; for stsb a score)
GLUE_FILES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "cola": ("CoLA.tsv", None),
    "sst2": ("SST-2.tsv", None),
    "mrpc": ("MRPC.tsv", None),
    "stsb": ("STS-B.tsv", None),
    "qqp": ("QQP.tsv", None),
    "mnli": ("MNLI-m.tsv", NLI),
    "mnli_mm": ("MNLI-mm.tsv", NLI),
    "qnli": ("QNLI.tsv", TWO),
    "rte": ("RTE.tsv", TWO),
    "wnli": ("WNLI.tsv", None),
    "ax": ("AX.tsv", NLI),
}


def write_glue(predictions: Mapping[str, ArrayLike], folder: str | Path) -> list[Path]:
    """Writes one file per task: a header `index TAB prediction`, then a line for every test example in the
    set's own order.

    Args:
        predictions: {preset name: predictions (n,) of the test split, in its order}: class numbers, or scores
            for stsb (cut to 0–5).
        folder: where the files go; made if needed.

    Returns:
        The files written.

    Raises:
        HeadwiseError: not a GLUE task, or a prediction that is not one of its classes.
    """
    where = make_folder(folder)
    written = []
    for task, values in predictions.items():
        if task not in GLUE_FILES:
            raise HeadwiseError(f"{task!r} is not a GLUE task; expected some of {', '.join(GLUE_FILES)}")
        name, classes = GLUE_FILES[task]
        array = np.asarray(values)
        if array.ndim != 1 or (task == "stsb" and not np.isfinite(array).all()):
            raise HeadwiseError(
                f"predictions of {task!r} must be (n,) finite numbers, got shape {array.shape}"
            )
        if task == "stsb":
            lines = [f"{value:.3f}" for value in np.clip(array, 0, 5)]
        else:
            names = classes or ("0", "1")
            count = len(names)
            wrong = np.flatnonzero((array != array.astype(np.int64)) | (array < 0) | (array >= count))
            if len(wrong):
                raise HeadwiseError(
                    f"prediction {wrong[0]} of {task!r} is {array[wrong[0]]}, not a class number below "
                    f"{count}"
                )
            lines = [names[int(value)] for value in array]
        rows = ["index\tprediction", *(f"{i}\t{line}" for i, line in enumerate(lines))]
        file = where / name
        write_bytes(file, "".join(f"{row}\n" for row in rows).encode())
        written.append(file)
    return written
