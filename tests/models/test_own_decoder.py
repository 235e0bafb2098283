"""A decoder class of a user's own: built, trained, saved and opened like the others."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.models import DecoderOutput, MultiTaskModel, build
from headwise.tasks import Task


class FirstToken(nn.Module):
    def __init__(self, task: Any, dim: int, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(dim, len(task.classes), bias=bias)

    def forward(self, states: torch.Tensor, batch: Any) -> DecoderOutput:
        logits = self.out(states[:, 0])
        return DecoderOutput(
            nn.functional.cross_entropy(logits, batch.labels, reduction="none"), logits.argmax(-1), logits
        )


def model_and_task(**options: Any) -> tuple[MultiTaskModel, Task]:
    torch.manual_seed(0)
    rows = [(f"a{i % 2} {planted.FILLERS[i % 5]}", i % 2) for i in range(40)]
    task = Task(
        "mine", data={"train": rows[:30], "validation": rows[30:]}, kind="classes", classes=["0", "1"]
    )
    config = BertConfig(
        vocab_size=len(planted.WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    return MultiTaskModel(BertModel(config), planted.tokenizer(), [task], options={"mine": options}), task


@pytest.mark.filterwarnings("ignore:task 'mine'")
def test_it_is_trained_saved_and_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = model_and_task(decoder=FirstToken, bias=False)
    assert isinstance(model.decoders["mine"], FirstToken)
    assert model.decoders["mine"].out.bias is None
    before = model.decoders["mine"].out.weight.detach().clone()
    hw.train(
        model, task, method="multi-task", epochs=2, batch_size=8, learning_rate=1e-2, out=tmp_path / "run"
    )
    assert not torch.equal(before, model.decoders["mine"].out.weight.cpu())
    again = hw.load(tmp_path / "run")
    assert isinstance(again.decoders["mine"], FirstToken)
    torch.testing.assert_close(again.decoders["mine"].out.weight, model.decoders["mine"].out.weight.cpu())
    assert hw.score(again, task, examples=8, quiet=True).shape == (2, 2)
    monkeypatch.delitem(sys.modules, __name__)  # another program, which has not imported it
    with pytest.raises(HeadwiseError, match="import the class FirstToken of"):
        hw.load(tmp_path / "run")


def test_what_is_no_decoder_is_refused() -> None:
    with pytest.raises(HeadwiseError, match=r"it is a subclass of torch\.nn\.Module"):
        model_and_task(decoder=len)
    with pytest.raises(HeadwiseError, match="import the class system of os"):
        build(model_and_task()[1], 8, decoder="os:system")
