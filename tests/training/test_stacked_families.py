"""Few-shot losses of every text family: at a learning rate of zero they are the model's own, whichever way it is trained."""

import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import nn

from headwise.errors import HeadwiseError
from headwise.models import MultiTaskModel
from headwise.tasks import batches, encode
from headwise.training import _fewshot as fewshot
from headwise.training._fewshot import few_shot
from headwise.training._stacked import CannotStack, Stacked
from headwise.training._stacked_check import compare

sys.path.insert(0, str(Path(__file__).parents[1] / "heads"))
import zoo

STACKED = ["bert", "roberta", "distilbert", "gpt2", "llama", "qwen2", "electra", "deberta-v2"]
ALONE = ["gemma", "gemma2", "gemma3_text", "xglm", "opt", "biogpt", "mpnet", "mixtral"]
PADDED = [
    "canine",
    "cpmant",
    "fnet",
    "yoso",
]  # padding changes their states: no mask (fnet, cpmant), or one that lets it through
REFUSED = ["fsmt", "fastspeech2_conformer"]  # their encoder is no model of transformers
SEEDS = [0, 1]
# why a plain pass over tokens and a mask fails: arguments it lacks, an output without a state for each token, or by family
LACKING = r"missing \d+ required positional argument|has no attribute 'last_hidden_state'"
OTHERWISE: dict[str, str] = {
    **dict.fromkeys(
        ["bark", "deepseek_ocr2_vision", "fastspeech2_conformer_with_hifigan"], "no attribute 'dim'"
    ),  # several models
    **dict.fromkeys(["glm_image_vqmodel", "unlimited_ocr_vision"], "no attribute 'dim'"),  # of images
    **dict.fromkeys(
        ["embedding_gemma2_text", "reformer"], "shapes cannot be multiplied"
    ),  # states wider than hidden_size
    **dict.fromkeys(
        ["musicgen_decoder", "musicgen_melody_decoder"], "is invalid for input of size"
    ),  # several codebooks of sound
    **dict.fromkeys(
        ["clvp_encoder", "kyutai_speech_to_text", "videoprism_text_model"], "must match the size of tensor b"
    ),
    "blt_local_decoder": "'NoneType' object has no attribute 'shape'",  # vectors of bytes
    "blt_local_encoder": "Expected attn_mask dtype",  # a mask of its own form
    "bros": "specify bbox",
    "udop": "Bbox is required",
    "clvp": "conv1d() received an invalid combination",  # sound
    "gemma4_unified_assistant": "shared_kv_states cannot be None",
    "idefics": "Exactly 1 of pixel_values",
    "vilt": "either pixel_values or image_embeds",
    "lxmert": "`visual_feats` cannot be `None`",
    "kosmos_2_5_vision_model": "specify flattened_patches",
    "moshi_depth": "index 7 is out of range",  # one table for each place of a short code of sound
    "qwen3_omni_moe_talker_code_predictor": "`input_ids` is expected to be `None`",
    "pop2piano": "`use_cache` can only be set",  # sound; its encoder asks for a cache
    "xlstm": "matC_old has wrong shape",  # of the small form, in transformers itself
}


def subject(family: str) -> MultiTaskModel:
    model: Any = zoo.build(family)
    if zoo.kind(model) != "text":
        pytest.skip("takes more than text")
    parts = model.get_encoder() if model.config.is_encoder_decoder else model
    return MultiTaskModel(parts, toy.tokenizer(), [], pooling="mean")


def losses(model: MultiTaskModel, seed: int, task: Any, size: int = 1) -> np.ndarray[Any, Any]:
    """What the untrained model loses on each validation example: the encoder itself, in batches of one, so without padding."""
    torch.manual_seed(seed)
    head = model.new_decoder(task).eval()
    encoded = encode(task.split("validation"), model.tokenizer, 256)
    stated = getattr(model.encoder.config.get_text_config(), "pad_token_id", None)
    if stated is not None and stated >= 0:  # rows are filled with the model's own token
        encoded = replace(encoded, pad=stated)
    plan = batches(encoded, size)
    found = np.zeros(len(task.split("validation")))
    with torch.no_grad():
        for numbers, batch in zip(plan.plan, plan, strict=True):
            found[numbers] = head(model.encoder(**batch.inputs).last_hidden_state, batch).loss.numpy()
    return found


