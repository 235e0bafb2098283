"""Few-shot fine-tuning of a trained model on a new task, many seeds at a time (functional-specialization §6,
Tables 6 and 8)."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise._base.progress import track
from headwise.errors import HeadwiseError
from headwise.heads import virtual_tokens
from headwise.models import (
    MultiTaskModel,
    answer_by_name,
    check_answers,
    check_losses,
    check_weights,
    length_within,
    longest,
    read_examples,
    token_states,
    without_plans,
)
from headwise.settings import operation
from headwise.tasks import KINDS, Encoded, Examples, Task, batches, check_one_answer, collate
from headwise.training._settings import FewShot
from headwise.training._stacked import CannotStack, Stacked, add_low_rank, set_copies
from headwise.training._stacked_check import compare

MOST_TOKENS = 131_072  # of all copies in one step: with MiniLM about 10 GB of activations


def sample_shots(examples: Examples, shots: int, seed: int) -> NDArray[np.int64]:
    """Numbers of `shots` examples in all, drawn at random but with at least one of every class; the same for
    every method.

    Raises:
        HeadwiseError: there are fewer examples, or more classes, than shots.
    """
    rng = np.random.default_rng([seed, shots])
    order = rng.permutation(len(examples))
    if shots > len(examples):
        raise HeadwiseError(f"{shots} shots requested, but there are only {len(examples)} training examples")
    if not KINDS[examples.kind].one_class:
        return np.sort(order[:shots])
    labels = np.asarray(examples.labels)
    first = [order[np.argmax(labels[order] == label)] for label in np.unique(labels)]
    if len(first) > shots:
        raise HeadwiseError(f"{shots} shots cannot hold one example of each of the {len(first)} classes")
    further = order[~np.isin(order, first)][: shots - len(first)]
    return np.sort(np.concatenate([first, further]).astype(np.int64))


@operation(FewShot, ("shots", "seeds"))
def few_shot(
    model: MultiTaskModel, task: Task, shots: int, seeds: Sequence[int], settings: FewShot
) -> xr.Dataset:
    """Fine-tunes a copy of `model` on `shots` examples of `task` for every seed, and evaluates each on
    held-out data.

    The seed decides the examples, their order, the first weights of decoder and low-rank matrices, and
    dropout. Copies are trained side by side where the architecture allows it; the result does not depend on
    how many (dropout's random numbers aside).

    Args:
        model: a trained multi-task model; it is not changed. Its device is used.
        task: of kind classes or number.
        shots: training examples in all.
        seeds: one fine-tuning each.

    Returns:
        Dataset with `score` (seed), and `prediction` and `loss` (seed, example); its attribute `note` says
        why the seeds were trained one after another, if they were.

    Raises:
        HeadwiseError: the task is of another kind, the model holds NaN, or a fine-tuning diverges.
    """
    check_one_answer(task.name, task.kind, "few-shot transfer takes")
    check_weights(model)
    train = task.split("train")
    held_out = settings.evaluate_on
    if held_out is None:
        held_out = task.split("validation")
    samples = [sample_shots(train, shots, seed) for seed in seeds]
    drawn = np.unique(np.concatenate(samples))
    length = length_within(settings.max_length or longest(model), model.encoder)
    encoded = read_examples(model.encoder, model.tokenizer, train.subset(drawn), length)
    tests = read_examples(model.encoder, model.tokenizer, held_out, length)
    # of one copy's largest batch, at most
    tokens = min(settings.batch_size, shots) * int(encoded.lengths.max(initial=1))
    copies = settings.copies or _side_by_side(model, len(seeds), tokens)
    encoder, reasons = model.new_encoder(), list[str]()
    groups = [list(range(len(seeds)))[i : i + copies] for i in range(0, len(seeds), copies)]
    predictions, losses = [], []
    for group in track(groups, f"{task.name}, {shots} shots", total=len(groups), quiet=settings.quiet):
        rows = [np.searchsorted(drawn, samples[i]) for i in group]
        for prediction, loss in _run(
            model, encoder, task, encoded, tests, rows, [seeds[i] for i in group], settings, reasons
        ):
            predictions.append(prediction)
            losses.append(loss)
    check_answers(task.name, np.stack(predictions), np.stack(losses), held_out.labelled)
    scores = [task.score(prediction, held_out.labels) for prediction in predictions]
    return xr.Dataset(
        {
            "score": ("seed", np.array(scores)),
            "prediction": (("seed", "example"), np.stack(predictions)),
            "loss": (("seed", "example"), np.stack(losses)),
        },
        coords={"seed": list(seeds)},
        attrs={
            "task": task.name,
            "shots": shots,
            "metric": str(task.metric),
            "max_length": length,
            "note": "".join(reasons),
        },
    )


def _run(
    model: MultiTaskModel,
    encoder: nn.Module,
    task: Task,
    encoded: Encoded,
    tests: Encoded,
    rows: list[NDArray[np.int64]],
    seeds: list[int],
    settings: FewShot,
    reasons: list[str],
) -> list[tuple[NDArray[Any], NDArray[np.float32]]]:
    """Trains and evaluates one group of seeds; side by side unless there is a reason not to, else one after
    another."""
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        heads = []
        for seed in seeds:
            torch.manual_seed(seed)
            heads.append(model.new_decoder(task))
        for head, row in zip(heads, rows, strict=True):
            head.standardise(np.asarray(encoded.examples.labels)[row])  # type: ignore[operator]
        torch.manual_seed(seeds[0])
        if not reasons:
            try:
                modules = _stacked_modules(encoder, heads, encoded, seeds, settings, model.device)
                return list(
                    _fit_and_evaluate(
                        modules, len(seeds), encoded, tests, rows, seeds, settings, model.device
                    )
                )
            except CannotStack as reason:
                reasons.append(f"the seeds were trained one after another: {reason}")
                warnings.warn(reasons[0], stacklevel=3)
        results: list[tuple[NDArray[Any], NDArray[np.float32]]] = []
        for head, row, seed in zip(heads, rows, seeds, strict=True):
            torch.manual_seed(seed)
            single = _single_encoder(encoder, seed, settings)
            results += _fit_and_evaluate(
                (single, head), 1, encoded, tests, [row], [seed], settings, model.device
            )
        return results


def _single_encoder(encoder: nn.Module, seed: int, settings: FewShot) -> nn.Module:
    """A copy of the encoder for one seed, with what the tuning trains requiring gradients."""
    single = deepcopy(encoder).requires_grad_(settings.tuning == "full")
    if settings.tuning == "lora":
        add_low_rank(single, settings.rank, seed)
    return single


def _stacked_modules(
    encoder: nn.Module,
    heads: list[nn.Module],
    encoded: Encoded,
    seeds: list[int],
    settings: FewShot,
    device: torch.device,
) -> tuple[nn.Module, nn.Module]:
    """Encoder and decoder for all seeds of a group, once a pass has shown that they do what the plain ones
    do."""
    if virtual_tokens(encoder):
        raise CannotStack(f"{type(encoder).__name__} has a soft prompt")
    used = torch.from_numpy(np.unique(np.append(encoded.ids, encoded.pad)).astype(np.int64)).to(device)
    decoder = Stacked(heads[0], len(heads), used)
    set_copies(decoder.model, heads)
    for name in dict(heads[0].named_buffers()):  # mean and sd of each copy's own targets
        setattr(decoder.model, name, torch.cat([head.get_buffer(name) for head in heads]))
    sample = np.arange(min(2, len(encoded)))
    batch = collate(encoded, sample).to(device)
    if settings.tuning == "decoder":
        stacked: nn.Module = _FrozenEncoder(encoder)
    else:
        rank = None
        if settings.tuning == "lora":
            rank = settings.rank
        stacked = Stacked(encoder, len(heads), used, rank, seeds)
        compare(stacked, encoder, batch.inputs)
    with torch.no_grad():
        states = token_states(encoder, batch.inputs)
        losses = torch.stack([head.eval()(states, batch).loss for head in heads])  # (copies, n)
        decoder.eval()
        decoder.rows.batch = len(heads) * len(sample)
        tiled = collate(encoded, np.tile(sample, len(heads))).to(device)
        stacked_losses = decoder(torch.cat([states] * len(heads)), tiled).loss.view_as(losses)
    if not torch.allclose(stacked_losses, losses, rtol=1e-3, atol=1e-4):
        raise CannotStack(f"the losses of {type(heads[0]).__name__} side by side differ from its own")
    return stacked, decoder


class _FrozenEncoder(nn.Module):
    """One encoder without gradients; all copies share it."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = (encoder,)  # in a tuple: none of its parameters are this module's

    def forward(self, **inputs: Tensor) -> Any:
        with torch.no_grad():
            return self.encoder[0].train(self.training)(**inputs)


def _fit_and_evaluate(
    modules: tuple[nn.Module, nn.Module],
    copies: int,
    encoded: Encoded,
    tests: Encoded,
    rows: list[NDArray[np.int64]],
    seeds: list[int],
    settings: FewShot,
    device: torch.device,
) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
    encoder, decoder = modules

    def answer(numbers: NDArray[np.int64], source: Encoded) -> Any:
        batch = collate(source, numbers).to(device)
        for module in modules:
            if isinstance(module, Stacked):
                module.rows.batch = len(numbers)
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16")
        with autocast, without_plans(batch.inputs["input_ids"]):
            states = token_states(encoder, batch.inputs)
            return answer_by_name(
                encoded.examples.classes,
                batch,
                source.examples.task,
                lambda numbered: decoder(states, numbered),
            )

    trained = [p for p in nn.ModuleList(modules).parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.0, fused=True)
    plan = list(_steps(rows, seeds, settings))
    warm = max(1, int(settings.warmup * len(plan)))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (len(plan) - step) / max(1, len(plan) - warm))
    )
    for module in modules:
        module.train()
    learnt: list[Tensor] = []
    for numbers in plan:
        each = answer(numbers, encoded).loss.view(copies, -1).mean(1)  # (copies,)
        optimizer.zero_grad(set_to_none=True)
        each.sum().backward()  # the copies do not meet: their sum trains each alone
        optimizer.step()
        schedule.step()
        learnt.append(each.detach())
    _check(torch.stack(learnt, 1).cpu(), encoded.examples.task, seeds, schedule, settings)
    for module in modules:
        module.eval()
    predictions: list[NDArray[Any]] = []
    losses: list[NDArray[np.float32]] = []
    # on CPUs the copies share the batch size, so that activations stay in cache
    examples_at_once = settings.eval_batch_size
    if device.type != "cuda":
        examples_at_once = max(1, examples_at_once // copies)
    with torch.no_grad():
        plan = batches(tests, examples_at_once).plan
        for numbers in plan:
            output = answer(np.tile(numbers, copies), tests)
            predictions.append(output.prediction.view(copies, -1).cpu().numpy())
            losses.append(output.loss.float().view(copies, -1).cpu().numpy())
    order = np.argsort(np.concatenate(plan))  # back from length-sorted to the examples' own order
    yield from zip(np.concatenate(predictions, 1)[:, order], np.concatenate(losses, 1)[:, order], strict=True)


def _check(losses: Tensor, task: str, seeds: list[int], schedule: Any, settings: FewShot) -> None:
    """Refuses fine-tunings whose losses (copies, steps) are no numbers."""
    (factor,) = schedule.lr_lambdas
    for seed, seed_losses in zip(seeds, losses, strict=True):
        facts = f"task {task!r}, {len(seed_losses)} steps, seed {seed}"

        def step_name(step: int, facts: str = facts) -> str:
            return f"step {step} ({facts}, learning rate {settings.learning_rate * factor(step):.3g})"

        check_losses(
            seed_losses,
            step_name,
            settings.nonfinite_steps,
            "lower the learning rate, or let it rise for longer (warmup=0.1)",
        )


def _steps(rows: list[NDArray[np.int64]], seeds: list[int], settings: FewShot) -> Iterable[NDArray[np.int64]]:
    """The examples of each step, copy by copy; each seed shuffles its own every epoch."""
    for epoch in range(settings.epochs):
        orders = [
            row[np.random.default_rng([seed, epoch, 1]).permutation(len(row))]
            for row, seed in zip(rows, seeds, strict=True)
        ]
        for start in range(0, len(orders[0]), settings.batch_size):
            yield np.concatenate([order[start : start + settings.batch_size] for order in orders])


def _side_by_side(model: MultiTaskModel, seeds: int, tokens: int) -> int:
    """How many copies fit: weights, gradients and two moments in float32, in a quarter of the free memory,
    which others may share, and no more tokens at once than keep a GPU busy, since their activations are kept
    too. On CPUs few copies suffice."""
    if model.device.type != "cuda":
        return min(seeds, 5)
    free, _ = torch.cuda.mem_get_info(model.device)
    per_copy = 16 * sum(p.numel() for p in model.encoder.parameters())
    return max(1, min(seeds, int(free / 4 / per_copy), MOST_TOKENS // tokens))
