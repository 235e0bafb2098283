"""`headwise.harness.run_harness`: compare a changed model with the intact one in lm-evaluation-harness."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise._base.parsing import parse_json, reading
from headwise.errors import HeadwiseError, MissingExtra
from headwise.harness._pairing import Samples, paired, summary
from headwise.harness._result import HarnessResult
from headwise.harness._settings import Evaluate
from headwise.heads import Heads, HeadSet, twinned
from headwise.models import open_with_tokenizer
from headwise.settings import operation
from headwise.steering import Steering
from headwise.store import load, manifest

Change = tuple[str, Callable[[Heads], AbstractContextManager[Any]]]


@operation(Evaluate)
def run_harness(model: Any, tasks: str | Sequence[str], settings: Evaluate) -> HarnessResult:
    """Runs tasks of EleutherAI's lm-evaluation-harness on the intact model and on the changed one, paired example by example.

    Args:
        model: a language model: a folder, a hub id, a GGUF file, a live transformers model.
        tasks: names of the harness's tasks, or of those in the folder `include`.

    Returns:
        both models, their differences with intervals over examples, and every example: see `HarnessResult`.

    Raises:
        MissingExtra: lm-eval is not installed (extra `eval`).
    """
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    if not names:
        raise HeadwiseError("there are no tasks to evaluate: give names of lm-eval's tasks")
    said, changed = changing(settings)
    if settings.out is not None:
        manifest.check_absent(settings.out)
    if find_spec("lm_eval") is None:
        raise MissingExtra("lm-eval", "eval")
    live, tokenizer = open_with_tokenizer(model, settings, settings.tokenizer)
    with twinned(live, settings.heads or Heads(live)) as (live, heads):
        with torch.no_grad(), changed(heads):
            live(
                **heads.example
            )  # says now, not after the intact model's evaluation, if the change does not fit
        run = _harness(live, tokenizer, names, settings)
        intact = run()
        with changed(heads):
            other = run()
    examples, notes = paired(intact, other)
    noted = ("fewshot", "limit", "bootstrap", "level", "seed")
    facts = {
        "change": said,
        "tasks": names,
        "model": str(live.config.name_or_path) or type(live).__name__,
        **{name: getattr(settings, name) for name in noted},
    }
    result = HarnessResult(
        summary(examples, settings.bootstrap, settings.level, settings.seed), examples, facts, notes
    )
    if settings.out is not None:
        result.save(settings.out)
    return result


def changing(settings: Evaluate) -> Change:
    """What is changed, in words, and the block that changes it.

    Raises:
        HeadwiseError: not exactly one change is given, or a file does not hold one.
    """
    given = [name for name in ("silence", "gates", "steer") if getattr(settings, name) is not None]
    if len(given) != 1:
        raise HeadwiseError(
            f"give exactly one of silence, gates and steer; got {' and '.join(given) or 'none'}"
        )
    if settings.strength is not None and given != ["steer"]:
        raise HeadwiseError("strength applies to steering alone: give steer as well")
    if settings.silence is not None:
        given = settings.silence
        chosen = HeadSet.from_json(_text(given)) if isinstance(given, str | Path) else HeadSet(given)
        if not chosen:
            raise HeadwiseError("silence holds no heads, so nothing would be changed")
        return f"silenced: {chosen}", lambda heads: heads.silenced(chosen)
    if settings.gates is not None:
        gates = _gates(settings.gates)
        return (
            f"gates on {tuple(gates.shape)} heads, mean {float(gates.mean()):.3g}",
            lambda heads: heads.gated(gates),
        )
    found = settings.steer if isinstance(settings.steer, Steering) else load(settings.steer)
    if not isinstance(found, Steering):
        raise HeadwiseError(
            f"{settings.steer} holds a {type(found).__name__}, not a result of `headwise steer`"
        )
    strength = settings.strength or found.strength
    if not strength:
        raise HeadwiseError(
            "the chosen strength of this steering is 0, so nothing would be changed: give strength"
        )
    return f"steered with strength {strength:g}: {HeadSet(found.vectors)}", lambda heads: found.applied(
        heads, strength
    )


def _text(path: Any) -> str:
    if not Path(path).is_file():
        raise HeadwiseError(f"looked for {path}, which does not exist")
    return Path(path).read_text(encoding="utf-8")


def _gates(given: Any) -> torch.Tensor:
    """(layers, heads)"""
    if isinstance(given, str | Path) and Path(given).suffix == ".npy":
        with reading(given, "an array of gates"):
            given = np.load(given, allow_pickle=False)
    elif isinstance(given, str | Path):
        given = parse_json(_text(given), f"{given}: gates are a JSON list with one list of numbers per layer")
    try:
        gates = torch.as_tensor(np.asarray(given, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise HeadwiseError(f"gates are numbers, one list of equal length per layer: {error}") from None
    if gates.ndim != 2 or not bool(gates.isfinite().all()):
        raise HeadwiseError(f"gates are finite numbers (layers × heads); got shape {tuple(gates.shape)}")
    return gates


def _harness(model: Any, tokenizer: Any, names: list[str], settings: Evaluate) -> Callable[[], Samples]:
    """A function that evaluates the model as it is when called."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(settings.include) if settings.include else None)
    unknown = [name for name in names if name not in manager.all_tasks]
    if unknown:
        raise HeadwiseError(
            f"lm-eval has no task {unknown[0]!r}; `lm-eval ls tasks` lists them, and --include adds a folder of your own"
        )
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=settings.batch_size, max_length=None)

    def run() -> Samples:
        with _without_git():
            found = lm_eval.simple_evaluate(
                model=wrapped,
                tasks=names,
                num_fewshot=settings.fewshot,
                limit=settings.limit,
                bootstrap_iters=0,
                log_samples=True,
                task_manager=manager,
                random_seed=settings.seed,
                numpy_random_seed=settings.seed,
                torch_random_seed=settings.seed,
                fewshot_random_seed=settings.seed,
            )
        samples: Samples = found["samples"]
        return samples

    return run


@contextmanager
def _without_git() -> Iterator[None]:
    """The harness asks git for the commit of the current folder, which prints "fatal: not a git repository" where there is none."""
    from lm_eval import evaluator

    asked = evaluator.get_git_commit_hash
    evaluator.get_git_commit_hash = lambda: None
    try:
        yield
    finally:
        evaluator.get_git_commit_hash = asked
