"""Important-head training of a model with LoRA: only chosen heads move, in our loop and in a Trainer."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import Trainer, TrainingArguments

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel
from headwise.training import TrainingRun
from headwise.training._trainer import HeadTrainingCallback, TrainerData, TrainerModel
from headwise.training.methods import ImportantHeads

TASKS = [toy.task("mood", 32), toy.task("animal", 32)]
ATTENTION = ["query", "key", "value", "attention.output.dense"]


FAMILIES = ["bert", "llama"]


def adapted(family: str = "bert", **options: Any) -> Any:
    targets = ATTENTION if family == "bert" else ["q_proj", "k_proj", "v_proj", "o_proj"]
    settings = {"r": 2, "target_modules": targets, "init_lora_weights": False, **options}
    return get_peft_model(toy.encoder(family), LoraConfig(**settings))


def per_head(encoder: Any, count: int = 4) -> dict[tuple[int, int], list[Tensor]]:
    """Each head's rows of the weights with their updates, and its columns of the last one; with a count of 2, those of shared keys and
    values."""
    slices: dict[tuple[int, int], list[Tensor]] = {
        (layer, head): [] for layer in range(2) for head in range(count)
    }
    for path, module in encoder.named_modules():
        if hasattr(module, "get_delta_weight"):
            weight = (module.base_layer.weight + module.get_delta_weight("default")).detach()
            rows = weight.T if path.endswith(("output.dense", "o_proj")) else weight
            for head in range(count if len(rows) == 8 * count else 0):
                slices[int(re.split(r"layers?\.", path)[1][0]), head].append(
                    rows[8 * head : 8 * head + 8].clone()
                )
    return slices


def moved_heads(before: dict[tuple[int, int], list[Tensor]], encoder: Any, count: int = 4) -> HeadSet:
    after = per_head(encoder, count)
    return HeadSet(
        head
        for head in after
        if not all(torch.equal(a, b) for a, b in zip(before[head], after[head], strict=True))
    )


def whole_groups(sets: Iterable[HeadSet]) -> HeadSet:
    """Pairs of heads with common keys and values that are chosen together, in steps of one task."""
    pairs = [(layer, group) for layer in range(2) for group in range(2)]
    return HeadSet(
        (layer, group)
        for layer, group in pairs
        if any({(layer, 2 * group), (layer, 2 * group + 1)} <= set(one) for one in sets)
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_important_head_training_moves_chosen_heads_alone(optimizer: str, family: str) -> None:
    encoder = adapted(family)
    before, shared = per_head(encoder), per_head(encoder, 2)
    model = MultiTaskModel(encoder, toy.tokenizer(), TASKS)
    method = ImportantHeads(alpha=0.3, delta=1.0)
    TrainingRun(model, TASKS, method, toy.settings(weight_decay=0.1, clip=1.0, optimizer=optimizer)).train()
    chosen = method.heads["mood"] | method.heads["animal"]
    assert 0 < len(chosen) < 8
    assert moved_heads(before, encoder) == chosen
    if family == "llama":
        assert moved_heads(shared, encoder, 2) == whole_groups(method.heads.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trainer_moves_chosen_heads_alone(family: str, tmp_path: Path) -> None:
    encoder = adapted(family)
    before, shared = per_head(encoder), per_head(encoder, 2)
    model = MultiTaskModel(encoder, toy.tokenizer(), TASKS)
    chosen = {"mood": HeadSet([(0, 1), (1, 2), (1, 3)]), "animal": HeadSet([(0, 0), (1, 2)])}
    data = TrainerData(TASKS, model.tokenizer, batch_size=16, epochs=1)
    args = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        learning_rate=1e-2,
        weight_decay=0.1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    callback = HeadTrainingCallback(Heads(encoder), chosen, delta=1.0)
    trainer = Trainer(
        TrainerModel(model), args, train_dataset=data, data_collator=data.collate, callbacks=[callback]
    )
    data.feed(trainer)
    trainer.train()
    assert moved_heads(before, encoder) == chosen["mood"] | chosen["animal"]
    if family == "llama":
        assert moved_heads(shared, encoder, 2) == HeadSet([(1, 1)]) == whole_groups(chosen.values())


def test_dora_is_refused_before_the_first_step() -> None:
    encoder = adapted(use_dora=True)
    before = toy.weights(encoder)
    with pytest.raises(HeadwiseError, match="has an adapter of type DoRA"):
        hw.train(encoder, TASKS, "iat", tokenizer=toy.tokenizer(), epochs=1, device="cpu", quiet=True)
    toy.assert_identical(before, toy.weights(encoder))


def test_adapters_on_all_linear_layers_are_trained_and_the_decoder_starts_from_what_the_pooler_computes() -> (
    None
):
    encoder = adapted(target_modules="all-linear")
    states = torch.randn(3, 32)
    with torch.no_grad():
        expected = encoder.get_submodule("base_model.model.pooler.dense")(states)
        found = MultiTaskModel(encoder, toy.tokenizer(), TASKS).decoders["mood"].dense(states)
    torch.testing.assert_close(found, expected)
    result = hw.train(
        encoder, TASKS, "multi-task", tokenizer=toy.tokenizer(), epochs=1, device="cpu", quiet=True
    )
    assert result.history["loss"].notna().all()
