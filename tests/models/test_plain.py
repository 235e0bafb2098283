"""Plain transformers models with the face of a multi-task model: losses against transformers' own, text by text."""

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from headwise.errors import HeadwiseError
from headwise.models import as_task_model
from headwise.models._decoders import language
from headwise.tasks import Sentence, Task, batches, encode
from words import BERT, word_tokenizer

WORDS = ["the", "a", "cat", "dog", "trees", "sleeps", "sleep", "sees", "old", "tall"]
SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 15,
}


def tokenizer(side: str = "right") -> Any:
    return word_tokenizer([*BERT, "[MASK]", *WORDS], "[CLS]", "[SEP]", model_max_length=32, padding_side=side)


def texts(n: int = 9) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, draw.integers(2, 9))) for _ in range(n)]


def letter_tokenizer() -> Any:
    """A word is its letters, all but the first with "##" before it."""
    letters = sorted({letter for word in WORDS for letter in word})
    vocabulary = {
        piece: i
        for i, piece in enumerate([*BERT, "[MASK]", *letters, *(f"##{letter}" for letter in letters)])
    }
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, **names)


def run(
    model: Any, task: Task, size: int, side: str = "right", max_length: int = 32, pieces: Any = None
) -> dict[str, torch.Tensor]:
    """Losses and predictions of all examples, in their order."""
    task_model = as_task_model(model.eval(), pieces or tokenizer(side), task)
    encoded = encode(task.split("train"), task_model.tokenizer, max_length)
    found: dict[str, list[Any]] = {"loss": [], "prediction": [], "index": []}
    with torch.no_grad():
        for batch in batches(encoded, size):
            output = task_model(task.name, batch)
            found["loss"].append(output.loss)
            found["prediction"].append(output.prediction)
            found["index"].append(batch.index)
    order = torch.cat(found.pop("index")).argsort()
    return {name: torch.cat(parts)[order] for name, parts in found.items()}


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=32, n_layer=2, n_head=4, vocab_size=15, n_positions=64, bos_token_id=2, eos_token_id=3
        )
    )


def test_next_token_losses_equal_each_text_alone() -> None:
    model, task = (
        gpt2().eval(),
        Task("text", data={"train": texts(), "validation": texts(2)}, kind="next-token"),
    )
    found = run(model, task, 4)
    for i, text in enumerate(texts()):
        ids = torch.tensor(
            [tokenizer()(text)["input_ids"][:-1]]
        )  # the end token is special and not predicted
        loss = model(input_ids=ids, labels=ids).loss
        torch.testing.assert_close(found["loss"][i], loss, atol=1e-5, rtol=1e-5)
        logits = model(input_ids=ids).logits[0, :-1]
        assert found["prediction"][i, 0] == (logits.argmax(-1) == ids[0, 1:]).sum()
        assert found["prediction"][i, 1] == len(text.split())
        torch.testing.assert_close(found["prediction"][i, 2], loss * len(text.split()), atol=1e-4, rtol=1e-4)


