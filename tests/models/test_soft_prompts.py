"""Models with a soft prompt (prompt tuning, P-tuning): what is pooled, classified, predicted and scored is the text's own tokens."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
from torch import Tensor

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel, as_task_model, pool
from headwise.models._reading import check_fit, read_examples
from headwise.probing import HeadEmbedding
from headwise.similarity import sentence_vectors
from headwise.tasks import Task, batches, encode
from headwise.training import few_shot
from words import LANGUAGE, word_tokenizer

peft = pytest.importorskip("peft")

VIRTUAL = 3
SIZES: Any = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
CAUSAL = [*LANGUAGE, *(word for word in planted.WORDS if not word.startswith("["))]
SETTINGS: dict[str, Any] = {
    "prompt": lambda kind: peft.PromptTuningConfig(task_type=kind, num_virtual_tokens=VIRTUAL),
    "p-tuning": lambda kind: peft.PromptEncoderConfig(
        task_type=kind, num_virtual_tokens=VIRTUAL, encoder_hidden_size=8
    ),
}
TEXTS = ["a0 w1 b0 w2 w3 w4", "b1 a1", "w0 w5 a0 b1"]


def config(family: str, **options: Any) -> Any:
    torch.manual_seed(0)
    made = {"bert": t.BertConfig, "llama": t.LlamaConfig, "gpt2": t.GPT2Config}[family]
    ends = {} if family == "bert" else {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    words = len(planted.WORDS if family == "bert" else CAUSAL)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2} if family == "gpt2" else SIZES
    return made(
        **sizes, **ends, vocab_size=words, initializer_range=0.5, max_position_embeddings=40, **options
    )


def prompted(model: Any, kind: str = "FEATURE_EXTRACTION", settings: str = "prompt") -> Any:
    torch.manual_seed(1)
    found = peft.get_peft_model(model, SETTINGS[settings](kind)).eval()
    for name, parameter in found.named_parameters():
        if "prompt_encoder" in name:
            torch.nn.init.normal_(parameter)
    return found


def words_of(family: str, side: str = "right") -> Any:
    return planted.tokenizer() if family == "bert" else word_tokenizer(CAUSAL, padding_side=side)


ENCODERS: dict[str, Any] = {"bert": t.BertModel, "llama": t.LlamaModel, "gpt2": t.GPT2Model}


def by_hand(model: Any, ids: Tensor) -> Any:
    """What the model under the soft prompt makes of one text, whose vectors come behind the prompt's."""
    text = model.get_input_embeddings()(ids)
    vectors = torch.cat((model.get_prompt(batch_size=1), text), 1)
    return model.get_base_model()(inputs_embeds=vectors)


@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("family", ENCODERS)
@torch.no_grad()
def test_a_text_is_pooled_without_virtual_tokens(family: str, settings: str, side: str, pooling: str) -> None:
    encoder = prompted(ENCODERS[family](config(family)), settings=settings)
    tokenizer = words_of(family, side)
    expected = []
    for text in TEXTS:
        states = by_hand(encoder, tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state[
            :, VIRTUAL:
        ]
        expected.append({"cls": states[0, 0], "last": states[0, -1], "mean": states[0].mean(0)}[pooling])
    rows = [(text, "xy"[i % 2]) for i, text in enumerate(TEXTS)]
    task = Task("t", data={"train": rows, "validation": rows}, kind="classes")
    model = MultiTaskModel(encoder, tokenizer, [task], pooling).eval()
    encoded = read_examples(encoder, tokenizer, task.split("train"))
    for size in (1, 3):
        for batch in batches(encoded, size):
            found = pool(model.states(batch), batch.inputs["attention_mask"], pooling)
            torch.testing.assert_close(
                found, torch.stack([expected[i] for i in batch.index]), rtol=1e-4, atol=1e-5
            )
    vectors = sentence_vectors(encoder, TEXTS, tokenizer=tokenizer, pooling=pooling)
    np.testing.assert_allclose(vectors, torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_a_classifier_answers_as_for_each_text_alone(family: str) -> None:
    """Left-to-right classifiers read the last column of a padded batch."""
    made: Any = {"bert": t.BertForSequenceClassification, "llama": t.LlamaForSequenceClassification,
                 "gpt2": t.GPT2ForSequenceClassification}[family]  # fmt: skip
    model = prompted(made(config(family, id2label={0: "0", 1: "1"})), "SEQ_CLS")
    task, tokenizer = planted.tasks(size=16)["a"], words_of(family)
    with torch.no_grad():
        alone = [
            by_hand(model, tokenizer(text[0], return_tensors="pt")["input_ids"])
            for text in task.split("validation").texts
        ]
    logits = torch.cat([one.logits for one in alone])
    found = hw.evaluate(model, task, tokenizer=tokenizer, batch_size=8, quiet=True)
    losses = torch.nn.functional.cross_entropy(
        logits, torch.tensor(task.split("validation").labels), reduction="none"
    )
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.predictions, logits.argmax(1))


def test_a_classifier_that_may_read_padding_is_refused() -> None:
    model = prompted(t.LlamaForSequenceClassification(config("llama", id2label={0: "0", 1: "1"})), "SEQ_CLS")
    root, task, tokenizer = model.get_base_model(), planted.tasks(size=8)["a"], words_of("llama")
    answering = as_task_model(model, tokenizer, task)
    batch = next(iter(batches(encode(task.split("validation"), tokenizer), 8)))
    del root.score
    with pytest.raises(HeadwiseError, match=r"may take padding for the last token.*batch_size=1"):
        answering("a", batch)


def language(kind: str) -> Task:
    rows: Any = TEXTS if kind != "minimal-pairs" else [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[1])]
    columns = {"text": ["good", "bad"]} if kind == "minimal-pairs" else {}
    return Task("t", data={"train": rows, "validation": rows}, kind=kind, **columns)


