"""Where model, tokenizer and texts meet: rows end where positions end, and a tokenizer that does not fit is refused, whoever reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t

import headwise as hw
from headwise.app import Session
from headwise.errors import HeadwiseError
from headwise.models import open_model
from headwise.models._reading import check_tokens, most_tokens, read_examples
from headwise.probing import HeadEmbedding
from headwise.similarity import sentence_vectors
from headwise.tasks import Sentence, Task
from headwise.training import TrainerData, TrainerModel, few_shot
from words import BERT, LANGUAGE, word_tokenizer

POSITIONS = 12
SIZE: Any = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 40,
}
WORDS = [*BERT, *(f"w{i}" for i in range(36))]
FAMILIES: dict[str, Any] = {
    "bert": lambda: t.BertModel(t.BertConfig(**SIZE, max_position_embeddings=POSITIONS)),
    "roberta": lambda: t.RobertaModel(t.RobertaConfig(**SIZE, max_position_embeddings=POSITIONS + 2, pad_token_id=1)),
    "mpnet": lambda: t.MPNetModel(t.MPNetConfig(**SIZE, max_position_embeddings=POSITIONS + 2, pad_token_id=1)),
    "gpt2": lambda: t.GPT2Model(t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=POSITIONS)),
    "opt": lambda: t.OPTModel(
        t.OPTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=16, vocab_size=40,
                    max_position_embeddings=POSITIONS, word_embed_proj_dim=16, pad_token_id=1)
    ),
    "distilbert": lambda: t.DistilBertModel(
        t.DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=16, vocab_size=40, max_position_embeddings=POSITIONS)
    ),
}  # fmt: skip


def words(**options: Any) -> Any:
    return word_tokenizer(WORDS, "[CLS]", "[SEP]", **options)


def strangers() -> Any:
    """A tokenizer of another vocabulary: it gives nothing but [UNK]."""
    return word_tokenizer([*BERT, "other", "words"], "[CLS]", "[SEP]")


def beyond() -> Any:
    """A tokenizer of more tokens than the model has."""
    return word_tokenizer([*BERT, *(f"x{i}" for i in range(20)), *WORDS[4:]], "[CLS]", "[SEP]")


def texts(n: int = 24, length: int = 30) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS[4:], draw.integers(2, length))) for _ in range(n)]


def task(length: int = 30) -> Task:
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(texts(length=length))]
    return Task("t", data={"train": rows, "validation": rows, "test": rows}, kind="classes")


def classifier() -> Any:
    torch.manual_seed(0)
    config = t.BertConfig(
        **SIZE, max_position_embeddings=POSITIONS, id2label={0: "a", 1: "b"}, initializer_range=0.5
    )
    return t.BertForSequenceClassification(config).eval()


def gpt() -> Any:
    torch.manual_seed(0)
    return t.GPT2LMHeadModel(
        t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=POSITIONS)
    ).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_reads_as_many_tokens_as_is_said_and_no_more(family: str) -> None:
    model = FAMILIES[family]().eval()
    assert most_tokens(model) == POSITIONS
    ids = torch.full((1, POSITIONS + 1), 5)
    with torch.no_grad():
        model(ids[:, :POSITIONS])
        with pytest.raises((IndexError, RuntimeError)):
            model(ids)


def test_models_without_learnt_positions_read_what_their_configuration_says() -> None:
    assert most_tokens(t.LlamaModel(t.LlamaConfig(**SIZE, max_position_embeddings=64))) == 64
    relative = t.T5Config(d_model=16, d_kv=8, num_layers=1, num_heads=2, d_ff=16, vocab_size=40)
    assert most_tokens(t.T5EncoderModel(relative)) is None
    assert (
        most_tokens(t.XLNetModel(t.XLNetConfig(d_model=16, n_layer=1, n_head=2, d_inner=16, vocab_size=40)))
        is None
    )  # it says -1
    assert (
        most_tokens(t.BloomModel(t.BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=40))) is None
    )


def test_tokens_of_prompt_tuning_take_positions() -> None:
    peft = pytest.importorskip("peft")
    settings = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    assert most_tokens(peft.get_peft_model(classifier(), settings)) == POSITIONS - 3


OPERATIONS: dict[str, Any] = {
    "score": lambda model, words, **o: hw.score(model, task(), tokenizer=words, quiet=True, **o),
    "lesion": lambda model, words, **o: hw.lesion(model, task(), {"x": [(0, 0)]}, tokenizer=words, quiet=True, **o),
    "evaluate": lambda model, words, **o: hw.evaluate(model, task(), tokenizer=words, quiet=True, **o),
    "train": lambda model, words, **o: hw.train(model, task(), "multi-task", tokenizer=words, epochs=1, quiet=True, **o),
    "probe": lambda model, words, **o: hw.probe(
        model, task(), tokenizer=words, controls=(), quiet=True, **({"max_length": None} | o)
    ),
    "embed": lambda model, words, **o: sentence_vectors(model, texts(), tokenizer=words, **o),
    "dissociate": lambda model, words, **o: hw.dissociate(
        open_model(model, [task(), task().renamed("u")], tokenizer=words), [task(), task().renamed("u")], fraction=0.3,
        random_draws=0, bootstrap=0, quiet=True, **o,
    ),
}  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS)
def test_texts_are_cut_where_positions_end(operation: str) -> None:
    """They failed with an IndexError of torch, or on a GPU with a broken device."""
    run = OPERATIONS[operation]
    found, cut = run(classifier(), words()), run(classifier(), words(), max_length=POSITIONS)
    if operation == "score":
        np.testing.assert_array_equal(found, cut)
        assert found.attrs["max_length"] == {"t": POSITIONS}
    elif operation == "evaluate":
        np.testing.assert_array_equal(found.losses, cut.losses)
        assert found.settings["max_length"] == POSITIONS
    elif operation == "dissociate":
        assert found.settings["max_length"] == {"t": POSITIONS, "u": POSITIONS}
    elif operation == "embed":
        np.testing.assert_array_equal(found, cut)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("tokenizer", "said"), [(strangers, "tokens are unknown to it"), (beyond, "has 40 tokens, from 0 on")]
)
def test_a_tokenizer_that_does_not_fit_is_refused_wherever_texts_are_read(
    operation: str, tokenizer: Any, said: str
) -> None:
    """It was scored without a word, or failed with an IndexError."""
    with pytest.raises(
        HeadwiseError,
        match=f"the tokenizer does not fit .*{said}.*give the tokenizer that the model was trained",
    ):
        OPERATIONS[operation](classifier(), tokenizer())


def test_it_is_refused_from_a_folder_too(tmp_path: Path) -> None:
    classifier().save_pretrained(tmp_path)
    strangers().save_pretrained(tmp_path)
    with pytest.raises(HeadwiseError, match=r"(\d+) of their \1 tokens are unknown to it \(\[UNK\]\)"):
        hw.score(tmp_path, task(), device="cpu", quiet=True)


def test_the_app_reads_as_others_do() -> None:
    long = texts(length=200)[0]
    session = Session(open_model(classifier(), task(), tokenizer=words()), [task()])
    (found,) = session.predict(long, "", [])
    inputs = words()(long, truncation=True, max_length=POSITIONS, return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(found["intact"], classifier()(**inputs).logits[0].softmax(-1), rtol=1e-5)
    assert len(session.attention(long, "", 0, 0)["tokens"]) == POSITIONS
    session._evaluate(task(), torch.ones(2, 2), 24, 0.0)
    assert not session.job["error"]
    with pytest.raises(HeadwiseError, match="2 of their 2 tokens are unknown"):
        session.predict("hello there", "", [])
    other = Session(open_model(classifier(), task(), tokenizer=strangers()), [task()])
    with pytest.raises(HeadwiseError, match="does not fit the text"):
        other.predict(long, "", [])
    other._evaluate(task(), torch.ones(2, 2), 24, 0.0)
    assert "does not fit the texts of task 't'" in other.job["error"]
    lm = Session(open_model(gpt(), tokenizer=word_tokenizer([*LANGUAGE, *WORDS[4:]], "<s>")))
    with pytest.raises(HeadwiseError, match=f"tokens; from 1 to {POSITIONS} are allowed"):
        lm.predict(long, "", [])
    with pytest.raises(HeadwiseError, match="the tokenizer does not fit the text"):
        lm.predict("hello there", "", [])


def test_roles_and_steering_read_as_others_do() -> None:
    fitting = word_tokenizer([*LANGUAGE, *WORDS[4:]], "<s>")
    options: Any = {"roles": ["self"], "texts": texts(4), "quiet": True}
    assert not np.isnan(hw.roles(gpt(), fitting, **options)).any()
    for other in (
        word_tokenizer([*LANGUAGE, "other"], "<s>"),
        word_tokenizer([*LANGUAGE, *"abcdefghijklmn", *WORDS[4:]], "<s>"),
    ):
        with pytest.raises(HeadwiseError, match="the tokenizer does not fit"):
            hw.roles(gpt(), other, **options)
    rows = [(text, i % 2) for i, text in enumerate(texts(40))]
    statements = Task("s", data={"train": rows, "validation": rows, "test": rows}, kind="classes")
    with pytest.raises(HeadwiseError, match="the tokenizer does not fit"):
        hw.steer(gpt(), statements, tokenizer=word_tokenizer([*LANGUAGE, "other"], "<s>"), quiet=True)


def test_transfer_trainers_and_embeddings_read_as_others_do() -> None:
    from headwise.models import MultiTaskModel

    model = MultiTaskModel(classifier().bert, words(), [task()]).eval()
    found = few_shot(model, task(), 4, [0], epochs=1, quiet=True)
    assert found.attrs["max_length"] == POSITIONS
    trainer = type("Trainer", (), {"model": TrainerModel(model)})()
    with pytest.raises(
        HeadwiseError,
        match=f"have up to .* tokens, and BertModel reads at most {POSITIONS}: set max_length={POSITIONS}",
    ):
        TrainerData([task()], words(), max_length=64).feed(trainer)
    TrainerData([task()], words(), max_length=POSITIONS).feed(trainer)
    with pytest.raises(HeadwiseError, match="tokens are unknown"):
        TrainerData([task()], strangers(), max_length=POSITIONS).feed(trainer)
    embedding = HeadEmbedding(classifier().bert, [(0, 1)], words())
    assert embedding.transform(texts(3)).shape == (3, 8)


def test_half_unknown_is_still_read_and_special_tokens_do_not_count() -> None:
    model = classifier().bert
    half = words()(" ".join(["w1", "nobody"] * 4))["input_ids"]
    check_tokens(model, words(), half, "the text")
    with pytest.raises(HeadwiseError, match="5 of their 9 tokens"):
        check_tokens(model, words(), [*half, 1], "the text")
    check_tokens(model, words(), [], "no text")
    check_tokens(model, words(), [2, 3, 2, 3], "empty texts")
    gpt2 = word_tokenizer(
        [*LANGUAGE, *WORDS[4:]], eos_token="<s>", unk_token="<s>"
    )  # knows every byte, and calls its end unknown
    check_tokens(model, gpt2, [1, 1, 1, 5], "the text")


def test_tokens_that_no_text_holds_must_have_rows_too() -> None:
    """Padding, and what may stand where a token was masked."""
    padded = words()
    padded.add_special_tokens({"pad_token": "<padding>"})
    hw.score(classifier(), task(), tokenizer=padded, quiet=True)  # rows are filled with the model's own
    without = classifier()
    without.config.pad_token_id = None
    with pytest.raises(HeadwiseError, match="its token '<padding>' is number 40"):
        hw.score(without, task(), tokenizer=padded, quiet=True)
    more = word_tokenizer([*WORDS, "[MASK]"], "[CLS]", "[SEP]")
    lm = t.BertForMaskedLM(t.BertConfig(**SIZE))
    with pytest.raises(HeadwiseError, match=r"its token '\[MASK\]' is number 40"):
        hw.score(
            lm, Task("text", data=[(x,) for x in texts()], kind="masked-token"), tokenizer=more, quiet=True
        )
    hw.score(classifier(), task(), tokenizer=more, quiet=True)  # a token that no one reads does no harm


def test_prompts_of_contrasts_are_never_cut() -> None:
    rows = [("w1 " * 20 + "w2", "w1 " * 20 + "w3", "w4", "w5")] * 2
    contrast = Task("c", data={"train": rows, "validation": rows}, kind="contrast")
    with pytest.raises(HeadwiseError, match=f"more than max_length={POSITIONS}: nothing may be cut"):
        read_examples(gpt(), word_tokenizer([*LANGUAGE, *WORDS[4:]], "<s>"), contrast.split("train"), 64)


CLASSIFIERS: dict[str, Any] = {
    "bert": lambda: t.BertForSequenceClassification(t.BertConfig(**SIZE, initializer_range=0.5)),
    "distilbert": lambda: t.DistilBertForSequenceClassification(
        t.DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=16, vocab_size=40, initializer_range=0.5)
    ),
    "t5": lambda: t.T5ForTokenClassification(t.T5Config(d_model=16, d_kv=8, num_layers=2, num_heads=2, d_ff=16, vocab_size=40)),
    "gpt2": lambda: t.GPT2ForSequenceClassification(
        t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, initializer_range=0.5, pad_token_id=39)
    ),
    "llama": lambda: t.LlamaForSequenceClassification(
        t.LlamaConfig(**SIZE, initializer_range=0.5, pad_token_id=39)
    ),
}  # fmt: skip


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", CLASSIFIERS)
def test_a_text_is_classified_as_it_is_alone_wherever_and_by_whatever_rows_are_filled(
    family: str, side: str
) -> None:
    """transformers reads the first column of an encoder, and of a decoder the last token that is not the model's own padding."""
    torch.manual_seed(0)
    model, tokenizer = CLASSIFIERS[family]().eval(), words(padding_side=side)
    kind = "tags" if family == "t5" else "classes"
    examples = [text.split()[: 2 + i % 9] for i, text in enumerate(texts())]
    if kind == "tags":
        rows: Any = [
            Sentence(tuple(row), upos=tuple("AB"[i % 2] for i in range(len(row)))) for row in examples
        ]
    else:
        rows = [(" ".join(row), "AB"[i % 2]) for i, row in enumerate(examples)]
    task = Task("t", data={"train": rows, "validation": rows}, kind=kind)
    model.config.id2label = {0: "A", 1: "B"}
    found = hw.evaluate(model, task, tokenizer=tokenizer, batch_size=8, quiet=True)
    losses = []
    for i, row in enumerate(examples):
        with torch.no_grad():
            logits = model(**tokenizer(" ".join(row), return_tensors="pt")).logits[0]
        logits, gold = (
            (logits[1:-1], [j % 2 for j in range(len(row))]) if kind == "tags" else (logits[None], [i % 2])
        )
        losses.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor(gold))))
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4)


def test_a_padding_token_that_is_none_is_refused_where_it_decides() -> None:
    model = t.LlamaForSequenceClassification(t.LlamaConfig(**SIZE, pad_token_id=None)).eval()
    model.config.pad_token_id = -1  # as in the first checkpoints of Llama
    model.config.id2label = {0: "A", 1: "B"}
    rows = [(text, "AB"[i % 2]) for i, text in enumerate(texts())]
    with pytest.raises(
        HeadwiseError, match=r"pad_token_id=-1, which is no token.*set model.config.pad_token_id = 0"
    ):
        hw.evaluate(
            model,
            Task("t", data={"train": rows, "validation": rows}, kind="classes"),
            tokenizer=words(),
            quiet=True,
        )
