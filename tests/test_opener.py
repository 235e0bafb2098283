"""Opening models: no code of theirs runs unasked, no weight is random unasked, no pickle is read."""

import ast
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast
from typer.testing import CliRunner

import headwise as hw
from headwise._base.opener import TRUST, ForeignCode, open_tokenizer, open_weights
from headwise._base.places import default_model
from headwise._base.progress import reading_weights
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import open_model
from headwise.store import _manifest as manifest

SRC = Path(__file__).parent.parent / "src" / "headwise"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "book", "the", "was"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": len(WORDS),
}
CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel
Path(__file__).parent.joinpath("it-ran").touch()
class OwnConfig(BertConfig):
    model_type = "own-bert"
class OwnModel(BertModel):
    config_class = OwnConfig
"""


def saved(folder: Path, kind: Any = BertModel, tokenizer: bool = True) -> Path:
    torch.manual_seed(0)
    kind(BertConfig(**SIZES)).save_pretrained(folder)
    if tokenizer:
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def with_code(folder: Path) -> Path:
    """A model of an architecture that only the code in its folder defines; that code leaves a mark."""
    saved(folder)
    config = json.loads((folder / "config.json").read_text())
    maps = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "own-bert", "architectures": ["OwnModel"], "auto_map": maps})
    )
    (folder / "own.py").write_text(CODE.replace("Path(__file__).parent", f"Path({str(folder)!r})"))
    return folder


def changed(folder: Path, change: Any) -> Path:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def reviews() -> hw.Task:
    rows = [(f"the {thing} was {mood}", mood) for thing in ("film", "book") for mood in ("good", "bad")] * 4
    return hw.Task("mood", data={"train": rows, "validation": rows[:4]}, label="label", metric="accuracy")


def test_code_in_a_model_folder_does_not_run_and_nobody_is_asked(tmp_path: Path) -> None:
    folder = with_code(tmp_path / "model")
    command = [sys.executable, "-m", "headwise", "inspect", str(folder)]
    refused = subprocess.run(command, input="y\n", capture_output=True, text=True)
    assert refused.returncode == 2
    assert not (folder / "it-ran").exists()
    assert "own.py" in refused.stderr
    assert "--trust-remote-code" in refused.stderr
    assert "[y/N]" not in refused.stdout + refused.stderr


def test_the_user_may_say_that_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = with_code(tmp_path / "model")
    agreed = CliRunner().invoke(app, ["inspect", str(folder), "--trust-remote-code", "--json"])
    assert agreed.exit_code == 0, agreed.output
    assert json.loads(agreed.stdout)["class"] == "OwnModel"
    assert (folder / "it-ran").exists()
    assert TRUST not in os.environ
    assert open_model(str(folder), need="heads", trust_remote_code=True).config.model_type == "own-bert"
    with pytest.raises(ForeignCode):
        open_model(str(folder), need="heads")


@pytest.mark.parametrize(
    "words",
    [
        "score --model {} --tasks grammar:topic --size 200",
        "train --model {} --tasks grammar:topic --size 200 --out {}-out",
        "app {} --port 0",
    ],
)
def test_no_verb_runs_it(words: str, tmp_path: Path) -> None:
    folder = with_code(tmp_path / "model")
    result = CliRunner().invoke(app, words.format(folder, folder).split(), input="y\ny\ny\n")
    assert isinstance(result.exception, ForeignCode), result.exception
    assert not (folder / "it-ran").exists()


def test_python_says_trust_remote_code_too(tmp_path: Path) -> None:
    folder = with_code(tmp_path)
    for opening in (
        lambda: open_model(str(folder), need="heads"),
        lambda: hw.train(str(folder), reviews()),
        lambda: hw.probe(folder, reviews()),
    ):
        with pytest.raises(ForeignCode, match="trust_remote_code=True"):
            opening()
    assert not (folder / "it-ran").exists()


def test_every_model_is_opened_in_one_place() -> None:
    """A `from_pretrained` of transformers anywhere else would run a folder's code, read pickles, or fill in random numbers."""
    allowed = {
        ("_base/opener.py", None),
        ("_base/adapters.py", "PeftConfig"),
        ("heads/_remove/files.py", "GenerationConfig"),
    }
    for file in SRC.rglob("*.py"):
        name = str(file.relative_to(SRC))
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "from_pretrained"
            ):
                owner = node.func.value
                of = (
                    owner.id
                    if isinstance(owner, ast.Name)
                    else owner.attr
                    if isinstance(owner, ast.Attribute)
                    else ""
                )
                assert (name, None) in allowed or (name, of) in allowed, f"{name}:{node.lineno}"