def test_next_token_losses_do_not_depend_on_batch_or_padding_side() -> None:
    model, task = gpt2(), Task("text", data={"train": texts(), "validation": texts(2)}, kind="next-token")
    one = run(model, task, 1)
    for size, side in ((9, "right"), (3, "left")):
        other = run(model, task, size, side)
        torch.testing.assert_close(other["loss"], one["loss"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other["prediction"], one["prediction"], atol=1e-4, rtol=1e-5)


def test_windows_of_a_long_text_count_as_one_example() -> None:
    task = Task(
        "text", data={"train": [" ".join(texts(6)), *texts(3)], "validation": texts(2)}, kind="next-token"
    )
    found = run(gpt2(), task, 2, max_length=12)
    assert found["loss"].shape == (4,)
    assert found["prediction"][0, 1] == sum(len(text.split()) for text in texts(6))


def test_masked_token_losses_equal_transformers_own() -> None:
    torch.manual_seed(0)
    model, task = (
        BertForMaskedLM(BertConfig(**SIZE)).eval(),
        Task("text", data={"train": texts(), "validation": texts(2)}, kind="masked-token"),
    )
    found = run(model, task, 4)
    encoded = encode(task.split("train"), tokenizer(), 32)
    for batch in batches(encoded, 1):
        loss = model(**batch.inputs, labels=batch.labels).loss
        torch.testing.assert_close(found["loss"][batch.index[0]], loss, atol=1e-5, rtol=1e-5)


def test_minimal_pairs_compare_sentence_probabilities() -> None:
    model = gpt2().eval()
    pairs = [
        ("the cat sleeps", "the cat sleep"),
        ("a old tall dog sees the cat", "a old tall dog see the trees"),
        ("the dog", "dog the a"),
    ]
    task = Task(
        "pairs", data={"train": pairs, "validation": pairs}, text=("good", "bad"), kind="minimal-pairs"
    )
    found = run(model, task, 2)
    for i, pair in enumerate(pairs):
        log_p = []
        for text in pair:
            ids = torch.tensor([tokenizer()(text)["input_ids"][:-1]])
            log_p.append(-model(input_ids=ids, labels=ids).loss.item() * (ids.shape[1] - 1))
        assert found["prediction"][i] == int(log_p[1] >= log_p[0])
        expected = -torch.log_softmax(torch.tensor(log_p), 0)[0]
        torch.testing.assert_close(found["loss"][i], expected, atol=1e-4, rtol=1e-4)


def test_tags_are_read_at_the_first_sub_word() -> None:
    """As transformers' token classifiers are trained: the other pieces of a word have no label."""
    torch.manual_seed(0)
    sentences = [
        Sentence(
            words=tuple(text.split()), upos=tuple("N" if w in ("cat", "dog") else "X" for w in text.split())
        )
        for text in texts()
    ]
    task = Task("tags", data={"train": sentences, "validation": sentences}, kind="tags")
    pieces = letter_tokenizer()
    model = BertForTokenClassification(BertConfig(**SIZE | {"vocab_size": 60}, num_labels=2)).eval()
    found = run(model, task, 4, max_length=64, pieces=pieces)
    several = 0
    for i, sentence in enumerate(sentences):
        encoded = pieces(" ".join(sentence.words), return_tensors="pt")
        numbers = [-1 if number is None else number for number in encoded.word_ids()]
        several += len(numbers) - 2 - len(sentence.words)
        gold = torch.full((1, len(numbers)), -100)
        for number, tag in enumerate(sentence.upos or ()):
            gold[0, numbers.index(number)] = task.classes.index(tag)
        output = model(**encoded, labels=gold)
        torch.testing.assert_close(found["loss"][i], output.loss, atol=1e-5, rtol=1e-5)
        right = (output.logits.argmax(-1) == gold).sum()
        assert found["prediction"][i].tolist() == [right, len(sentence.words), len(sentence.words)]
    assert several > 20


def test_a_models_head_must_answer_the_task() -> None:
    classes = Task("mood", data={"train": [("a cat", "x"), ("a dog", "y"), ("old dog", "z")]}, kind="classes")
    with pytest.raises(HeadwiseError, match="a causal-lm model answers next-token, minimal-pairs"):
        as_task_model(gpt2(), tokenizer(), classes)
    with pytest.raises(HeadwiseError, match="The task has 3: x, y, z; the model has 2: LABEL_0, LABEL_1"):
        as_task_model(BertForSequenceClassification(BertConfig(**SIZE)), tokenizer(), classes)
    with pytest.raises(HeadwiseError, match="BertModel has no trained head: it is not a sequence classifier"):
        as_task_model(BertModel(BertConfig(**SIZE)), tokenizer(), classes)


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "cohere", "bert", "roberta"])
def test_logits_are_made_only_where_a_token_is_predicted(family: str) -> None:
    """The last projection sees the predicted positions alone, and losses and their gradients are those of the full logits."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    masked = family in ("bert", "roberta")
    size = SIZE | ({"head_dim": 8, "num_key_value_heads": 2} if family == "gemma2" else {})
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **size, pad_token_id=0, bos_token_id=2, eos_token_id=3)
    model = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_config(config).eval()
    task = Task(
        "text",
        data={"train": texts(), "validation": texts(2)},
        kind="masked-token" if masked else "next-token",
    )
    face = as_task_model(model, tokenizer(), task)
    (batch,) = batches(encode(task.split("train"), face.tokenizer, 32), 9, mask_rate=0.5)
    seen: list[int] = []
    model.get_output_embeddings().register_forward_hook(
        lambda _, args, out: seen.append(out.shape[:-1].numel())
    )
    found = []
    for selects in (True, False):
        face._selects = selects
        model.zero_grad()
        output = face(task.name, batch)
        output.loss.sum().backward()
        found.append(
            (output.loss.detach(), output.prediction, model.get_input_embeddings().weight.grad.clone())
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert seen[0] == int(found[0][1][:, 1].sum()) < seen[1] == batch.inputs["input_ids"].numel()


@pytest.mark.parametrize("shape", [(23, 7), (4, 6, 7)], ids=["predicted positions", "all positions"])
@pytest.mark.parametrize("at_once", [1, 30, 1 << 20])
def test_losses_do_not_depend_on_how_many_logits_are_worked_on_at_once(
    shape: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses, right tokens and gradients are those of cross_entropy and argmax over all logits, ties included."""
    monkeypatch.setitem(language.AT_ONCE, "cpu", at_once)
    draw = torch.Generator().manual_seed(0)
    gold = torch.randint(0, 7, (4, 6), generator=draw)
    gold[1, 2] = language.IGNORED
    counted = gold != language.IGNORED
    logits = (
        torch.randint(0, 3, shape, generator=draw).float().requires_grad_()
    )  # many ties: the first of the largest counts
    own = gold[counted] if logits.ndim == 2 else gold.flatten()
    rows = torch.arange(4)[:, None].expand(4, 6)
    rows = rows[counted] if logits.ndim == 2 else rows.flatten()
    each = torch.nn.functional.cross_entropy(logits.reshape(-1, 7), own, reduction="none")
    hits = (logits.reshape(-1, 7).argmax(-1) == own).float()
    expected = [torch.zeros(4).index_add(0, rows, values) for values in (each, hits)]
    found = language._by_row(logits, gold, counted)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
    assert 0 < hits.sum() < (logits.reshape(-1, 7) == logits.reshape(-1, 7).amax(-1, keepdim=True)).sum()
    weights = torch.arange(1.0, 5.0)
    slopes = [torch.autograd.grad((values[0] * weights).sum(), logits)[0] for values in (found, expected)]
    torch.testing.assert_close(*slopes, atol=1e-6, rtol=1e-6)
