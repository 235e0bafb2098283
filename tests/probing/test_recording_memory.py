"""A recording takes the memory of a few batches, however many sentences there are."""

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import planted
from headwise._base.memory import release
from headwise.probing import _recording as recording
from headwise.probing._encoder import Encoder
from headwise.tasks import Examples, _kept as kept

MB = 1 << 20
SENTENCES = 8_000
BATCH = 200


def resident() -> tuple[int, int]:
    """Resident bytes: all, and without the pages of mapped files."""
    everything, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return everything * os.sysconf("SC_PAGE_SIZE"), (everything - shared) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_memory_does_not_grow_with_the_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "RESIDENT", 2 * MB)  # a small model's pages would all fit
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 12,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    model = BertModel(BertConfig(vocab_size=len(planted.WORDS), max_position_embeddings=16, **sizes)).eval()
    dice = np.random.default_rng(0)
    texts = [(" ".join(row),) for row in dice.choice(planted.FILLERS, (SENTENCES, 4))]
    gc.collect()
    release()
    kept.forget()
    examples = Examples(texts, np.zeros(SENTENCES, np.int64), "classes")
    encoder = Encoder.of(model, planted.tokenizer())
    seen: list[tuple[int, int]] = []
    model.register_forward_hook(lambda *_: seen.append(resident()))
    own = {
        "identity": recording.NOT_KEPT,
        "batch_size": BATCH,
        "shard": 4_000,
        "dtype": "float32",
        "quiet": True,
    }
    done = recording.record(encoder, examples, tmp_path, **own)
    assert len(seen) == SENTENCES // BATCH
    written = sum(file.stat().st_size for file in tmp_path.rglob("*.npy"))
    assert written > 46 * MB
    for all_or_own in (0, 1):
        first = max(row[all_or_own] for row in seen[:5])
        assert max(row[all_or_own] for row in seen) - first < 10 * MB
    assert not kept._memory  # nor are tokens kept
    assert done.n_shards == 2
