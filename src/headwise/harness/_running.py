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

Change = Callable[[Heads], AbstractContextManager[Any]]
SETTINGS_SHOWN = ("fewshot", "limit", "bootstrap", "level", "seed")


@operation(Evaluate)
def run_harness(model: Any, tasks: str | Sequence[str], settings: Evaluate) -> HarnessResult:
    """Runs tasks of EleutherAI's lm-evaluation-harness on the intact model and on the changed one, paired
    example by example.

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
    description, change = described_change(settings)
    if settings.out is not None:
        manifest.check_absent(settings.out)
    if find_spec("lm_eval") is None:
        raise MissingExtra("lm-eval", "eval")
    model, tokenizer = open_with_tokenizer(model, settings, settings.tokenizer)
    with twinned(model, settings.heads or Heads(model)) as (model, heads):
        with torch.no_grad(), change(heads):
            model(**heads.example)  # a change that does not fit fails before the intact model's evaluation
        evaluate = _evaluation(model, tokenizer, names, settings)
        intact = evaluate()
        with change(heads):
            changed = evaluate()
    examples, notes = paired(intact, changed)
    facts = {
        "change": description,
        "tasks": names,
        "model": str(model.config.name_or_path) or type(model).__name__,
        **{name: getattr(settings, name) for name in SETTINGS_SHOWN},
    }
    table = summary(examples, settings.bootstrap, settings.level, settings.seed)
    result = HarnessResult(table, examples, facts, notes)
    if settings.out is not None:
        result.save(settings.out)
    return result


def described_change(settings: Evaluate) -> tuple[str, Change]:
    """What is changed, in words, and the block that changes it.

    Raises:
        HeadwiseError: not exactly one change is given, or a file does not hold one.
    """
    changes = [name for name in ("silence", "gates", "steer") if getattr(settings, name) is not None]
    if len(changes) != 1:
        raise HeadwiseError(
            f"give exactly one of silence, gates and steer; got {' and '.join(changes) or 'none'}"
        )
    if settings.strength is not None and changes != ["steer"]:
        raise HeadwiseError("strength applies to steering alone: give steer as well")
    if settings.silence is not None:
        silenced = _head_set(settings.silence)
        if not silenced:
            raise HeadwiseError("silence holds no heads, so nothing would be changed")
        return f"silenced: {silenced}", lambda heads: heads.silenced(silenced)
    if settings.gates is not None:
        gates = _gates(settings.gates)
        description = f"gates on {tuple(gates.shape)} heads, mean {float(gates.mean()):.3g}"
        return description, lambda heads: heads.gated(gates)
    steering = settings.steer
    if not isinstance(steering, Steering):
        steering = load(steering)
    if not isinstance(steering, Steering):
        raise HeadwiseError(
            f"{settings.steer} holds a {type(steering).__name__}, not a result of `headwise steer`"
        )
    strength = settings.strength or steering.strength
    if not strength:
        raise HeadwiseError(
            "the chosen strength of this steering is 0, so nothing would be changed: give strength"
        )
    description = f"steered with strength {strength:g}: {HeadSet(steering.vectors)}"
    return description, lambda heads: steering.applied(heads, strength)


def _head_set(source: Any) -> HeadSet:
    return HeadSet.from_json(_text(source)) if isinstance(source, str | Path) else HeadSet(source)


def _gates(source: Any) -> torch.Tensor:
    """(layers, heads)"""
    if isinstance(source, str | Path) and Path(source).suffix == ".npy":
        with reading(source, "an array of gates"):
            source = np.load(source, allow_pickle=False)
    elif isinstance(source, str | Path):
        source = parse_json(
            _text(source), f"{source}: gates are a JSON list with one list of numbers per layer"
        )
    try:
        gates = torch.as_tensor(np.asarray(source, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise HeadwiseError(f"gates are numbers, one list of equal length per layer: {error}") from None
    if gates.ndim != 2 or not bool(gates.isfinite().all()):
        raise HeadwiseError(f"gates are finite numbers (layers × heads); got shape {tuple(gates.shape)}")
    return gates


def _text(path: str | Path) -> str:
    if not Path(path).is_file():
        raise HeadwiseError(f"looked for {path}, which does not exist")
    return Path(path).read_text(encoding="utf-8")


def _evaluation(model: Any, tokenizer: Any, names: list[str], settings: Evaluate) -> Callable[[], Samples]:
    """A function that evaluates the model as it is when called."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(settings.include) if settings.include else None)
    unknown = [name for name in names if name not in manager.all_tasks]
    if unknown:
        raise HeadwiseError(
            f"lm-eval has no task {unknown[0]!r}; `lm-eval ls tasks` lists them, and --include adds a folder "
            "of your own"
        )
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=settings.batch_size, max_length=None)

    def evaluate() -> Samples:
        with _without_git():
            evaluation = lm_eval.simple_evaluate(
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
        samples: Samples = evaluation["samples"]
        return samples

    return evaluate


@contextmanager
def _without_git() -> Iterator[None]:
    """The harness does not ask git for the commit of the current folder, which prints "fatal: not a git
    repository" where there is none."""
    from lm_eval import evaluator

    get_git_commit_hash = evaluator.get_git_commit_hash
    evaluator.get_git_commit_hash = lambda: None
    try:
        yield
    finally:
        evaluator.get_git_commit_hash = get_git_commit_hash
