"""The whole of the first question on the embedded model and corpus: train five tasks, score, lesion, dissociate, report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwise.figures import save_figure
from headwise.heads import default_model
from headwise.lesions import dissociate
from headwise.tasks import grammar
from headwise.training import train

TASKS = ("topic", "tense", "subject_number", "object_number", "sentiment")


def run_demo(
    out: str | Path, *, size: int = 800, epochs: int = 4, random_draws: int = 5, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Runs the demo in the folder `out`; run again, it resumes.

    Args:
        out: the folder.
        size: training sentences of each task; they are generated, and called synthetic wherever their numbers appear.
        epochs: of the multi-task training.
        random_draws: random lesions to compare with.
        say: receives a line for each stage.

    Returns:
        tables and the files written.

    Raises:
        HeadwiseError: the folder holds a training or a dissociation that was made otherwise.
    """
    out = Path(out)
    tasks = grammar.tasks(TASKS, size=size, shared_words=True)
    say(f"training the embedded MiniLM on five synthetic tasks ({', '.join(TASKS)}), {size} sentences each")
    settings: dict[str, Any] = {"learning_rate": 3e-4, "max_length": 48, "pooling": "mean"}
    trained = train(str(default_model()), tasks, "multi-task", out=out / "model", epochs=epochs, **settings)
    folder = out / "dissociation"
    how: dict[str, Any] = {"fraction": 0.3, "random_draws": random_draws, "max_length": 48}
    say("scoring every head for every task, then silencing each task's top 30 %")
    found = dissociate(out / "model", tasks, out=folder, **how)
    files = [file for kind in found.figures for file in save_figure(found.plot(kind), out / "figures" / kind)]
    return {
        "scores": trained.table(),
        "performance": found.table("performance"),
        "pairs": found.table("pairs"),
        "d": found.d,
        "figures": files,
        "folders": [out / "model", folder],
    }
