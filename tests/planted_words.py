"""A tiny BERT with heads that do one known thing each, and sentences in which that thing is the answer."""

from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel

from headwise.tasks import Predicate, Sentence, Span, Task, Tree
from headwise.tasks._structured import structured
from words import BERT, word_tokenizer

WORDS, PLACES = 26, 16
PREVIOUS, IDENTITY = (
    (0, 1),
    (0, 3),
)  # attends to the word before; attends to itself and puts out the word's class


def tokenizer() -> Any:
    names = [*BERT, *(f"w{i}" for i in range(WORDS))]
    return word_tokenizer(names, "[CLS]", "[SEP]", model_max_length=PLACES)


def model() -> BertModel:
    """Two layers of four heads of size 16. A token's state is its word, one-hot, beside its position, one-hot."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=32,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=PLACES,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
    )
    bert = BertModel(config).eval()
    with torch.no_grad():
        embeddings = bert.embeddings
        for table in (
            embeddings.word_embeddings,
            embeddings.position_embeddings,
            embeddings.token_type_embeddings,
        ):
            table.weight.zero_()
        embeddings.word_embeddings.weight[:, :32] = torch.eye(32)
        embeddings.position_embeddings.weight[:, 32 : 32 + PLACES] = torch.eye(PLACES)
        attention = bert.encoder.layer[0].attention.self
        for name in ("query", "key", "value"):
            getattr(attention, name).bias.zero_()
        before = torch.eye(PLACES).roll(-1, 1)  # position p asks for p - 1
        for (_, head), asks in ((PREVIOUS, before.T), (IDENTITY, torch.eye(PLACES))):
            rows = slice(16 * head, 16 * head + 16)
            for name, block in (("query", asks), ("key", torch.eye(PLACES))):
                weight = getattr(attention, name).weight
                weight[rows] = 0
                weight[rows, 32:48] = 4 * block
        rows = slice(16 * IDENTITY[1], 16 * IDENTITY[1] + 16)
        attention.value.weight[rows] = 0
        for word in range(WORDS):
            attention.value.weight[rows][word % 3, 4 + word] = 1
    return bert


def sentence(rng: np.random.Generator) -> Sentence:
    """Classes go by word number modulo 3; heads, and predicates of arguments, are the word before."""
    n = int(rng.integers(4, 13))
    numbers = rng.integers(0, WORDS, n)
    words = tuple(f"w{i}" for i in numbers)
    tag = tuple("ABC"[i % 3] for i in numbers)
    leaves = [Tree("X", word=word) for word in words]
    phrases = tuple(Tree(f"{t}P", (leaf,)) for t, leaf in zip(tag, leaves, strict=True))
    predicate = int(rng.integers(0, n - 1))
    return Sentence(
        words,
        upos=tag,
        heads=tuple(range(n)),
        deprels=tuple("root" if i == 0 else f"r{i % 2}" for i in range(n)),
        entities=tuple(Span(i, i + 1, t) for i, t in enumerate(tag) if i % 2 == 0),
        tree=Tree("TOP", (Tree("S", phrases),)),
        roles=(Predicate(predicate, None, (Span(predicate + 1, n, "ARG1"),)),),
    )


def tasks(sizes: tuple[int, int, int] = (60, 40, 40)) -> dict[str, Task]:
    rng = np.random.default_rng(0)
    splits = dict(
        zip(
            ("train", "validation", "test"),
            ([sentence(rng) for _ in range(size)] for size in sizes),
            strict=True,
        )
    )
    return {task.name: task for task in structured(splits, synthetic=True)}
