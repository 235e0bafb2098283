"""One function opens models: every kind of thing a user calls a model, through training, scoring, probing and the app."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    T5Config,
    T5Model,
)

import headwise as hw
from headwise._base.opener import ForeignCode
from headwise.app.session import open_session
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, save_removed
from headwise.models import MultiTaskModel, TaskModel, _opening as opening, open_model
from headwise.scoring import score
from test_opener import SIZES, reviews, saved, with_code

LORA: dict[str, Any] = {
    "r": 2,
    "target_modules": ["query", "attention.output.dense"],
    "init_lora_weights": False,
}


def lora(folder: Path, kind: Any = BertForSequenceClassification, classes: int | None = None) -> Any:
    """A live PEFT model on the weights of a folder, with a classifier of its own if the folder has none."""
    options = {} if classes is None else {"num_labels": classes}
    torch.manual_seed(1)
    task = "SEQ_CLS" if kind is BertForSequenceClassification else "FEATURE_EXTRACTION"
    return get_peft_model(kind.from_pretrained(folder, **options), LoraConfig(task_type=task, **LORA)).eval()


def bring(kind: str, folder: Path) -> Any:
    """One of the things a user may bring."""
    bare, headed = saved(folder / "bare"), saved(folder / "headed", BertForSequenceClassification)
    if kind == "folder of a classifier":
        return headed
    if kind == "live encoder":
        return BertModel.from_pretrained(bare)
    if kind == "live classifier":
        return BertForSequenceClassification.from_pretrained(headed)
    if kind == "live multi-task":
        return MultiTaskModel.from_pretrained(bare, [reviews()])
    if kind == "saved multi-task":
        MultiTaskModel.from_pretrained(bare, [reviews()]).save(folder / "saved")
        return str(folder / "saved")
    if kind == "saved classifier":
        open_model(BertForSequenceClassification.from_pretrained(headed), reviews()).save(folder / "saved")
        return folder / "saved"
    if kind == "saved without heads":
        smaller = Heads(BertForSequenceClassification.from_pretrained(headed)).remove(HeadSet([(0, 1)]))
        save_removed(smaller, folder / "removed")
        BertTokenizerFast.from_pretrained(bare).save_pretrained(folder / "removed")
        return folder / "removed"
    if kind == "live PEFT classifier":
        return lora(headed)
    if kind == "live PEFT encoder":
        return lora(bare, BertModel)
    if kind == "saved PEFT":
        open_model(lora(headed), reviews()).save(folder / "saved")
        return folder / "saved"
    if kind == "adapter of a classifier":
        lora(bare).save_pretrained(folder / "adapter")
        return str(folder / "adapter")
    if kind == "adapter of an encoder":
        lora(bare, BertModel).save_pretrained(folder / "adapter")
        return folder / "adapter"
    assert kind == "folder"
    return str(bare)


ENCODERS = [
    "folder",
    "live encoder",
    "live PEFT encoder",
    "adapter of an encoder",
]  # no head: they do not answer
ANSWERING = [
    "folder of a classifier",
    "live classifier",
    "live multi-task",
    "saved multi-task",
    "saved classifier",
    "saved without heads",
    "live PEFT classifier",
    "saved PEFT",
    "adapter of a classifier",
]
SHORT: dict[str, Any] = {"method": "multi-task", "epochs": 1, "max_length": 8, "quiet": True, "device": "cpu"}


@pytest.mark.parametrize("kind", [*ENCODERS, *ANSWERING])
def test_everything_a_user_brings_is_opened(kind: str, tmp_path: Path) -> None:
    task = reviews()
    probed = hw.probe(bring(kind, tmp_path / "probe"), task, quiet=True, strengths=(1.0,), max_length=8)
    assert dict(probed.scores.sizes) == {"task": 1, "layer": 2, "head": 2}
    brought = bring(kind, tmp_path / "score")
    if kind in ENCODERS:
        with pytest.raises(
            HeadwiseError, match=r"has no trained .*head.*Train it first \(headwise train --model"
        ):
            hw.score(brought, task, quiet=True)
        if isinstance(brought, str | Path):
            with pytest.raises(
                HeadwiseError, match=r"has no trained .*Train it first \(headwise train --model"
            ):
                open_session(brought)
    else:
        once, again = (hw.score(brought, task, quiet=True, max_length=8).to_numpy() for _ in range(2))
        np.testing.assert_array_equal(once, again)
        if isinstance(brought, str | Path):
            (answer,) = open_session(brought).predict("the film was good", "", [])
            assert len(answer["classes"]) == 2
    kept = None if kind == "saved without heads" else tmp_path / "out"
    trained = hw.train(bring(kind, tmp_path / "train"), task, out=kept, **SHORT)
    asked = hw.lesion(trained.model if kept is None else hw.load(kept), task, [], quiet=True)
    before = trained.predictions.query("split == 'validation'")["prediction"].to_numpy()
    np.testing.assert_array_equal(asked.tasks["mood"].predictions[0].ravel(), before)


def logits(model: Any) -> Any:
    tokens = torch.tensor([[2, 9, 7, 10, 5, 3]])
    with torch.no_grad():
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens))


def test_an_adapter_folder_is_the_model_that_was_saved(tmp_path: Path) -> None:
    live = lora(saved(tmp_path / "bare"), classes=3)
    live.save_pretrained(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "config.json").exists()
    opened = open_model(tmp_path / "adapter")
    assert isinstance(opened, TaskModel)
    assert len(opened.tasks["bare"].classes) == 3
    torch.testing.assert_close(logits(opened.encoder).logits, logits(live).logits)
    body = open_model(tmp_path / "adapter", need="encoder").encoder
    assert isinstance(body, BertModel)
    torch.testing.assert_close(
        logits(body).last_hidden_state, logits(live.get_base_model().bert).last_hidden_state
    )
    assert not torch.allclose(
        logits(body).last_hidden_state, logits(open_model(tmp_path / "bare", need="encoder").encoder)[0]
    )
    trained = {
        name
        for name, weight in open_model(tmp_path / "adapter", reviews3(), "trains").named_parameters()
        if weight.requires_grad
    }
    assert {"LoRA" if "lora_" in name else name.rpartition(".")[0] for name in trained} == {
        "LoRA",
        "encoder.base_model.model.classifier.modules_to_save.default",
    }


def test_the_inside_of_a_peft_model_is_not_saved_alone(tmp_path: Path) -> None:
    lora(saved(tmp_path / "bare")).save_pretrained(tmp_path / "adapter")
    with pytest.raises(HeadwiseError, match=r"contains the adapters of a PEFT model.*merge_and_unload"):
        MultiTaskModel.from_pretrained(tmp_path / "adapter", [reviews()]).save(tmp_path / "out")
    with pytest.raises(HeadwiseError, match=r"contains the adapters of a PEFT model.*merge_and_unload"):
        hw.HeadEmbedding(tmp_path / "adapter", HeadSet([(0, 0)])).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def reviews3() -> hw.Task:
    rows = [(f"the film was {mood}", mood) for mood in ("good", "bad", "the")] * 6
    return hw.Task("mood", data={"train": rows, "validation": rows[:4]}, label="label", metric="accuracy")


def test_adapters_that_are_not_whole_are_named(tmp_path: Path) -> None:
    lora(saved(tmp_path / "bare")).save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    whole = load_file(file)
    for change, said in (
        ("query.lora_A.weight", "lacks .*query.lora_A.weight, which would be"),
        ("classifier.weight", "classifier"),
    ):
        save_file({name: value for name, value in whole.items() if not name.endswith(change)}, file)
        with pytest.raises(HeadwiseError, match=said):
            open_model(tmp_path / "adapter", reviews())
    save_file({**whole, "base_model.model.other.lora_A.weight": torch.ones(2)}, file)
    with pytest.raises(HeadwiseError, match=r"other.lora_A.weight, which does not fit .*bare"):
        open_model(tmp_path / "adapter", reviews())
    torch.save({}, tmp_path / "adapter" / "adapter_model.bin")
    file.unlink()
    with pytest.raises(HeadwiseError, match=r"adapter_model.bin, a pickle"):
        open_model(tmp_path / "adapter", reviews())
    settings = tmp_path / "adapter" / "adapter_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "base_model_name_or_path": None}))
    with pytest.raises(HeadwiseError, match="does not say on which model the adapter was trained"):
        open_model(tmp_path / "adapter", reviews())


def test_prompts_of_peft_stay_with_the_model(tmp_path: Path) -> None:
    wrapped = get_peft_model(
        BertForSequenceClassification(BertConfig(**SIZES)),
        PrefixTuningConfig(num_virtual_tokens=2, task_type="SEQ_CLS"),
    )
    tokenizer = BertTokenizerFast.from_pretrained(saved(tmp_path))
    assert open_model(wrapped, need="encoder", tokenizer=tokenizer).encoder is wrapped


def test_what_is_not_a_model_is_said(tmp_path: Path) -> None:
    hw.train(
        saved(tmp_path / "bare"), reviews(), out=tmp_path / "single", **{**SHORT, "method": "single-task"}
    )
    with pytest.raises(HeadwiseError, match=r"holds one model per task: give one of .*single/mood"):
        hw.score(tmp_path / "single", reviews())
    with pytest.raises(HeadwiseError, match="int is not a model: give a folder"):
        hw.score(5, reviews())
    other = reviews().renamed("other")
    with pytest.raises(HeadwiseError, match="no trained decoder for task 'other': it knows mood"):
        hw.score(tmp_path / "single" / "mood", other)
    tags = hw.Task("tags", data={"train": [(["a", "b"], ["X", "Y"])] * 4}, kind="tags", label="label")
    with pytest.raises(HeadwiseError, match=r"no trained head for tasks of kind classes, tags together"):
        hw.score(tmp_path / "bare", [reviews(), tags])


def test_encoders_of_encoder_decoders(tmp_path: Path) -> None:
    small = T5Config(
        vocab_size=11, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    model = T5Model(small)
    tokenizer = BertTokenizerFast.from_pretrained(saved(tmp_path / "bare"))
    assert open_model(model, need="encoder", tokenizer=tokenizer).encoder is model.encoder
    model.save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    opened = open_model(tmp_path / "t5", need="encoder")
    assert Heads(opened.encoder).shape == (2, 2)


def test_precision_is_float32_on_a_cpu_and_as_asked_otherwise(tmp_path: Path) -> None:
    folder = saved(tmp_path, BertForSequenceClassification)
    model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.bfloat16)
    for weight in model.parameters():
        weight.data *= (
            10 if weight.ndim == 2 else 1
        )  # so that heads change the logits by more than bf16 rounds away
    model.save_pretrained(folder)
    for need in ("answers", "trains", "encoder"):
        assert open_model(folder, reviews(), need, device="cpu").encoder.dtype == torch.float32  # type: ignore[arg-type]
    assert open_model(folder, reviews(), dtype="auto").encoder.dtype == torch.bfloat16
    assert open_model(folder, reviews(), dtype="float16").encoder.dtype == torch.float16
    if torch.cuda.is_available():
        assert open_model(folder, reviews(), device="auto").encoder.dtype == torch.bfloat16
        assert open_model(folder, reviews(), "trains", device="auto").encoder.dtype == torch.float32
    with pytest.raises(HeadwiseError, match="dtype is 'half-ish'; choose float32, bfloat16"):
        open_model(folder, reviews(), dtype="half-ish")
    assert open_model(folder, reviews(), dtype="bf16").encoder.dtype == torch.bfloat16
    scores = score(str(folder), reviews(), dtype="auto", examples=4, quiet=True)
    assert (
        scores.attrs["weights"] == "bfloat16"
    )  # what the weights were, beside the precision of the arithmetic
    assert "weights" not in score(str(folder), reviews(), examples=4, device="cpu", quiet=True).attrs


@pytest.mark.parametrize("need", ["answers", "encoder", "heads", "trains"])
def test_on_a_gpu_only_what_trains_is_opened_in_float32(need: str) -> None:
    assert (opening._dtype(None, need, "cuda") == "auto") == (need != "trains")
    assert opening._dtype(None, need, "cpu") == opening._dtype(None, need, None) == torch.float32


def test_a_trained_model_keeps_its_data_type(tmp_path: Path) -> None:
    open_model(saved(tmp_path / "bare"), reviews(), "trains").save(tmp_path / "m")
    for dtype in (None, "auto", "float32"):
        assert open_model(tmp_path / "m", dtype=dtype).encoder.dtype == torch.float32
    with pytest.raises(HeadwiseError, match="trained; it keeps its data type, float32: leave out dtype"):
        open_model(tmp_path / "m", dtype="bfloat16")


def test_a_model_with_removed_heads_is_opened_in_the_data_type_that_is_asked_for(tmp_path: Path) -> None:
    save_removed(
        Heads(BertModel.from_pretrained(saved(tmp_path / "bare")).bfloat16()).remove(HeadSet([(0, 1)])),
        tmp_path / "smaller",
    )
    assert open_model(tmp_path / "smaller", need="heads").dtype == torch.bfloat16
    assert open_model(tmp_path / "smaller", need="heads", dtype="float32").dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "said"),
    [("gpu", "no device 'gpu'; there is: cpu"), ("cuda:7", "device is 'cuda:7', but torch finds no")],
)
def test_devices_that_are_not_here(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(HeadwiseError, match=said):
        open_model(saved(tmp_path / "bare"), reviews(), "trains", device=name)


def test_head_embeddings_ask_before_code_runs(tmp_path: Path) -> None:
    folder = with_code(tmp_path)
    with pytest.raises(ForeignCode, match="trust_remote_code=True"):
        hw.HeadEmbedding(folder, HeadSet([(0, 0)]))
    assert "trust_remote_code" in hw.HeadEmbedding.__init__.__annotations__
