"""Copies trained side by side equal copies trained alone; few-shot samples; the protocol's result."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, DebertaV2Config, DebertaV2Model, LlamaConfig, LlamaModel

from headwise.errors import HeadwiseError
from headwise.models import MultiTaskModel
from headwise.tasks import Task
from headwise.training._fewshot import few_shot, sample_shots
from headwise.training._stacked import CannotStack, Stacked, StackedEmbedding, StackedLinear, StackedNorm
from words import word_tokenizer

pytestmark = pytest.mark.filterwarnings("error:the seeds were trained one after another")

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 5000,
}


def bert() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def llama() -> LlamaModel:
    torch.manual_seed(0)
    return LlamaModel(LlamaConfig(**SMALL, num_key_value_heads=1))


def deberta() -> DebertaV2Model:
    torch.manual_seed(0)
    return DebertaV2Model(
        DebertaV2Config(
            **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], hidden_dropout_prob=0.0
        )
    )


def write_copy(stack: Stacked, number: int, plain: nn.Module) -> None:
    """Writes the weights of one copy into `plain`, a model of the original's shape."""
    stacked = dict(stack.model.named_modules())
    with torch.no_grad():
        for path, module in plain.named_modules():
            source = stacked.get(path)
            if isinstance(source, StackedEmbedding):
                rows = torch.nonzero(source.positions >= 0).squeeze(-1)
                module.weight[rows] = source.weight[number][source.positions[rows]]
            elif isinstance(source, StackedLinear):
                weight = (
                    source.weight[number]
                    if source.rank is None
                    else source.weight + (source.down[number] @ source.up[number]).T
                )
                module.weight.copy_(weight if isinstance(module, nn.Linear) else weight.T)
                if source.rank is None and source.bias is not None:
                    module.bias.copy_(source.bias[number])
            elif isinstance(source, StackedNorm):
                module.weight.copy_(source.weight[number])
                if source.bias is not None:
                    module.bias.copy_(source.bias[number])


@pytest.mark.parametrize("make", [bert, llama])
def test_copies_side_by_side_learn_what_each_would_learn_alone(make) -> None:  # type: ignore[no-untyped-def]
    plain = make()
    ids = torch.randint(5, 4000, (6, 7))
    mask = torch.ones_like(ids)
    mask[::2, 5:] = 0

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: slice, copies: int) -> None:
        states = model(input_ids=ids[rows], attention_mask=mask[rows]).last_hidden_state[:, 4, :3]
        loss = states.square().view(copies, -1).mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    stacked = Stacked(plain, 3, ids.unique())
    optimizer = torch.optim.AdamW(stacked.trained(), lr=1e-3, weight_decay=0.0)
    for _ in range(3):
        step(stacked, optimizer, slice(0, 6), 3)
    for number in range(3):
        alone, out = copy.deepcopy(plain), copy.deepcopy(plain)
        optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-3, weight_decay=0.0)
        for _ in range(3):
            step(alone, optimizer, slice(2 * number, 2 * number + 2), 1)
        write_copy(stacked, number, out)
        moved = 0.0
        for (name, a), b, before in zip(
            alone.named_parameters(), out.parameters(), plain.parameters(), strict=True
        ):
            if not name.endswith("key.bias"):  # its true gradient is zero: Adam amplifies rounding there
                assert torch.allclose(a, b, atol=2e-6), name
            moved += float((b - before).detach().abs().sum())
        assert moved > 1.0


def test_stacking_leaves_the_model_as_it_was_and_refuses_what_it_cannot_do() -> None:
    plain = bert()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    Stacked(plain, 2, torch.arange(10))
    assert all(torch.equal(before[name], value) for name, value in plain.state_dict().items())
    assert isinstance(plain.encoder.layer[0].output.dense, nn.Linear)
    ids = torch.ones(4, 3, dtype=torch.long)
    with pytest.raises(CannotStack, match="shares work between rows"):
        Stacked(deberta(), 2, torch.arange(10))(input_ids=ids)


@pytest.fixture(scope="module")
def task() -> Task:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(120):
        good = i % 3 == 0
        words = [f"w{n}" for n in rng.integers(0, 20, 5)]
        words[rng.integers(5)] = "yes" if good else "no"
        rows.append({"text": " ".join(words), "label": "pos" if good else "neg"})
    return Task("cue", data={"train": rows[:80], "validation": rows[80:]}, text="text", label="label")