@pytest.mark.parametrize("kind", ["next-token", "minimal-pairs"])
def test_a_language_model_predicts_the_text_alone(kind: str) -> None:
    model, tokenizer = prompted(t.LlamaForCausalLM(config("llama")), "CAUSAL_LM"), words_of("llama")
    task = language(kind)

    def likelihood(text: str) -> Tensor:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = by_hand(model, ids).logits[0, VIRTUAL:-1]
        return torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")

    found = hw.evaluate(model, task, tokenizer=tokenizer, batch_size=4, quiet=True)
    if kind == "next-token":
        expected = [float(likelihood(text).mean()) for text in TEXTS]
    else:
        pairs = [
            [-likelihood(side).sum() for side in pair]
            for pair in ((TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[1]))
        ]
        expected = [float(torch.nn.functional.softplus(bad - good)) for good, bad in pairs]
    np.testing.assert_allclose(found.losses, expected, rtol=1e-4, atol=1e-5)


def tagging() -> Task:
    rows = [(text.split(), [word[0] for word in text.split()]) for text in TEXTS]
    return Task("t", data={"train": rows, "validation": rows}, kind="tags")


def test_tags_are_read_at_the_words() -> None:
    names = dict(enumerate("abw"))
    model = prompted(t.BertForTokenClassification(config("bert", id2label=names)), "TOKEN_CLS")
    tokenizer, task = planted.tokenizer(), tagging()
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            logits = by_hand(model, tokenizer(text, return_tensors="pt")["input_ids"]).logits[
                0, VIRTUAL + 1 : -1
            ]
        gold = torch.tensor(["abw".index(word[0]) for word in text.split()])
        expected.append(float(torch.nn.functional.cross_entropy(logits, gold)))
    found = hw.evaluate(model, task, tokenizer=tokenizer, batch_size=4, quiet=True)
    np.testing.assert_allclose(found.losses, expected, rtol=1e-4, atol=1e-5)


def classifier(settings: str = "prompt") -> Any:
    return prompted(
        t.BertForSequenceClassification(config("bert", id2label={0: "0", 1: "1"})), "SEQ_CLS", settings
    )


@pytest.mark.parametrize("method", ["gate-gradient", "ablation", "taylor-mean", "attention-attribution"])
def test_scores_depend_neither_on_batches_nor_on_padding(method: str) -> None:
    task = planted.tasks(size=8)["a"]
    options: Any = {"method": method, "tokenizer": planted.tokenizer(), "quiet": True}
    together, alone = (hw.score(classifier(), task, batch_size=size, **options) for size in (8, 1))
    assert float(abs(together).max()) > 0
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-6)


def test_patching_reads_the_last_token_of_the_text() -> None:
    rows = [{"clean": "w0 a0 w1", "corrupted": "w0 a1 w1", "answer": "b0", "other": "b1"},
            {"clean": "a1 w3", "corrupted": "a0 w3", "answer": "b1", "other": "b0"}]  # fmt: skip
    task = Task("t", data={"train": rows, "validation": rows}, kind="contrast")
    model, tokenizer = prompted(t.LlamaForCausalLM(config("llama")), "CAUSAL_LM"), words_of("llama")
    options: Any = {"tokenizer": tokenizer, "quiet": True, "batch_size": 2}
    scores = hw.score(model, task, method="attribution-patching", tokens="last", **options)
    # by hand: for each head, the change of its output at the last token, along the gradient of the logit difference there
    expected, ends = torch.zeros(2, 2), torch.zeros(2)
    for row in rows:
        answers = [tokenizer.convert_tokens_to_ids(row[name]) for name in ("answer", "other")]
        (clean, outputs), (corrupted, others) = (
            difference(model, tokenizer(row[name], return_tensors="pt")["input_ids"], answers)
            for name in ("clean", "corrupted")
        )
        ends += torch.stack([clean, corrupted]).detach()
        for layer, slope in enumerate(torch.autograd.grad(corrupted, others)):
            change = (outputs[layer] - others[layer])[0, -1] * slope[0, -1]  # (heads × head_dim,)
            expected[layer] += change.detach().view(2, -1).sum(-1)
    np.testing.assert_allclose(scores, expected / (ends[0] - ends[1]), rtol=1e-3, atol=1e-5)


