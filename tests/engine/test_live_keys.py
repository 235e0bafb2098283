"""A result that is kept of a live model is shown again exactly as long as the model computes the same."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import peft
import pytest
import torch
from live_models import adapted, bert, gpt2, llama, scaled, turned_slower, with_eps, with_relu
from torch import nn

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.store import fingerprint
from headwise.store._decision import model_parts
from headwise.tasks import batches, encode
from words import word_tokenizer

TASKS = list(planted.tasks(16).values())
TOKENIZER = planted.tokenizer()
READ: dict[str, Any] = {"tokenizer": TOKENIZER, "examples": 16, "quiet": True}
Change = Callable[[Any], object]


def scored(model: Any, folder: Path | None = None, **more: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = hw.score(model, TASKS[0], out=folder, **{**READ, **more}).values
    return found


CHANGES: dict[str, tuple[Callable[[], Any], Change, str]] = {
    "another adapter": (
        lambda: adapted("lora"),
        lambda m: m.set_adapter("two"),
        "attributes changed: _active_adapter",
    ),
    "adapters off": (
        lambda: adapted("lora"),
        lambda m: m.base_model.disable_adapter_layers(),
        "_disable_adapters",
    ),
    "a stronger adapter": (lambda: adapted("lora"), scaled, "attributes changed: scaling"),
    "a merged adapter": (
        lambda: adapted("lora"),
        lambda m: m.merge_adapter(),
        "weights changed; .*: merged_adapters",
    ),
    "another DoRA": (lambda: adapted("dora"), lambda m: m.set_adapter("two"), "_active_adapter"),
    "another IA3": (lambda: adapted("ia3"), lambda m: m.set_adapter("two"), "_active_adapter"),
    "another prompt": (lambda: adapted("prompt"), lambda m: m.set_adapter("two"), "active_adapter"),
    "eps": (bert, with_eps, "attributes changed: eps"),
    "activation": (bert, with_relu, "modules changed: GELUActivation, ReLU"),
    "rotary": (llama, turned_slower, "buffers changed: inv_freq"),
    "configuration": (
        bert,
        lambda m: setattr(m.config, "chunk_size_feed_forward", 2),
        "changed: chunk_size_feed_forward",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_computes_something_else_is_another_model(name: str, tmp_path: Path) -> None:
    make, change, said = CHANGES[name]
    model = make()
    first = scored(model, tmp_path / "kept")
    np.testing.assert_array_equal(scored(make(), tmp_path / "kept"), first)
    change(model)
    if name not in ("a merged adapter", "configuration"):  # these compute the same, but for rounding
        assert not np.allclose(scored(model), first, rtol=1e-2)
    with pytest.raises(HeadwiseError, match=f"holds another result: .*{said}"):
        scored(model, tmp_path / "kept")


def test_everything_that_is_kept_of_a_live_model_knows_it(tmp_path: Path) -> None:
    """Dissociations, roles, trainings, probings and `fingerprint`: one key."""
    few: Any = {
        "fraction": 0.5,
        "random_draws": 1,
        "bootstrap": 0,
        "score_examples": 8,
        "tokenizer": TOKENIZER,
        "quiet": True,
    }
    quick: Any = {"epochs": 1, "batch_size": 16, "max_length": 16, "tokenizer": TOKENIZER, "quiet": True}
    shared = planted.model({"a": (0, 0), "b": (1, 1)}, planted.tasks(16))
    roles: Any = {
        "roles": ("previous-token",),
        "sequences": 2,
        "repeated": 4,
        "tokenizer": TOKENIZER,
        "quiet": True,
    }
    probing: Any = {"controls": (), "tokenizer": TOKENIZER, "quiet": True}
    language = gpt2()
    keeping: list[tuple[Any, Callable[[Any], object]]] = [
        (shared, lambda m: hw.dissociate(m, TASKS, out=tmp_path / "dissociation", **few)),
        (language, lambda m: hw.roles(m, out=tmp_path / "roles", **roles)),
        (
            bert().bert,
            lambda m: hw.train(copy.deepcopy(m), TASKS, "multi-task", out=tmp_path / "training", **quick),
        ),
        (bert().bert, lambda m: hw.probe(m, TASKS[:1], folder=tmp_path / "recordings", **probing)),
    ]
    for model, keep in keeping:
        before = fingerprint(model)
        keep(model)
        keep(model)
        with_eps(model)
        assert fingerprint(model) != before
        with pytest.raises(HeadwiseError, match=r"attributes changed: eps|recording of another model"):
            keep(model)


def test_frozen_parameters_decide_a_training(tmp_path: Path) -> None:
    options: Any = {
        "epochs": 1,
        "batch_size": 16,
        "max_length": 16,
        "tokenizer": TOKENIZER,
        "quiet": True,
        "out": tmp_path / "run",
    }
    hw.train(bert().bert, TASKS, "multi-task", **options)
    frozen = bert().bert
    frozen.embeddings.requires_grad_(False)
    with pytest.raises(HeadwiseError, match="the model's choice of frozen parameters changed"):
        hw.train(frozen, TASKS, "multi-task", **options)


HARMLESS: dict[str, tuple[Callable[[], Any], Change]] = {
    "a pass": (bert, lambda m: m(torch.tensor([[2, 5, 3]]))),
    "a pass with outputs": (
        bert,
        lambda m: m(torch.tensor([[2, 5, 3]]), output_attentions=True, output_hidden_states=True),
    ),
    "a long pass of rotary embeddings": (
        lambda: llama(
            max_position_embeddings=8,
            rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
        ),
        lambda m: m(torch.arange(1, 21)[None]),
    ),
    "generation": (
        gpt2,
        lambda m: m.generate(torch.tensor([[5, 6]]), max_new_tokens=3, do_sample=False, pad_token_id=0),
    ),
    "heads": (bert, lambda m: hw.Heads(m).install()),
    "silenced": (bert, lambda m: silenced_pass(m)),
    "training mode": (bert, lambda m: m.train()),
    "checkpointing": (bert, lambda m: (m.gradient_checkpointing_enable(), m.enable_input_require_grads())),
    "checkpointing on and off": (lambda: adapted("lora"), lambda m: toggled(m)),
    "attention": (bert, lambda m: m.set_attn_implementation("eager")),
    "compiled": (bert, lambda m: m.compile()),
    "compiled in part": (bert, lambda m: setattr(m.bert, "encoder", torch.compile(m.bert.encoder))),
    "device": (bert, lambda m: m.to("cpu")),
    "offloaded": (bert, lambda m: accelerate.cpu_offload(m, execution_device="cpu")),
    "prepared": (bert, lambda m: accelerate.Accelerator(cpu=True).prepare(m)),
    "gradients": (bert, lambda m: m(torch.tensor([[2, 5, 3]])).logits.sum().backward()),
    "moved": (bert, lambda m: setattr(m.config, "_name_or_path", "elsewhere")),
}


def silenced_pass(model: Any) -> None:
    heads = hw.Heads(model)
    with heads.silenced(hw.HeadSet([(0, 0)])), heads.recorded("cls"):
        model(**heads.example)


def toggled(model: Any) -> None:
    model.gradient_checkpointing_enable()
    model.gradient_checkpointing_disable()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_no_result_changes_no_key(name: str) -> None:
    make, change = HARMLESS[name]
    model = make()
    before = model_parts(model, TOKENIZER)
    assert model_parts(copy.deepcopy(model), TOKENIZER) == before == model_parts(make(), TOKENIZER)
    change(model)
    assert model_parts(model, TOKENIZER) == before


@pytest.mark.parametrize("make", [gpt2, llama])
def test_models_and_tokenizers_without_a_padding_token_are_read_twice(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    """Scoring gives them one, for good."""
    model, tokenizer = make(), planted.tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    task = (
        hw.Task("texts", data={"train": ["a0 w1 w2 b1", "w3 a1"]}, kind="next-token")
        if make is gpt2
        else TASKS[0]
    )
    options: Any = {"tokenizer": tokenizer, "quiet": True, "out": tmp_path / "kept"}
    first = hw.score(model, task, **options)
    assert tokenizer.pad_token == "[SEP]"
    assert hw.score(model, task, **options).identical(first)


def test_one_folder_opened_twice_is_one_model_in_every_process(tmp_path: Path) -> None:
    kinds, keys = ("lora", "ia3", "prompt"), []
    for kind in kinds:
        adapted(kind).save_pretrained(tmp_path / kind)
        first, second = (peft.PeftModel.from_pretrained(bert(), tmp_path / kind) for _ in range(2))
        second(torch.tensor([[2, 5, 3]]))
        keys.append(fingerprint(first))
        assert fingerprint(second) == keys[-1]
    lines = "import live_models, peft; from headwise.store import fingerprint; print()"
    opened = f"print(*(fingerprint(peft.PeftModel.from_pretrained(live_models.bert(), {str(tmp_path)!r} + '/' + k)) for k in {kinds}))"
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    run = subprocess.run(
        [sys.executable, "-c", f"{lines}; {opened}"],
        capture_output=True,
        text=True,
        env=surroundings,
        check=True,
    )
    assert run.stdout.splitlines()[-1].split() == keys


@pytest.mark.parametrize("method", ["multi-task", "lora", "houlsby", "pals", "iat", "gated"])
def test_passes_of_a_trained_model_leave_its_key(method: str, tmp_path: Path) -> None:
    """Each task's passes go through its own adapters or gates, whichever ran last."""
    options: Any = {"epochs": 1, "batch_size": 16, "max_length": 16, "tokenizer": TOKENIZER, "quiet": True}
    model = hw.train(bert().bert, TASKS, method, **options).model
    before = fingerprint(model)
    for task in reversed(TASKS):
        hw.score(model, task, **READ)
        assert fingerprint(model) == before
        with torch.no_grad():  # the user's own pass, which no twin takes
            model(task.name, next(iter(batches(encode(task.split("train"), TOKENIZER, 16), 4))))
        assert fingerprint(model) == before
    model.save(tmp_path / "model")
    loaded = hw.load(tmp_path / "model")
    assert fingerprint(loaded) == fingerprint(hw.load(tmp_path / "model"))
    if method == "gated":
        model.contexts["a"] = model.contexts["b"]
        model.contexts["b"] = lambda: None
        with pytest.raises(
            HeadwiseError, match=r"hangs on the passes of task 'b' \(context test_live_keys\."
        ):
            fingerprint(model)


def test_another_tokenizer_of_a_model_in_a_folder_is_noticed(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    own: Any = {"examples": 16, "quiet": True, "out": tmp_path / "kept"}
    first = hw.score(tmp_path / "model", TASKS[0], **own)
    turned = word_tokenizer([*planted.WORDS[:5], *reversed(planted.WORDS[5:])], "[CLS]", "[SEP]")
    with pytest.raises(HeadwiseError, match="the tokenizer changed"):
        hw.score(tmp_path / "model", TASKS[0], tokenizer=turned, **own)
    assert hw.score(tmp_path / "model", TASKS[0], **own).identical(first)
    recordings: Any = {"folder": tmp_path / "recordings", "controls": (), "quiet": True}
    hw.probe(bert().bert, TASKS[:1], tokenizer=TOKENIZER, **recordings)
    with pytest.raises(HeadwiseError, match="recording of another model"):
        hw.probe(bert().bert, TASKS[:1], tokenizer=turned, **recordings)


def test_weights_without_values_are_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(HeadwiseError, match=r"weight of this Linear has no values"):
        fingerprint(model)
