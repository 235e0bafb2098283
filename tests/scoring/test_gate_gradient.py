"""Gate-gradient scores against a per-example loop that knows nothing of gates, and the published variants re-derived."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import planted
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models._model import MultiTaskModel
from headwise.scoring import gate_gradient
from headwise.tasks import Sentence, Task, batches, encode
from headwise.tasks._batches import MOST_TOKENS

pytestmark = pytest.mark.filterwarnings(
    "ignore:task .t."
)  # the few validation examples are training examples
LAYERS, HEADS, DIM = 3, 4, 16
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(planted.FILLERS, RNG.integers(2, 9))) for _ in range(13)]
BERT = {
    "vocab_size": len(planted.WORDS), "hidden_size": DIM, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 32, "max_position_embeddings": 40, "initializer_range": 0.5,
}  # fmt: skip
Losses = Iterator[torch.Tensor]


def mixed(rows: list[Any], **options: Any) -> Task:
    return Task("t", data={"train": rows, "validation": rows[:3]}, **options)


def encoder_with(task: Task) -> tuple[Any, Any]:
    model = MultiTaskModel(BertModel(BertConfig(**BERT)), planted.tokenizer(), [task])
    for weight in model.decoders.parameters():  # as large as the encoder's, so that losses differ
        torch.nn.init.normal_(weight, std=0.5)
    return model.eval(), [layer.attention.output.dense for layer in model.encoder.encoder.layer]


# Each case: a task, a model, its output projections, and its losses one example at a time, written out without headwise's decoders.
def classes() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    task = mixed([(text, i % 3) for i, text in enumerate(TEXTS)], kind="classes")
    model = BertForSequenceClassification(BertConfig(**BERT, num_labels=3)).eval()
    tokenizer = planted.tokenizer()

    def losses() -> Losses:
        for i, text in enumerate(TEXTS):
            yield functional.cross_entropy(
                model(**tokenizer(text, return_tensors="pt")).logits, torch.tensor([i % 3])
            )

    return (
        task,
        (model, tokenizer),
        [layer.attention.output.dense for layer in model.bert.encoder.layer],
        losses,
    )


def pairs() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    both = list(zip(TEXTS, reversed(TEXTS), strict=True))
    task = mixed([(*texts, i % 2) for i, texts in enumerate(both)], kind="classes", text=("first", "second"))
    model, projections = encoder_with(task)

    def losses() -> Losses:
        for i, (first, second) in enumerate(both):
            state = model.encoder(**model.tokenizer(first, second, return_tensors="pt")).last_hidden_state[
                :, 0
            ]
            decoder = model.decoders["t"]
            yield functional.cross_entropy(
                decoder.out(torch.tanh(decoder.dense(state))), torch.tensor([i % 2])
            )

    return task, (model, None), projections, losses


def number() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    task = mixed([(text, i / 3) for i, text in enumerate(TEXTS)], kind="number")
    model, projections = encoder_with(task)

    def losses() -> Losses:
        for i, text in enumerate(TEXTS):
            state = model.encoder(**model.tokenizer(text, return_tensors="pt")).last_hidden_state[:, 0]
            decoder = model.decoders["t"]
            yield (decoder.out(torch.tanh(decoder.dense(state))) - i / 3).square().sum()

    return task, (model, None), projections, losses


def tags() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    gold = [[int(word[1:]) % 3 for word in text.split()] for text in TEXTS]
    sentences = [
        Sentence(tuple(text.split()), upos=tuple("XYZ"[g] for g in row))
        for text, row in zip(TEXTS, gold, strict=True)
    ]
    task = mixed(sentences, kind="tags", classes=["X", "Y", "Z"])
    model = BertForTokenClassification(BertConfig(**BERT, num_labels=3)).eval()
    tokenizer = planted.tokenizer()

    def losses() -> Losses:
        for text, row in zip(TEXTS, gold, strict=True):
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0, 1:-1]  # a token is a word here
            yield functional.cross_entropy(logits, torch.tensor(row))

    return (
        task,
        (model, tokenizer),
        [layer.attention.output.dense for layer in model.bert.encoder.layer],
        losses,
    )


def next_token() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    task = mixed([(text,) for text in TEXTS], kind="next-token")
    config = LlamaConfig(
        vocab_size=len(planted.WORDS), hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=40, initializer_range=0.5,
    )  # fmt: skip
    model, tokenizer = LlamaForCausalLM(config).eval(), planted.tokenizer()

    def losses() -> Losses:
        for text in TEXTS:
            inputs = tokenizer(text, return_tensors="pt")
            logits = model(**inputs).logits[0, :-2]  # predicts the words, not [SEP]
            yield functional.cross_entropy(logits, inputs["input_ids"][0, 1:-1])

    return task, (model, tokenizer), [layer.self_attn.o_proj for layer in model.model.layers], losses


def masked_token() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    task = mixed([(text,) for text in TEXTS], kind="masked-token")
    model, tokenizer = BertForMaskedLM(BertConfig(**BERT)).eval(), planted.tokenizer()

    def losses() -> Losses:
        for batch in batches(
            encode(task.split("train"), tokenizer, 256), 1
        ):  # what is masked is the task's to say
            logits = model(**batch.inputs).logits
            yield functional.cross_entropy(logits[0], batch.labels[0], ignore_index=-100)

    return (
        task,
        (model, tokenizer),
        [layer.attention.output.dense for layer in model.bert.encoder.layer],
        losses,
    )


def minimal_pairs() -> tuple[Task, Any, Any, Callable[[], Losses]]:
    both = list(zip(TEXTS, reversed(TEXTS), strict=True))[:6]
    task = mixed(both, kind="minimal-pairs", text=("good", "bad"))
    config = GPT2Config(
        vocab_size=len(planted.WORDS),
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=40,
        initializer_range=0.3,
    )
    model, tokenizer = GPT2LMHeadModel(config).eval(), planted.tokenizer()

    def log_p(text: str) -> torch.Tensor:
        inputs = {
            key: value
            for key, value in tokenizer(text, return_tensors="pt").items()
            if key != "token_type_ids"
        }
        return -functional.cross_entropy(
            model(**inputs).logits[0, :-2], inputs["input_ids"][0, 1:-1], reduction="sum"
        )

    def losses() -> Losses:
        for good, bad in both:
            yield functional.softplus(log_p(bad) - log_p(good))

    return task, (model, tokenizer), [block.attn.c_proj for block in model.transformer.h], losses


CASES = {
    case.__name__: case for case in (classes, pairs, number, tags, next_token, masked_token, minimal_pairs)
}


def loop(projections: list[torch.nn.Module], losses: Callable[[], Losses]) -> np.ndarray:
    """Michel et al.'s identity: ∂L/∂ξ_h = Σ_t z_t · ∂L/∂z_t, from the head outputs z of every pass and their gradients."""
    total: np.ndarray | float = 0.0
    seen: list[list[torch.Tensor]] = [[] for _ in projections]

    def keep(store: list[torch.Tensor]) -> Callable[..., None]:
        def hook(module: Any, args: Any) -> None:
            args[0].retain_grad()
            store.append(args[0])

        return hook

    handles = [p.register_forward_pre_hook(keep(store)) for p, store in zip(projections, seen, strict=True)]
    count = 0
    for loss in losses():
        loss.backward()
        rows = [
            sum((z * z.grad).unflatten(-1, (HEADS, -1)).sum(dim=(0, 1, 3)) for z in store) for store in seen
        ]  # type: ignore[operator]
        total = total + torch.stack(rows).abs().detach().double().numpy()  # type: ignore[arg-type]
        count += 1
        for store in seen:
            store.clear()
    for handle in handles:
        handle.remove()
    return np.asarray(total / count)


