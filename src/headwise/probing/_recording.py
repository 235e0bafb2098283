"""One pass over the texts: every head's output, and every layer's hidden state, at the chosen token, on disk
in half precision.

A recording is a folder of shards; a shard holds the arrays heads.npy (sides, layers, heads, examples, dim)
and, if asked for, hidden.npy (sides, layers + 1, examples, width; the last is the model's output, after its
final norm) of some consecutive examples, and appears whole or not at all. All of one head's values lie
together, so that a head is read without reading the others, and nothing is ever held in memory but a few
batches.
"""

import json
import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise._base.parsing import read_json
from headwise._base.progress import track
from headwise._base.writing import make_folder, room_in
from headwise.errors import HeadwiseError
from headwise.heads import twinned
from headwise.models import read_examples
from headwise.probing._early_exit import final_state
from headwise.probing._encoder import Encoder
from headwise.probing._recorded import MANIFEST, Recording
from headwise.store import atomic_folder, fingerprint, tokenizer_content, write_text
from headwise.tasks import Examples, batches, keep_texts

PAIRS = ("compare", "together")
DTYPES = ("float16", "float32")
NOT_KEPT = (
    "not kept"  # in place of a fingerprint where the folder is gone before anybody could come back to it
)
RESIDENT = 128 << 20  # bytes of a shard that stay in memory while it is written


def record(
    encoder: Encoder,
    examples: Examples,
    folder: str | Path,
    *,
    hidden: bool = True,
    pairs: str = "compare",
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "float16",
    shard: int = 20_000,
    identity: str | None = None,
    quiet: bool = False,
) -> Recording:
    """Records `examples` into `folder`, or resumes an earlier call with the same model, texts and settings.

    Args:
        encoder: from `Encoder.of`.
        examples: texts, or pairs of texts; labels are not used.
        folder: where shards go.
        hidden: also record each layer's output, and the model's own, which is the last layer's after the
            final norm.
        pairs: "compare" records both texts of a pair by themselves (two sides); "together" gives the model
            both at once.
        batch_size: texts at a time, of similar length; results do not depend on it. Default: 64, on an
            accelerator 256.
        max_length: tokens at which texts are cut; default: the tokenizer's own limit.
        dtype: "float16", or "float32" for models whose states overflow half precision.
        shard: examples per shard.
        identity: the fingerprint of the model, if it was computed already.
        quiet: show no progress.

    Raises:
        HeadwiseError: the folder holds another recording, or a value is NaN, infinite, or does not fit half
            precision.
    """
    if pairs not in PAIRS:
        raise HeadwiseError(f"pairs={pairs!r}: expected one of {', '.join(PAIRS)}")
    if dtype not in DTYPES:
        raise HeadwiseError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
    if not len(examples):
        raise HeadwiseError("there are no examples to record")
    folder = Path(folder)
    sides = _sides(examples, pairs)
    sites = encoder.heads.sites
    record: dict[str, Any] = {
        "heads": [site.n_heads for site in sites],
        "dims": [site.head_dim for site in sites],
        "width": int(encoder.model.config.get_text_config().hidden_size) if hidden else 0,
        "states": len(sites) + 1 if hidden else 0,
        "examples": len(examples),
        "sides": len(sides),
        "shard": shard,
        "pooling": encoder.pooling,
        "dtype": dtype,
        "max_length": max_length,
        "of": fingerprint(
            identity or fingerprint(encoder.model),
            tokenizer_content(encoder.tokenizer),
            [side.text_fingerprint for side in sides],
        ),
    }
    make_folder(folder)
    if (folder / MANIFEST).is_file():
        _same(folder, record)
    else:
        write_text(folder / MANIFEST, json.dumps(record, indent=1, sort_keys=True) + "\n")
    recording = Recording(folder)
    missing = [number for number in range(recording.n_shards) if not recording.shard_folder(number).is_dir()]
    size = batch_size or (256 if encoder.device.type != "cpu" else 64)
    total = 0
    for number in missing:
        low, high = recording.bounds(number)
        total += len(sides) * -(-(high - low) // size)
    steps = iter(track(range(total), "recording", quiet=quiet))
    for number in missing:
        rows = np.arange(*recording.bounds(number))
        with (
            twinned(encoder.model, encoder.heads) as (model, heads),
            atomic_folder(recording.shard_folder(number)) as aside,
        ):
            twin = replace(encoder, model=model, heads=heads)
            _shard(twin, [side.subset(rows) for side in sides], aside, record, size, steps)
    return recording


def _shard(
    encoder: Encoder,
    sides: Sequence[Examples],
    folder: Path,
    record: dict[str, Any],
    batch_size: int,
    steps: Any,
) -> None:
    """Writes one shard."""
    n, layers = len(sides[0]), len(record["heads"])
    shape = (len(sides), layers, max(record["heads"]), n, max(record["dims"]))
    files = [_OnDisk(folder / "heads.npy", record["dtype"], shape)]
    heads, states = files[0].values, None
    if record["width"]:
        hidden_shape = (len(sides), record["states"], n, record["width"])
        files.append(_OnDisk(folder / "hidden.npy", record["dtype"], hidden_shape))
        states = files[1].values
    touched = 0  # bytes of the pages written to since they were let go
    with torch.inference_mode(), encoder.heads.recorded(encoder.pooling, hidden=states is not None) as tape:
        for number, side in enumerate(sides):
            encoded = read_examples(
                encoder.model, encoder.tokenizer, side, record["max_length"], remember=False
            )
            for batch in batches(encoded, batch_size):
                result = encoder.model(**batch.to(encoder.device).inputs, **encoder.no_cache)
                rows = batch.index.numpy()
                for layer in range(layers):
                    values = _plain(tape.layer(layer), heads.dtype)  # (batch, heads, dim)
                    heads[number, layer, : values.shape[1], rows, : values.shape[2]] = values
                if states is not None:
                    states[number, :layers, rows] = _plain(
                        tape.hidden, states.dtype
                    )  # (batch, layers, width)
                    final = final_state(result, record["width"])
                    top = tape.hidden[:, -1] if final is None else tape.pooled(final)
                    states[number, layers, rows] = _plain(top, states.dtype)
                tape.clear()
                # a row of each head lies on its own page
                touched += len(rows) * layers * (max(record["heads"]) + 1) * mmap.PAGESIZE
                if touched > RESIDENT:
                    for file in files:
                        file.let_go()
                    touched = 0
                next(steps)
    for file in files:
        file.flush()


class _OnDisk:
    """A memory-mapped array in a file whose place on the disk is taken at once: a disk that fills up under a
    map ends the process.

    Raises:
        NoSpace: it does not fit.
    """

    def __init__(self, file: Path, dtype: str, shape: tuple[int, ...]) -> None:
        empty = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=shape)
        with open(file, "r+b") as handle:
            if sys.platform == "linux":
                with room_in(file.parent.parent):
                    os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
            self._map = mmap.mmap(handle.fileno(), 0)
        self.values: NDArray[Any] = np.frombuffer(self._map, dtype, offset=empty.offset).reshape(shape)

    def let_go(self) -> None:
        """Takes the pages out of this process's memory; what was written stays, and goes to the disk when the
        system likes."""
        if sys.platform == "linux":
            self._map.madvise(mmap.MADV_DONTNEED)

    def flush(self) -> None:
        """Waits until all is on the disk."""
        self._map.flush()


