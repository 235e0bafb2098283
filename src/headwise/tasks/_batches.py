"""Batches: rows of similar length, padded to the longest; the same seed gives the same batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks._encoding import Encoded
from headwise.tasks._kinds import IGNORED, KINDS
from headwise.tasks._labels import Room, label_tensor, room_of_labels, tree_tensor
from headwise.tasks._masks import masked

# tokens of a batch whose gradients are kept: at base size about 5 GB, and enough to keep a GPU busy
MOST_TOKENS = {"cuda": 16384}
# tokens of a batch from which on more of them gain nothing; an accelerator wants all it can get
BUSY_TOKENS = {"cpu": 512}
# tensors of a batch beside its inputs
BATCH_FIELDS = ("labels", "index", "owner", "words", "context_words", "n_words", "sizes", "trees")
MUCH_SHORTER = 0.85
POOL = 50  # batches' worth of shuffled examples that are sorted by length together


@dataclass(frozen=True, eq=False)
class Batch:
    """What a model and its decoder read in one step. n examples, in `rows` rows (rows = n unless minimal
    pairs or windows).

    Attributes:
        inputs: for the model: input_ids, attention_mask, token_type_ids where the tokenizer gives them, all
            (rows, tokens) int64; and position_ids where padding is on the left, so that results do not depend
            on it.
        labels: by kind (all int64 unless said):
            classes: (n,), -1 where unlabelled; number: (n,) float32;
            tags: (n, words), -100 beyond the sentence;
            dependencies: (n, words, 3), (-100, -100, 0) beyond it;
            spans, constituents: (rows, 4): example in batch, start, end (exclusive), class;
            roles: (rows, 5): example in batch, predicate, start, end (exclusive), class (0 = "V": the
                predicate
            itself);
            in a padded batch these lists end in rows whose example is -1, which count nowhere;
            contrast: (n, 2) tokens of the right answer and of the wrong one;
            next-token, minimal-pairs: (rows, tokens), input_ids with -100 at special tokens and padding (not
            shifted: label t is token t);
            masked-token: (rows, tokens), -100 at tokens that are not predicted.
        index: (n,) numbers of the examples in `Encoded.examples`.
        owner: (rows,) which example of the batch (0 to n-1) a row belongs to; minimal pairs: 0, 0, 1, 1, ...
            (good, bad); contrasts the same (clean, corrupted).
        words: (rows, tokens) word number where the row owns the token's word, else -1; word kinds only.
        context_words: (rows, tokens) the same, owned or not.
        n_words: (n,) words of each sentence; word kinds only.
        sizes: (rows, tokens) bytes of text that each token stands for, where they are known; token kinds
            only.
        kind: the kind of task.
        trees: (n, 2 words − 1, 3) start, end (exclusive), class + 1 (0: no constituent) of the spans of each
            sentence's gold tree made binary, (0, 0, -100) beyond a tree; constituents only.
        room: what words and labels have room for; word kinds only.
        classes: names of the classes that labels number, so that a model that numbers them otherwise can
            tell; () where there are none.
    """

    inputs: dict[str, torch.Tensor]
    labels: torch.Tensor
    index: torch.Tensor
    owner: torch.Tensor
    kind: str
    words: torch.Tensor | None = None
    context_words: torch.Tensor | None = None
    n_words: torch.Tensor | None = None
    sizes: torch.Tensor | None = None
    trees: torch.Tensor | None = None
    room: Room | None = None
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.index)

    def to(self, device: str | torch.device, non_blocking: bool = False) -> "Batch":
        """The same batch on a device."""
        return self._with_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory, for asynchronous copies to a GPU."""
        return self._with_tensors(torch.Tensor.pin_memory)

    def _with_tensors(self, change: Callable[[torch.Tensor], torch.Tensor], **changed: Any) -> "Batch":
        """The batch with every tensor changed; those named are replaced as they are given."""
        fields = {name: getattr(self, name) for name in BATCH_FIELDS if name not in changed}
        changed |= {name: change(tensor) for name, tensor in fields.items() if tensor is not None}
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        return replace(self, inputs=inputs, **changed)

    def repeated(self, times: int) -> "Batch":
        """The batch `times` times, one after the other: n × times examples, made where the tensors are."""
        if times == 1:
            return self

        def tiled(value: torch.Tensor) -> torch.Tensor:
            return value.repeat(times, *[1] * (value.ndim - 1))

        def shifted(numbers: torch.Tensor) -> torch.Tensor:
            """Numbers of examples in the batch, as those of their copies."""
            shift = torch.arange(times, device=numbers.device).repeat_interleave(len(numbers)) * len(self)
            return tiled(numbers) + shift

        labels = tiled(self.labels)
        if KINDS[self.kind].batched == "list":
            numbers = torch.where(labels[:, 0] < 0, -1, shifted(self.labels[:, 0]))  # -1 fills a padded batch
            labels = torch.cat((numbers[:, None], labels[:, 1:]), dim=1)
        return self._with_tensors(tiled, labels=labels, owner=shifted(self.owner))


