"""Models built by hand so that it is known which head carries which task, with the data they answer.

Every sentence holds one token a0 or a1 and one token b0 or b1 among filler words; task "a" asks which a-token it was, task "b" which
b-token. A planted head moves its task's feature from the tokens to [CLS]; all other heads move filler features about.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from headwise.models._model import MultiTaskModel
from headwise.tasks._task import Task
from words import word_tokenizer

FILLERS = [f"w{i}" for i in range(12)]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a0", "a1", "b0", "b1", *FILLERS]
DIM, LAYERS, HEADS = 32, 2, 4
WIDTH = DIM // HEADS


def tokenizer() -> Any:
    """One token per word, with [CLS] and [SEP] around."""
    return word_tokenizer(WORDS, "[CLS]", "[SEP]")


def tasks(size: int = 64, seed: int = 0) -> dict[str, Task]:
    """The two tasks on the same sentences, train and validation of `size` each, classes balanced and independent."""
    rng = np.random.default_rng(seed)
    rows: dict[str, dict[str, list[tuple[str, int]]]] = {"a": {}, "b": {}}
    for split in ("train", "validation"):
        found: dict[str, list[tuple[str, int]]] = {"a": [], "b": []}
        for i in range(size):
            labels = {"a": i % 2, "b": i // 2 % 2}
            words = [f"a{labels['a']}", f"b{labels['b']}", *rng.choice(FILLERS, rng.integers(2, 7))]
            text = " ".join(rng.permutation(words))
            for name, label in labels.items():
                found[name].append((text, label))
        for name in rows:
            rows[name][split] = found[name]
    return {
        name: Task(name, data=splits, kind="classes", classes=["0", "1"]) for name, splits in rows.items()
    }


def model(carriers: Mapping[str, tuple[int, int]], both: Mapping[str, Task], seed: int = 0) -> MultiTaskModel:
    """A BERT whose task "a" is carried by head carriers["a"] and whose task "b" by carriers["b"] (perhaps the same head)."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=8,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    built = MultiTaskModel(BertModel(config), tokenizer(), both.values())
    with torch.no_grad():
        embeddings = built.encoder.embeddings
        for part in (
            embeddings.word_embeddings,
            embeddings.position_embeddings,
            embeddings.token_type_embeddings,
        ):
            part.weight.zero_()
        table = embeddings.word_embeddings.weight  # (words, dim)
        for row, word in enumerate(WORDS):
            table[row, 8:] = torch.randn(DIM - 8)
            if word in ("a0", "a1", "b0", "b1"):
                # the feature and its negative: mean and variance stay, so layer norms leak nothing of it elsewhere
                feature = "ab".index(word[0])
                table[row, feature], table[row, 4 + feature] = (8.0, -8.0) if word[1] == "1" else (-8.0, 8.0)
        for number, layer in enumerate(built.encoder.encoder.layer):
            _fill(layer, [(h, "ab".index(task)) for task, (l, h) in carriers.items() if l == number])
        for name, decoder in built.decoders.items():
            decoder.dense.weight.copy_(torch.eye(DIM))
            decoder.dense.bias.zero_()
            decoder.out.weight.zero_()
            decoder.out.weight[:, 2 + "ab".index(name)] = torch.tensor(
                [-3.0, 3.0]
            )  # reads its own coordinate
            decoder.out.bias.zero_()
    return built.eval()


def _fill(layer: torch.nn.Module, planted: list[tuple[int, int]]) -> None:
    """Uniform attention; a planted head copies coordinate `feature` to coordinate 2 + `feature`; the others stir the fillers."""
    attention, out = layer.attention.self, layer.attention.output.dense  # type: ignore[union-attr]
    for part in (attention.query, attention.key, attention.value, out, layer.output.dense):  # type: ignore[union-attr]
        part.weight.zero_()  # type: ignore[operator,union-attr]
        part.bias.zero_()  # type: ignore[operator,union-attr]
    taken = {head for head, _ in planted}
    for head in range(HEADS):
        rows = slice(head * WIDTH, (head + 1) * WIDTH)
        if head not in taken:
            attention.value.weight[rows, 8:] = 0.2 * torch.randn(WIDTH, DIM - 8)  # type: ignore[index,union-attr]
            out.weight[8:, rows] = 0.2 * torch.randn(DIM - 8, WIDTH)  # type: ignore[index,union-attr]
    for head, feature in planted:
        attention.value.weight[head * WIDTH + feature, feature] = 1.0  # type: ignore[index,union-attr]
        out.weight[2 + feature, head * WIDTH + feature] = 4.0  # type: ignore[index,union-attr]