@pytest.mark.parametrize("case", CASES)
def test_scores_equal_a_per_example_loop(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    task, (model, tokenizer), projections, losses = CASES[case]()
    expected = loop(projections, losses)
    monkeypatch.setitem(MOST_TOKENS, "cpu", 12)  # tokens of a batch, where no number of examples is given
    for size in (1, 4, 32, None):
        found = gate_gradient(model, task, tokenizer=tokenizer, batch_size=size, quiet=True).to_numpy()
        assert np.abs(found - expected).max() / expected.max() < 1e-5
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert expected.min() > 0


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_padding_plays_no_part(padding_side: str) -> None:
    torch.manual_seed(1)
    task, (model, tokenizer), projections, losses = next_token()
    expected = loop(projections, losses)
    tokenizer.padding_side = padding_side
    found = gate_gradient(model, task, tokenizer=tokenizer, batch_size=13, quiet=True)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_order_plays_no_part_and_the_sample_is_drawn_by_seed() -> None:
    torch.manual_seed(1)
    task = mixed([(text, i % 2) for i, text in enumerate(TEXTS)], kind="classes")
    turned = mixed([(text, i % 2) for i, text in enumerate(TEXTS)][::-1], kind="classes")
    model, _ = encoder_with(task)
    np.testing.assert_allclose(
        gate_gradient(model, task, quiet=True), gate_gradient(model, turned, quiet=True), rtol=1e-4
    )
    some = gate_gradient(model, task, examples=5, seed=3, quiet=True)
    assert some.attrs["examples"] == 5
    assert (some == gate_gradient(model, task, examples=5, seed=3, quiet=True)).all()
    assert (some != gate_gradient(model, task, examples=5, seed=4, quiet=True)).any()


def test_no_trace_is_left() -> None:
    torch.manual_seed(1)
    task = mixed([(text, i % 2) for i, text in enumerate(TEXTS)], kind="classes")
    model, _ = encoder_with(task)
    model.train()
    model.encoder.pooler.eval()
    model.encoder.embeddings.word_embeddings.weight.requires_grad_(False)
    weight = model.decoders["t"].out.weight
    weight.grad = torch.ones_like(weight)
    modes, asking = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    hooks = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())
    state = torch.get_rng_state()
    gate_gradient(model, task, quiet=True)
    assert torch.equal(state, torch.get_rng_state())
    assert modes == [m.training for m in model.modules()]
    assert asking == [p.requires_grad for p in model.parameters()]
    assert hooks == sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())
    assert torch.equal(weight.grad, torch.ones_like(weight))
    assert all(p.grad is None for p in model.encoder.parameters())


