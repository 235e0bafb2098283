"""Sentence vectors: real tokens only, whatever stands beside them in a batch."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import planted
from headwise.similarity._representations import sentence_vectors

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SENTENCES = ["w1 w2", "w3 w4 w5 w6 w7 w8 w9", "w0", "a0 b1 w2 w2 w5"]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_sentence_vectors_do_not_depend_on_their_neighbours(pooling: str) -> None:
    torch.manual_seed(0)
    model, tokenizer = (
        BertModel(BertConfig(**SIZE, vocab_size=len(planted.WORDS))).eval(),
        planted.tokenizer(),
    )
    for longest, size in ((256, 64), (256, 3), (5, 2)):
        together = sentence_vectors(
            model, SENTENCES, tokenizer=tokenizer, pooling=pooling, max_length=longest, batch_size=size
        )
        assert together.dtype == np.float32
        for vector, sentence in zip(together, SENTENCES, strict=True):
            words = sentence.split()[: longest - 2]  # between the special tokens
            with torch.no_grad():
                states = model(**tokenizer(" ".join(words), return_tensors="pt")).last_hidden_state[0]
            expected = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
            np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