def at_rest(family: str) -> str:
    """Compares a few-shot run at learning rate zero with the model itself; gives the run's note."""
    model, task = subject(family), toy.task(n=12)
    try:
        right = np.stack([losses(model.eval(), seed, task) for seed in SEEDS])
    except Exception as error:
        if not re.search(re.escape(OTHERWISE[family]) if family in OTHERWISE else LACKING, str(error)):
            raise
        pytest.skip(f"takes more than tokens and a mask, or gives no states ({error})")
    assert family not in OTHERWISE, "its plain pass works: take it off the list"
    if (
        family in PADDED
    ):  # then the truth is what the model says of the batch that is evaluated: all examples at once
        together = np.stack([losses(model, seed, task, len(task.split("validation"))) for seed in SEEDS])
        assert not np.allclose(together, right, atol=1e-4), (
            "padding does not matter to it: take it off the list"
        )
        right = together
    settings = {"epochs": 1, "learning_rate": 1e-30, "batch_size": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = few_shot(model, task, 4, SEEDS, **settings, quiet=True)
    assert np.allclose(found.loss.values, right, atol=1e-4), np.abs(found.loss.values - right).max()
    return str(found.attrs["note"])


@pytest.mark.parametrize("family", [*STACKED, *ALONE])
def test_losses_at_rest_are_those_of_the_model(family: str) -> None:
    note = at_rest(family)
    assert ("one after another" in note) == (family in ALONE), note


@pytest.mark.parametrize("family", PADDED)
def test_models_that_padding_changes_are_those_of_their_batch(family: str) -> None:
    at_rest(family)


@pytest.mark.parametrize("family", REFUSED)
def test_encoders_that_cannot_be_saved_are_refused(family: str) -> None:
    with pytest.raises(HeadwiseError, match="cannot save by itself"):
        subject(family)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [name for name in zoo.families() if name not in {*STACKED, *ALONE, *PADDED, *REFUSED}]
)
def test_losses_at_rest_are_those_of_every_text_model(family: str) -> None:
    try:
        zoo.build(family)
    except Exception as error:  # a family that cannot be built small
        pytest.skip(str(error))
    at_rest(family)


@pytest.mark.parametrize("family", ["roberta", "gpt2", "llama", "distilbert"])
@pytest.mark.parametrize("tuning", ["full", "decoder"])
def test_learning_side_by_side_is_learning_one_after_another(
    family: str, tuning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = subject(family), toy.task(n=12)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and "dropout" in name:
                setattr(module, name, 0.0)
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)
    settings = {"epochs": 4, "learning_rate": 3e-3, "batch_size": 3, "tuning": tuning}
    together = few_shot(model, task, 6, SEEDS, **settings, quiet=True)
    assert together.attrs["note"] == ""

    def refuse(*args: Any) -> None:
        raise CannotStack("planted")

    with monkeypatch.context() as patch:
        patch.setattr(fewshot, "_stacked_modules", refuse)
        with pytest.warns(UserWarning, match="one after another: planted"):
            alone = few_shot(model, task, 6, SEEDS, **settings, quiet=True)
    at_first = few_shot(model, task, 6, SEEDS, epochs=1, learning_rate=1e-30, quiet=True)
    assert np.allclose(together.loss, alone.loss, atol=2e-3)
    assert float(abs(together.loss - at_first.loss).mean()) > 0.01


class Twice(nn.Module):
    """One linear layer under two names: only one of them would be stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(25, 8)
        self.one = nn.Linear(8, 8)
        self.other = self.one

    def forward(self, input_ids: Any) -> Any:
        class Out:
            last_hidden_state = self.other(torch.tanh(self.one(self.table(input_ids))))

        return Out


class FarRows(nn.Module):
    """Positions from a long table at rows that are no token numbers: their weights would not be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(25, 8), nn.Embedding(5000, 8)

    def forward(self, input_ids: Any) -> Any:
        class Out:
            last_hidden_state = self.table(input_ids) + self.places(torch.arange(input_ids.shape[1]) + 4000)

        return Out


@pytest.mark.parametrize(
    ("kind", "message"), [(Twice, "gradient of|shares weights"), (FarRows, "rows that are not tokens")]
)
def test_models_whose_states_agree_but_whose_gradients_do_not_are_refused(kind: Any, message: str) -> None:
    torch.manual_seed(0)
    plain, ids = kind(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    with pytest.raises(CannotStack, match=message):
        compare(Stacked(plain, 2, ids.unique()), plain, {"input_ids": ids})