@pytest.fixture(scope="module")
def variants() -> tuple[Task, Any, dict[str, Any]]:
    """Token-level pieces of every example: (z · ∂L/∂z) per token, from the loop of `loop`."""
    torch.manual_seed(2)
    task = mixed([(text, i % 2) for i, text in enumerate(TEXTS)], kind="classes")
    model, projections = encoder_with(task)
    pieces = []
    for i, text in enumerate(TEXTS):
        stores: list[torch.Tensor] = []

        def keep(module: Any, args: Any, stores: list[torch.Tensor] = stores) -> None:
            args[0].retain_grad()
            stores.append(args[0])

        handles = [p.register_forward_pre_hook(keep) for p in projections]
        state = model.encoder(**model.tokenizer(text, return_tensors="pt")).last_hidden_state[:, 0]
        decoder = model.decoders["t"]
        functional.cross_entropy(
            decoder.out(torch.tanh(decoder.dense(state))), torch.tensor([i % 2])
        ).backward()
        for handle in handles:
            handle.remove()
        by_token = [(z * z.grad).detach().double().unflatten(-1, (HEADS, -1)).sum(-1)[0] for z in stores]
        pieces.append(torch.stack(by_token).numpy())  # (layers, tokens, heads)
    return task, model, {"pieces": pieces}


def test_published_variants(variants: tuple[Task, Any, dict[str, Any]]) -> None:
    task, model, extra = variants
    pieces: list[np.ndarray] = extra["pieces"]
    tokens, examples = sum(p.shape[1] for p in pieces), len(pieces)
    by_token = sum(np.abs(p).sum(axis=1) for p in pieces)  # (layers, heads)
    signed = np.stack([p.sum(axis=1) for p in pieces])  # (examples, layers, heads)

    def l2(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).sum(axis=1, keepdims=True))

    by_layer = np.full((LAYERS, 1), float(tokens))
    last_examples, last_none = by_layer.copy(), by_layer.copy()
    last_examples[-1], last_none[-1] = examples, 1
    size = 4
    by_batch = sum(np.abs(signed[i : i + size].mean(axis=0)) for i in range(0, examples, size)) / tokens
    bertology = (l2(by_batch) - l2(by_batch).min()) / (l2(by_batch).max() - l2(by_batch).min())
    expected = {
        "eq4": np.abs(signed).mean(axis=0),
        "michel": l2(by_token / last_examples),
        "iap": by_token / tokens,
        "iat": by_token / last_none,
        "bertology": bertology,
        "super-tickets": l2(by_token / -(-examples // size)),
    }
    for variant, values in expected.items():
        found = gate_gradient(model, task, variant=variant, batch_size=size, quiet=True)
        np.testing.assert_allclose(found, values, rtol=1e-3, atol=1e-5 * values.max(), err_msg=variant)
    # the norm of a layer hides what the layer was divided by
    bare = gate_gradient(model, task, variant="michel", layer_norm=False, quiet=True)
    np.testing.assert_allclose(
        bare, by_token / last_examples, rtol=1e-3, atol=1e-5 * by_token.max() / examples
    )
    tickets = gate_gradient(
        model, task, variant="super-tickets", layer_norm=False, batch_size=size, quiet=True
    )
    np.testing.assert_allclose(
        tickets, by_token / -(-examples // size), rtol=1e-3, atol=1e-5 * by_token.max()
    )
    # the released IAT code's last layer outranks everything, as methods of this kind must know
    iat = gate_gradient(model, task, variant="iat", quiet=True)
    assert iat[-1].min() > iat[:-1].max()


def test_options_override_a_variant_and_mistakes_are_named(
    variants: tuple[Task, Any, dict[str, Any]],
) -> None:
    task, model, _ = variants
    plain = gate_gradient(model, task, variant="michel", layer_norm=False, divisor="tokens", quiet=True)
    np.testing.assert_allclose(plain, gate_gradient(model, task, variant="iap", quiet=True))
    with pytest.raises(HeadwiseError, match="eq4"):
        gate_gradient(model, task, variant="nonsense")
    with pytest.raises(HeadwiseError, match="divisor"):
        gate_gradient(model, task, divisor="words")  # type: ignore[arg-type]
    with pytest.raises(HeadwiseError, match="no split"):
        gate_gradient(model, task, split="nowhere")


def test_silenced_heads_are_missing_and_change_the_rest(variants: tuple[Task, Any, dict[str, Any]]) -> None:
    task, model, _ = variants
    some = gate_gradient(model, task, silenced=HeadSet([(0, 1), (2, 3)]), quiet=True)
    assert np.isnan(some.to_numpy()).sum() == 2
    assert np.isnan(some.to_numpy()[[0, 2], [1, 3]]).all()
    whole = gate_gradient(model, task, quiet=True)
    assert not np.allclose(some.to_numpy()[1], whole.to_numpy()[1])