class Batches(Sequence[Batch]):
    """Batches made on demand: `len`, iteration, and `batches[i]`, so that a resumed training can start at any
    step.
    """

    def __init__(
        self,
        encoded: Encoded,
        plan: list[NDArray[np.int64]],
        pad_to_multiple: int | None,
        mask_seed: int,
        mask_rate: float,
    ):
        self.encoded = encoded
        self.plan = plan
        """example numbers of each batch"""
        self._options = (pad_to_multiple, mask_seed, mask_rate)

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return Batches(self.encoded, self.plan[number], *self._options)
        return collate(self.encoded, self.plan[number], *self._options)

    def __iter__(self) -> Iterator[Batch]:
        return (self[i] for i in range(len(self)))


def batches(
    encoded: Encoded,
    batch_size: int,
    *,
    seed: int | None = None,
    epoch: int = 0,
    drop_last: bool = False,
    enough: int | None = None,
    most: int | None = None,
    pad_to_multiple: int | None = None,
    mask_seed: int = 0,
    mask_rate: float = 0.15,
) -> Batches:
    """Batches of examples of similar length.

    Args:
        encoded: from `encode`.
        batch_size: examples per batch.
        seed: None: sorted by length, longest first, every example once (evaluation; the largest batch comes
            first, so that memory runs out at once or never). A number: shuffled; examples of similar length
            still share a batch, but which ones, and the order of the batches, are random. The same (seed,
            epoch) gives the same batches.
        epoch: another epoch, another shuffle.
        drop_last: leave out the batch that is not full.
        enough: with seed=None, the number of tokens that keeps the machine busy: a batch that has them ends
            where rows get much shorter, so that few short rows are not padded to long ones. `BUSY_TOKENS` has
            the number for each kind of device.
        most: with seed=None, tokens of a batch at most, padding included; an example that has more is a batch
            by itself.
        pad_to_multiple: pad to a multiple of this many tokens (tensor cores like 8), and of as many words in
            word kinds, whose lists of labels then have a power of two of rows; default: to the longest row
            and no further.
        mask_seed, mask_rate: masked-token tasks: which tokens are masked depends on the seed and the text
            alone.

    Raises:
        HeadwiseError: the batch size is not positive.
    """
    if batch_size < 1:
        raise HeadwiseError(f"batch_size must be at least 1, got {batch_size}")
    if seed is None:
        order = np.argsort(-encoded.lengths, kind="stable")
        plan = sorted_plan(encoded.lengths[order], order, batch_size, enough, most)
    else:
        plan = shuffled_plan(encoded.lengths, batch_size, np.random.default_rng([seed, epoch]))
    if drop_last:
        plan = [numbers for numbers in plan if len(numbers) == batch_size]
    return Batches(encoded, plan, pad_to_multiple, mask_seed, mask_rate)