@pytest.mark.parametrize("kind", [BertModel, BertForSequenceClassification])
def test_missing_encoder_weights_are_named(kind: Any, tmp_path: Path) -> None:
    name = ("bert." if kind is not BertModel else "") + "encoder.layer.1.attention.self.query.weight"
    folder = changed(saved(tmp_path, kind), lambda weights: weights.pop(name))
    ways = {
        "inspect": lambda: open_model(str(folder), need="heads"),
        "score": lambda: hw.score(str(folder), reviews()),
        "train": lambda: hw.train(str(folder), reviews()),
        "probe": lambda: hw.probe(str(folder), reviews()),
    }
    for way in ways.values():
        with pytest.raises(
            HeadwiseError, match=r"encoder.layer.1.attention.self.query.weight.*random numbers"
        ):
            way()


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    name = "encoder.layer.0.output.dense.weight"
    folder = changed(saved(tmp_path), lambda weights: weights.update({name: torch.zeros(3, 3)}))
    with pytest.raises(HeadwiseError, match=rf"{name} has shape \(3, 3\) and should have \(16, 16\)"):
        open_model(str(folder), need="heads")


def test_a_decoder_that_lacks_a_tensor_is_named(tmp_path: Path) -> None:
    model = hw.models.MultiTaskModel.from_pretrained(saved(tmp_path / "model"), [reviews()])
    model.save(tmp_path / "trained")
    held = load_file(tmp_path / "trained" / "decoders.safetensors")
    gone = sorted(held)[0]
    held.pop(gone)
    save_file(held, tmp_path / "trained" / "decoders.safetensors")
    with pytest.raises(HeadwiseError, match=r"decoders\.safetensors is truncated"):
        hw.load(tmp_path / "trained")
    manifest.amend(tmp_path / "trained")  # sealed as it is now
    with pytest.raises(HeadwiseError, match=f"decoders.safetensors lacks {gone}"):
        hw.load(tmp_path / "trained")


def test_a_missing_pooler_is_no_error_for_an_encoder_but_for_a_classifier(tmp_path: Path) -> None:
    def no_pooler(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if "pooler" in name]:
            weights.pop(name)

    assert Heads(open_model(changed(saved(tmp_path / "bare"), no_pooler), need="heads")).total == 4
    with pytest.raises(HeadwiseError, match="no trained BertForSequenceClassification head"):
        hw.score(changed(saved(tmp_path / "head", BertForSequenceClassification), no_pooler), reviews())


def test_an_encoder_without_a_classifier_is_not_scored(tmp_path: Path) -> None:
    with pytest.raises(
        HeadwiseError, match=r"classifier.bias, classifier.weight would be random numbers. Train it first"
    ):
        hw.score(saved(tmp_path), reviews())


def test_the_load_report_of_transformers_is_not_shown_before_our_error(tmp_path: Path) -> None:
    logger, said = logging.getLogger("transformers.modeling_utils"), []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listening = Listening()
    logger.addHandler(listening)
    try:
        with pytest.raises(HeadwiseError, match="no trained BertForMaskedLM head"):
            open_weights("BertForMaskedLM", saved(tmp_path / "bare"))
        open_weights(
            "AutoModel", saved(tmp_path / "head", BertForSequenceClassification)
        )  # its classifier is left over
        assert not said
        with reading_weights():
            logger.warning("something else")
        assert said == ["something else"]

        def refers_to_it() -> None:
            with reading_weights():
                logger.warning("A LOAD REPORT")
                raise HeadwiseError("not opened") from RuntimeError("for details look at the above report")

        with pytest.raises(HeadwiseError, match="not opened"):
            refers_to_it()
        assert said[1:] == ["A LOAD REPORT"]
    finally:
        logger.removeHandler(listening)


def test_a_file_of_a_model_is_not_its_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with pytest.raises(
        HeadwiseError,
        match=r"config.json is a file: give the folder that holds config.json and model.safetensors",
    ):
        open_weights("AutoModel", folder / "config.json")


def test_a_folder_without_a_tokenizer_does_not_train(tmp_path: Path) -> None:
    folder = saved(tmp_path, tokenizer=False)
    with pytest.raises(HeadwiseError, match=r"has no tokenizer: .*\[UNK\].*tokenizer.save_pretrained"):
        hw.train(str(folder), reviews(), method="multi-task")
    live = BertModel.from_pretrained(folder)
    with pytest.raises(HeadwiseError, match="has no tokenizer"):
        hw.probe(live, reviews())


def test_tokenizers_of_bytes_need_no_files(tmp_path: Path) -> None:
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    assert len(open_tokenizer(tmp_path)("the")["input_ids"]) == 4  # three bytes and an end
    assert open_tokenizer(default_model()).tokenize("the film") == ["the", "film"]


@pytest.mark.parametrize("content", ["weights", "attack"])
def test_pickled_weights_are_refused_and_never_read(content: str, tmp_path: Path) -> None:
    folder = saved(tmp_path)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()

    class Attack:
        def __reduce__(self) -> Any:
            return Path.touch, (folder / "it-ran",)

    torch.save(weights if content == "weights" else Attack(), folder / "pytorch_model.bin")
    for way in (
        lambda: open_model(str(folder), need="heads"),
        lambda: hw.train(str(folder), reviews()),
        lambda: open_weights("AutoModel", folder),
    ):
        with pytest.raises(
            HeadwiseError, match=r"pytorch_model.bin, a pickle.*model.safetensors.*save_pretrained"
        ):
            way()
    assert not (folder / "it-ran").exists()


def test_broken_weights_are_one_line(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2]):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(HeadwiseError, match="no model could be opened"):
            open_model(str(folder), need="heads")