def multi(make=bert) -> MultiTaskModel:  # type: ignore[no-untyped-def]
    words = ["[PAD]", "[UNK]", "yes", "no", *(f"w{n}" for n in range(20))]
    return MultiTaskModel(make(), word_tokenizer(words), [])


def test_samples_hold_every_class_and_depend_on_the_seed_alone(task: Task) -> None:
    train = task.split("train")
    for seed in range(20):
        chosen = sample_shots(train, 4, seed)
        assert len(set(chosen.tolist())) == 4
        assert set(np.asarray(train.labels)[chosen]) == {0, 1}
        assert np.array_equal(chosen, sample_shots(train, 4, seed))
    assert len({tuple(sample_shots(train, 4, seed)) for seed in range(20)}) > 15
    with pytest.raises(HeadwiseError, match="1 shots cannot hold"):
        sample_shots(train, 1, 0)
    with pytest.raises(HeadwiseError, match="81 shots requested, but there are only 80"):
        sample_shots(train, 81, 0)


def test_the_result_does_not_depend_on_how_many_are_trained_side_by_side(task: Task) -> None:
    model = multi()
    settings = {"epochs": 6, "learning_rate": 3e-3, "batch_size": 8}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    together = few_shot(model, task, 12, [0, 1, 2], **settings, quiet=True)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    alone = few_shot(model, task, 12, [0, 1, 2], **settings | {"copies": 1}, quiet=True)
    assert np.allclose(together.loss, alone.loss, atol=1e-3)
    assert np.array_equal(together.score, alone.score)
    untrained = few_shot(model, task, 12, [0, 1, 2], **settings | {"learning_rate": 1e-30}, quiet=True)
    assert float(abs(together.loss - untrained.loss).mean()) > 0.02  # the copies did learn, and not the same
    assert not np.allclose(together.loss[0], together.loss[1], atol=1e-2)
    labels = np.asarray(task.split("validation").labels)
    assert together.score.values[0] == pytest.approx((together.prediction.values[0] == labels).mean())


@pytest.mark.parametrize("tuning", ["lora", "decoder"])
def test_other_tunings_leave_the_encoder_alone_and_learn(task: Task, tuning: str) -> None:
    settings = {"epochs": 10, "learning_rate": 3e-3, "tuning": tuning}
    first = few_shot(multi(), task, 12, [0, 1], epochs=1, learning_rate=1e-30, tuning=tuning, quiet=True)
    later = few_shot(multi(), task, 12, [0, 1], **settings, quiet=True)
    assert float(later.loss.mean()) < float(first.loss.mean())


def test_an_architecture_that_cannot_be_stacked_is_trained_one_after_another(task: Task) -> None:
    with pytest.warns(UserWarning, match="one after another: a layer saw 1 rows"):
        result = few_shot(multi(deberta), task, 8, [0, 1], epochs=2, quiet=True)
    assert result.score.shape == (2,)
    assert np.isfinite(result.loss).all()
    assert "one after another" in result.attrs["note"]
    untouched = {"epochs": 1, "tuning": "lora", "learning_rate": 1e-30}
    with pytest.warns(UserWarning, match="one after another"):
        first = few_shot(multi(deberta), task, 8, [0], **untouched, quiet=True)
    with pytest.warns(UserWarning, match="one after another"):
        later = few_shot(
            multi(deberta), task, 8, [0], **untouched | {"epochs": 10, "learning_rate": 3e-3}, quiet=True
        )
    assert float(later.loss.mean()) < float(first.loss.mean())


def test_unknown_tunings_are_named() -> None:
    with pytest.raises(
        HeadwiseError, match=r"tuning: given \"prompt\" .* must be 'full', 'lora' or 'decoder'"
    ):
        few_shot(multi(), None, 4, [0], tuning="prompt")


def test_copies_side_by_side_fit_into_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.training import _fewshot

    weights = [torch.zeros(1_000_000)]
    there: Any = SimpleNamespace(
        device=torch.device("cuda"), encoder=SimpleNamespace(parameters=lambda: weights)
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 4 * 16_000_000, 0))
    assert _fewshot._side_by_side(there, 30, 100) == 10  # a quarter of the free memory holds ten
    assert _fewshot._side_by_side(there, 4, 100) == 4
    assert _fewshot._side_by_side(there, 30, _fewshot.MOST_TOKENS // 3) == 3  # long texts: activations count
    assert _fewshot._side_by_side(there, 30, 10 * _fewshot.MOST_TOKENS) == 1