def sorted_plan(
    lengths: NDArray[np.int64],
    order: NDArray[np.int64],
    batch_size: int,
    enough: int | None,
    most: int | None = None,
) -> list[NDArray[np.int64]]:
    """`order` cut into batches; `lengths`, in that order, never rise."""
    if enough is None and most is None:
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    cuts = [0]
    for i in range(1, len(order)):
        longest, rows = int(lengths[cuts[-1]]), i - cuts[-1]
        busy = enough is not None and rows * longest >= enough
        full = rows == batch_size or (most is not None and (rows + 1) * longest > most)
        if full or (busy and lengths[i] < MUCH_SHORTER * longest):
            cuts.append(i)
    return [numbers for numbers in np.split(order, cuts[1:]) if len(numbers)]


def shuffled_plan(
    lengths: NDArray[np.int64], batch_size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Random batches of similar length: shuffle, sort pools of 50 batches by length, cut, shuffle the
    batches.
    """
    order = rng.permutation(len(lengths))
    pool_size = batch_size * POOL
    for begin in range(0, len(order), pool_size):
        pool = order[begin : begin + pool_size]
        order[begin : begin + pool_size] = pool[np.argsort(lengths[pool], kind="stable")]
    plan = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    return [plan[i] for i in rng.permutation(len(plan))]


def collate(
    encoded: Encoded,
    numbers: NDArray[np.int64],
    pad_to_multiple: int | None = None,
    mask_seed: int = 0,
    mask_rate: float = 0.15,
) -> Batch:
    """The batch of the examples with these numbers."""
    first_rows = encoded.rows[numbers]
    counts = encoded.rows[numbers + 1] - first_rows
    owner = np.repeat(np.arange(len(numbers)), counts)
    rows = np.repeat(first_rows - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())  # (rows,)
    lengths = encoded.row_lengths[rows]
    width = int(lengths.max(initial=1))
    if pad_to_multiple:
        width = -(-width // pad_to_multiple) * pad_to_multiple
    padding = width - lengths if encoded.pads_left else np.zeros_like(lengths)
    column = np.arange(width) - padding[:, None]  # of each token in its row, padding aside
    real = (column >= 0) & (column < lengths[:, None])  # (rows, tokens)
    token = np.where(real, encoded.starts[rows][:, None] + column, 0)

    def spread(values: NDArray[Any], filling: int) -> NDArray[np.int64]:
        return np.where(real, values[token], filling).astype(np.int64)

    def optional(values: NDArray[Any] | None, filling: int) -> torch.Tensor | None:
        return None if values is None else torch.from_numpy(spread(values, filling))

    ids = spread(encoded.ids, encoded.pad)
    arrays = {"attention_mask": real.astype(np.int64)}
    if encoded.types is not None:
        arrays["token_type_ids"] = spread(encoded.types, encoded.pad_type)
    if encoded.pads_left:
        arrays["position_ids"] = np.maximum(column, 0)
    kind, room = encoded.examples.kind, room_of_labels(encoded, numbers, pad_to_multiple)
    if KINDS[kind].batched != "token":
        labels = label_tensor(encoded, numbers, room)
    else:
        assert encoded.special is not None
        text = real & (spread(encoded.special, 1) == 0)
        if KINDS[kind].masks:
            ids, predicted = masked(ids, text, column, encoded.mask, encoded.vocabulary, mask_seed, mask_rate)
            labels = torch.from_numpy(np.where(predicted, spread(encoded.ids, encoded.pad), IGNORED))
        else:
            labels = torch.from_numpy(np.where(text, ids, IGNORED))
    n_words = None
    if encoded.words is not None and encoded.examples.sentences is not None:
        n_words = torch.tensor([len(encoded.examples.sentences[i]) for i in numbers])
    return Batch(
        {name: torch.from_numpy(array) for name, array in {"input_ids": ids, **arrays}.items()},
        labels,
        index=torch.from_numpy(numbers),
        owner=torch.from_numpy(owner),
        kind=kind,
        words=optional(encoded.words, -1),
        context_words=optional(encoded.context_words, -1),
        n_words=n_words,
        sizes=optional(encoded.sizes, 0),
        trees=tree_tensor(encoded, numbers, room),
        room=room,
        classes=encoded.examples.classes,
    )