def difference(model: Any, ids: Tensor, answers: list[int]) -> tuple[Tensor, list[Tensor]]:
    """The difference of two answers' logits after a text, and what each layer's output projection reads."""
    seen: list[Tensor] = []
    layers = model.get_base_model().model.layers
    handles = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        for layer in layers
    ]
    logits = by_hand(model, ids).logits[0, -1]
    for handle in handles:
        handle.remove()
    return logits[answers[0]] - logits[answers[1]], seen


@pytest.mark.parametrize("how", ["mean", "resample"])
@torch.no_grad()
def test_heads_are_replaced_by_what_they_put_out_on_texts(how: str) -> None:
    model = prompted(t.LlamaModel(config("llama")))
    heads, ids = Heads(model), words_of("llama")(TEXTS[0], return_tensors="pt")["input_ids"]
    with heads.recorded("all") as tape:
        model(input_ids=ids)
    of_text = tape.layer(0)[0, VIRTUAL:, 1]  # (tokens, head_dim)
    with (
        heads.silenced(HeadSet([(0, 1)]), how=how, reference={"input_ids": ids}),
        heads.recorded("all") as lesioned,
    ):
        model(input_ids=ids)
    rows = lesioned.layer(0)[0, VIRTUAL:, 1]
    torch.testing.assert_close(rows, of_text.mean(0).expand_as(rows) if how == "mean" else of_text)


def test_other_operations_read_the_text_alone() -> None:
    both, tokenizer = planted.tasks(size=32), planted.tokenizer()
    encoder = prompted(t.BertModel(config("bert")))
    options: Any = {"tokenizer": tokenizer, "quiet": True}
    trained = hw.train(encoder, [both["a"]], epochs=1, **options).model
    alone, together = (
        hw.evaluate(trained, both["a"], batch_size=size, quiet=True).losses for size in (1, 16)
    )
    np.testing.assert_allclose(alone, together, rtol=1e-3, atol=1e-5)
    probes = hw.probe(
        encoder, both["a"], **options
    )  # with the same architecture at random, and no soft prompt
    assert probes is not None
    with pytest.warns(UserWarning, match="one after another: .* has a soft prompt"):
        few = few_shot(trained, both["b"], 4, [0, 1], epochs=1, tuning="decoder", quiet=True)
    assert np.isfinite(few["loss"]).all()
    embedding = HeadEmbedding(encoder, HeadSet([(0, 1), (1, 0)]), tokenizer=tokenizer, pooling="mean")
    rows = [embedding.transform([text])[0] for text in TEXTS]
    np.testing.assert_allclose(embedding.transform(TEXTS), rows, rtol=1e-4, atol=1e-5)


def test_where_virtual_tokens_have_no_meaning_it_is_said() -> None:
    with pytest.raises(HeadwiseError, match=r"has a soft prompt and a task's head.*FEATURE_EXTRACTION"):
        sentence_vectors(classifier(), TEXTS, tokenizer=planted.tokenizer())
    with pytest.raises(
        HeadwiseError, match=r"has a soft prompt \(PROMPT_TUNING\), and the roles of heads.*get_base_model"
    ):
        hw.roles(
            prompted(t.LlamaForCausalLM(config("llama")), "CAUSAL_LM"),
            tokenizer=words_of("llama"),
            quiet=True,
        )
    encoder, tokenizer = prompted(t.LlamaModel(config("llama"))), words_of("llama", "left")
    with pytest.raises(HeadwiseError, match=r'padded on the left.*padding_side = "right"'):
        check_fit(encoder, tokenizer, encode(planted.tasks(size=4)["a"].split("train"), tokenizer))


def test_inside_disable_adapter_there_are_none() -> None:
    model, task = prompted(t.LlamaForCausalLM(config("llama")), "CAUSAL_LM"), language("next-token")
    options: Any = {"tokenizer": words_of("llama"), "quiet": True}
    plain = hw.evaluate(model.get_base_model(), task, **options).losses
    with model.disable_adapter():
        np.testing.assert_array_equal(hw.evaluate(model, task, **options).losses, plain)
    assert not np.allclose(hw.evaluate(model, task, **options).losses, plain)
