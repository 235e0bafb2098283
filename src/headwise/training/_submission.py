"""GLUE submission files of trained models."""

from pathlib import Path

from headwise.tasks import GLUE_FILES, write_glue
from headwise.training._grid import Comparison


def write_submissions(comparison: Comparison, out: str | Path, split: str = "test") -> list[Path]:
    """Writes the predictions of GLUE tasks on `split` as the benchmark wants them, into `glue` beside each
    training's results.

    Args:
        comparison: whose trainings predicted that split.
        out: only used where a result has no folder of its own.
        split: the unlabelled split.

    Returns:
        the files written.
    """
    written: list[Path] = []
    for (method, seed), result in comparison.results.items():
        folder = (result.folder or Path(out) / method / f"seed-{seed}") / "glue"
        rows = result.predictions[
            (result.predictions["split"] == split) & result.predictions["task"].isin(GLUE_FILES)
        ]
        glue = {
            str(name): task_rows.sort_values("example")["prediction"].to_numpy()
            for name, task_rows in rows.groupby("task")
        }
        if glue:
            written += write_glue(glue, folder)
    return written
