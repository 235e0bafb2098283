"""Whole-text decoders: pooling, losses per example, and export to plain transformers."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import headwise
from headwise import models as decoders
from headwise.errors import HeadwiseError
from headwise.models import MultiTaskModel, SavedTask, export_task, pool
from headwise.models._families import FAMILIES

TASKS = [
    SavedTask("topic", "classes", ("a", "b", "c"), "accuracy"),
    SavedTask("grade", "number", (), "spearman"),
]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
SMALL |= {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
EXTRA: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen3": {"head_dim": 8, "num_key_value_heads": 2},
    "gemma": {"head_dim": 8, "num_key_value_heads": 2},
    "gemma2": {"head_dim": 8, "num_key_value_heads": 2},
    **{family: {"num_key_value_heads": 2} for family in ("llama", "mistral", "qwen2", "phi", "phi3")},
}


class NoTokenizer:
    """Stands where a tokenizer is kept and never asked."""

    pad_token, pad_token_id = "[PAD]", 0

    def save_pretrained(self, folder: Any) -> None: ...


def model(family: str, pooling: str | None = None) -> MultiTaskModel:
    torch.manual_seed(0)
    size = SMALL if family in ("gpt2", "gpt_neo", "opt") else {**SMALL, "intermediate_size": 64}
    encoder = AutoModel.from_config(AutoConfig.for_model(family, **size, **EXTRA.get(family, {})))
    return MultiTaskModel(encoder, NoTokenizer(), TASKS, pooling).eval()


def batch(left: bool = False, labels: Any = (0, 2, 1)) -> Any:
    """Three texts of 7, 4 and 6 tokens."""
    generator = torch.Generator().manual_seed(1)
    ids, mask = torch.full((3, 7), 1), torch.zeros(3, 7, dtype=torch.long)
    for row, length in enumerate((7, 4, 6)):
        where = slice(7 - length, 7) if left else slice(0, length)
        ids[row, where] = torch.randint(4, 50, (length,), generator=generator)
        mask[row, where] = 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    if left:
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return SimpleNamespace(inputs=inputs, labels=torch.tensor(labels), classes=())


@pytest.mark.parametrize("left", [False, True])
def test_pooling_finds_the_right_tokens_under_any_padding(left: bool) -> None:
    mask = batch(left).inputs["attention_mask"]
    states = torch.randn(3, 7, 5)
    for row in range(3):
        real = states[row][mask[row].bool()]
        expected = {"cls": real[0], "last": real[-1], "mean": real.mean(0)}
        for how, value in expected.items():
            torch.testing.assert_close(pool(states, mask, how)[row], value)
    for how in ("cls", "last", "mean"):
        torch.testing.assert_close(pool(states, None, how), pool(states, torch.ones(3, 7), how))
    with pytest.raises(HeadwiseError, match="'max' is unknown"):
        pool(states, mask, "max")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_listed_family_exports_with_equal_logits(family: str, tmp_path) -> None:
    ours = model(family)
    for task in TASKS:
        plain = export_task(ours, task.name, tmp_path / task.name if family in ("bert", "llama") else None)
        if family in ("bert", "llama"):
            plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / task.name)
        with torch.no_grad():
            logits = plain(**batch().inputs).logits
            torch.testing.assert_close(logits, ours(task.name, batch()).logits, rtol=0, atol=1e-6)
        assert plain.config.num_labels == (3 if task.kind == "classes" else 1)


def test_dropout_of_the_decoder_is_the_familys_own() -> None:
    ours = model("roberta")
    ours.encoder.config.classifier_dropout = 0.37
    ours.add_task(SavedTask("more", "classes", ("x", "y"), "accuracy"))
    shape = ours.decoders["more"].shape
    assert (shape.dropout_in, shape.dropout_out) == (0.37, 0.37)
    assert model("llama").decoders["topic"].out.bias is None


def test_what_cannot_be_exported_says_why() -> None:
    with pytest.raises(HeadwiseError, match="'mean' pooling has no equivalent"):
        export_task(model("bert", "mean"), "topic")
    with pytest.raises(HeadwiseError, match="no task 'other'"):
        export_task(model("bert"), "other")
    masked = model("bert")
    masked.contexts["topic"] = torch.no_grad
    with pytest.raises(HeadwiseError, match="masks heads"):
        export_task(masked, "topic")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_losses_are_each_examples_own(family: str) -> None:
    """Against transformers' own mean loss of each example alone, and whichever examples share the batch."""
    ours = model(family)
    whole = {task.name: ours(task.name, batch(labels=(0, 2, 1))) for task in TASKS}
    for task in TASKS:
        plain = export_task(ours, task.name)
        for row, length in enumerate((7, 4, 6)):
            inputs = {name: value[row : row + 1, :length] for name, value in batch().inputs.items()}
            label = torch.tensor([(0, 2, 1)[row]])
            loss = plain(**inputs, labels=label.float() if task.kind == "number" else label).loss
            torch.testing.assert_close(whole[task.name].loss[row], loss, rtol=1e-5, atol=1e-5)
    assert whole["topic"].prediction.tolist() == whole["topic"].logits.argmax(1).tolist()
    assert whole["grade"].prediction.shape == (3,)


def test_unlabelled_examples_have_no_loss_but_a_prediction() -> None:
    output = model("bert")("topic", batch(labels=(0, -1, 1)))
    assert output.loss.isnan().tolist() == [False, True, False]
    assert output.prediction.shape == (3,)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_padding_side_does_not_matter(family: str) -> None:
    ours = model(family)
    with torch.no_grad():
        right, left = ours("topic", batch()).logits, ours("topic", batch(left=True)).logits
    torch.testing.assert_close(left, right, atol=1e-5, rtol=0)


def test_decoders_start_from_berts_pooler_and_saved_models_open(tmp_path, monkeypatch) -> None:
    ours = model("bert")
    assert torch.equal(ours.decoders["topic"].dense.weight, ours.encoder.pooler.dense.weight)
    assert not ours.encoder.pooler.dense.weight.requires_grad
    with torch.no_grad():
        ours.decoders["topic"].dense.weight.add_(1)
    before = ours.state_dict()
    ours.save(tmp_path)
    assert not list(tmp_path.rglob("*.bin"))
    assert not list(tmp_path.rglob("*.pt"))
    monkeypatch.setattr("headwise.models._opening.open_tokenizer", lambda place: NoTokenizer())
    again = headwise.load(tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in again.state_dict().items())
    assert again.tasks == ours.tasks


def test_mistakes_are_named() -> None:
    with pytest.raises(HeadwiseError, match="already has a task 'topic'"):
        model("bert").add_task(TASKS[0])
    with pytest.raises(HeadwiseError, match="has no task 'x'; it has topic, grade"):
        model("bert")("x", batch())
    with pytest.raises(HeadwiseError, match=r"has a '\.'"):
        model("bert").add_task(SavedTask("a.b", "number", (), "pearson"))
    with pytest.raises(HeadwiseError, match="no trainable decoder"):
        decoders.build(SavedTask("text", "next-token", (), "perplexity"), 8)
    with pytest.raises(HeadwiseError, match="has 1 classes"):
        decoders.build(SavedTask("one", "classes", ("a",), "accuracy"), 8)