def _plain(values: torch.Tensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = values.float().cpu().numpy()
    if not np.isfinite(array).all():
        raise HeadwiseError(
            "the model's states are NaN or infinite, so there is nothing to record: open it with "
            "dtype='float32' if half precision overflows; otherwise its training has diverged"
        )
    if dtype == np.float16 and np.abs(array).max() > np.finfo(np.float16).max:
        raise HeadwiseError(
            f"a recorded value of {np.abs(array).max():.3g} does not fit half precision: record with "
            "dtype='float32'"
        )
    return array.astype(dtype)


def _sides(examples: Examples, pairs: str) -> list[Examples]:
    """What the model reads: the texts as they are, or both texts of each pair by themselves."""
    bare = Examples(examples.texts, np.zeros(len(examples), np.int64), "classes")
    if not examples.pairs or pairs == "together":
        return [bare]
    sides = []
    for side in (0, 1):
        texts = ((text[side],) for text in examples.texts)
        sides.append(replace(bare, texts=keep_texts(texts, len(examples))))
    return sides


def _same(folder: Path, record: dict[str, Any]) -> None:
    existing = read_json(folder / MANIFEST)
    different = [name for name in record if existing.get(name) != record[name]]
    if different:
        difference = f"other settings ({', '.join(different)})"
        if different == ["of"]:
            difference = "another model or other texts"
        raise HeadwiseError(
            f"{folder} holds a recording of {difference}: give another folder, or remove that one"
        )
