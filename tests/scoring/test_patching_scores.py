"""Patching and attribution patching against one pass per head and finite differences; contrasts as tasks from files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as t
from typer.testing import CliRunner

import headwise as hw
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.scoring import _last_token
from headwise.tasks import batches, encode
from words import LANGUAGE, word_tokenizer

ROWS = [
    ("w5 w6 w7 w8 w5", "w9 w6 w7 w8 w5", "w6", "w10"),
    ("w11 w12 w13", "w14 w12 w13", "w20", "w21"),
    ("w15 w16 w17 w18", "w15 w19 w17 w30", "w22", "w23"),
]
HELD_OUT = [("w40", "w41", "w42", "w43")]  # else a tenth of the rows would be set aside


def words(side: str = "right") -> Any:
    return word_tokenizer([*LANGUAGE, *(f"w{i}" for i in range(3, 50))], "<s>", "</s>", padding_side=side)


def model(family: str) -> Any:
    torch.manual_seed(0)
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 50,
        "intermediate_size": 24,
    }
    built: Any = {
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=50, **tokens)
        ),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**sizes, num_key_value_heads=2, **tokens)),
        "sliding windows": lambda: t.MistralForCausalLM(
            t.MistralConfig(**sizes, num_key_value_heads=2, sliding_window=3, **tokens)
        ),
        "shared keys": lambda: t.Gemma4ForCausalLM(
            t.Gemma4TextConfig(
                **sizes,
                num_key_value_heads=2,
                head_dim=8,
                global_head_dim=8,
                layer_types=["full_attention"] * 2,
                num_kv_shared_layers=1,  # the second layer reads the keys and values of the first
                hidden_size_per_layer_input=8,
                vocab_size_per_layer_input=50,
                **tokens,
            )
        ),
    }[family]()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return built.eval()


def contrast(rows: Any = ROWS) -> hw.Task:
    return hw.Task("ioi", data={"train": list(rows), "validation": HELD_OUT}, kind="contrast")


def projection(built: Any, layer: int) -> Any:
    return (
        built.transformer.h[layer].attn.c_proj
        if hasattr(built, "transformer")
        else built.model.layers[layer].self_attn.o_proj
    )


class Slow:
    """One prompt at a time, with hooks on the output projections: head outputs kept, replaced or moved."""

    def __init__(self, built: Any) -> None:
        self.model, self.kept = built, {}

    def run(self, text: str, edit: Any = None) -> torch.Tensor:
        def hook(layer: int) -> Any:
            def change(module: Any, args: Any) -> Any:
                x = args[0].clone()
                self.kept[layer] = x.clone()
                return ((edit(layer, x) if edit is not None else x), *args[1:])

            return change

        handles = [projection(self.model, layer).register_forward_pre_hook(hook(layer)) for layer in range(2)]
        ids = [1, *(int(word[1:]) for word in text.split())]
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0, -1]
        for handle in handles:
            handle.remove()
        return logits

    def difference(self, text: str, answer: str, other: str, edit: Any = None) -> float:
        logits = self.run(text, edit)
        return float(logits[int(answer[1:])] - logits[int(other[1:])])


def slow_scores(
    built: Any, rows: Any, direction: str, tokens: str, step: float = 1.0
) -> np.ndarray[Any, Any]:
    """Outputs moved by `step` of the way from target to source; 1 is patching, a small step the derivative."""
    slow = Slow(built)
    total, source_mean, target_mean = np.zeros((2, 4)), 0.0, 0.0
    for clean, corrupted, *answers in rows:
        source, target = (clean, corrupted) if direction == "denoise" else (corrupted, clean)
        source_mean += slow.difference(source, *answers)
        kept = dict(slow.kept)
        intact = slow.difference(target, *answers)
        target_mean += intact
        for layer in range(2):
            for head in range(4):

                def edit(
                    at: int, x: torch.Tensor, layer: int = layer, head: int = head, kept: Any = kept
                ) -> torch.Tensor:
                    if at == layer:
                        cut = slice(8 * head, 8 * head + 8)
                        here = slice(None) if tokens == "all" else slice(-1, None)
                        x[:, here, cut] = x[:, here, cut] + step * (kept[at][:, here, cut] - x[:, here, cut])
                    return x

                total[layer, head] += (slow.difference(target, *answers, edit) - intact) / step
    return total / (source_mean - target_mean)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "shared keys"])
@pytest.mark.parametrize(("direction", "tokens"), [("denoise", "all"), ("noise", "last")])
def test_patching_is_one_pass_per_head(family: str, side: str, direction: str, tokens: str) -> None:
    built = model(family)
    found = hw.score(
        built,
        contrast(),
        method="patching",
        tokenizer=words(side),
        direction=direction,
        tokens=tokens,
        batch_size=2,
        quiet=True,
    )
    np.testing.assert_allclose(found, slow_scores(built, ROWS, direction, tokens), atol=2e-4)
    assert found.attrs["method"] == "patching"
    assert found.attrs["direction"] == direction


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize(("direction", "tokens"), [("denoise", "all"), ("noise", "last")])
def test_attribution_patching_is_the_derivative_of_patching(family: str, direction: str, tokens: str) -> None:
    built = model(family).double()
    found = hw.score(
        built,
        contrast(),
        method="attribution-patching",
        tokenizer=words("left"),
        direction=direction,
        tokens=tokens,
        batch_size=2,
        quiet=True,
    )
    # Llama's norms are in single precision whatever the weights are
    size, near = {"gpt2": (1e-4, 1e-6), "llama": (1e-2, 3e-3)}[family]
    up, down = (slow_scores(built, ROWS, direction, tokens, step) for step in (size, -size))
    np.testing.assert_allclose(found, (up + down) / 2, atol=near)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "sliding windows", "shared keys"])
def test_last_tokens_read_by_themselves_give_the_same(
    family: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens before them come from a cache; prompts have different lengths, one only a single word."""
    built, rows = (
        model(family),
        [*ROWS, ("w5 w6 w7", "w9 w5 w6 w7", "w20", "w21"), ("w30 w31", "w32", "w33", "w34")],
    )
    used = spied_last_tokens(monkeypatch)
    options: Any = {
        "method": "attribution-patching",
        "tokenizer": words(side),
        "tokens": "last",
        "batch_size": 2,
        "quiet": True,
    }
    for silenced in (None, hw.HeadSet([(0, 1)])):
        used.clear()
        whole = hw.score(built, contrast(rows), silenced=silenced, **options)
        assert not used  # too few tokens to be worth it
        with monkeypatch.context() as patch:
            patch.setattr(_last_token, "WORTH", 0)
            found = hw.score(built, contrast(rows), silenced=silenced, **options)
        assert len(used) == 4  # one prompt to check it, and three batches
        np.testing.assert_allclose(found, whole, atol=3e-6, rtol=1e-5)


def spied_last_tokens(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    before = _last_token.LastTokens.__init__
    monkeypatch.setattr(
        _last_token.LastTokens, "__init__", lambda self, *given: (made.append(self), before(self, *given))[1]
    )
    return made


def test_whole_prompts_are_read_where_the_last_token_does_not_stand_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model whose earlier tokens see the last one is noticed."""
    built = model("gpt2")
    built.transformer.wte.register_forward_hook(lambda module, args, out: out + out.mean(1, keepdim=True))
    options: Any = {
        "method": "attribution-patching",
        "tokenizer": words(),
        "tokens": "last",
        "batch_size": 1,
        "quiet": True,
    }
    whole = hw.score(built, contrast(), **options)
    monkeypatch.setattr(_last_token, "WORTH", 0)
    used = spied_last_tokens(monkeypatch)
    found = hw.score(built, contrast(), **options)
    assert len(used) == 1  # the check
    np.testing.assert_array_equal(found, whole)


def test_a_prompt_of_one_token_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = word_tokenizer([*LANGUAGE, *(f"w{i}" for i in range(3, 50))])
    options: Any = {
        "method": "attribution-patching",
        "tokenizer": bare,
        "tokens": "last",
        "batch_size": 1,
        "quiet": True,
    }
    rows = [*ROWS, ("w30", "w32", "w33", "w34")]
    whole = hw.score(model("llama"), contrast(rows), **options)
    monkeypatch.setattr(_last_token, "WORTH", 0)
    used = spied_last_tokens(monkeypatch)
    found = hw.score(model("llama"), contrast(rows), **options)
    assert len(used) == 1 + len(ROWS)
    np.testing.assert_allclose(found, whole, atol=3e-6, rtol=1e-5)


def test_attribution_patching_needs_no_gradients_to_be_on() -> None:
    """A caller's `no_grad` changes nothing."""
    built, tokens = model("gpt2"), words()
    expected = hw.score(built, contrast(), method="attribution-patching", tokenizer=tokens, quiet=True)
    with torch.no_grad():
        found = hw.score(built, contrast(), method="attribution-patching", tokenizer=tokens, quiet=True)
    np.testing.assert_array_equal(found, expected)


def test_prompts_of_different_lengths_are_patched_at_their_last_token_only() -> None:
    built, rows = model("gpt2"), [*ROWS, ("w5 w6 w7", "w9 w5 w6 w7", "w20", "w21")]
    with pytest.raises(
        HeadwiseError, match=r"4 tokens in its clean prompt and 5 in its corrupted one.*tokens='last'"
    ):
        hw.score(built, contrast(rows), method="patching", tokenizer=words(), quiet=True)
    found = hw.score(built, contrast(rows), method="patching", tokenizer=words(), tokens="last", quiet=True)
    np.testing.assert_allclose(found, slow_scores(built, rows, "denoise", "last"), atol=2e-4)
    near = hw.score(
        built.double(),
        contrast(rows),
        method="attribution-patching",
        tokenizer=words(),
        tokens="last",
        quiet=True,
    )
    np.testing.assert_allclose(near, slow_scores(built, rows, "denoise", "last", 1e-5), atol=1e-4)


def test_a_contrast_is_a_task_like_others(tmp_path: Path) -> None:
    """From CSV, JSON and parquet; encoded, judged by its logit difference, and read by other estimators."""
    built, tokens = model("gpt2"), words()
    table = pd.DataFrame(ROWS, columns=["clean", "corrupted", "answer", "other"])
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet")
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    for name in ("a.csv", "a.parquet", "a.jsonl"):
        task = hw.Task("ioi", path={"test": tmp_path / name}, kind="contrast")
        assert [tuple(text) for text in task.split("test").texts] == ROWS
    assert (task.metric, task.kind) == ("logit-difference", "contrast")
    encoded = encode(task.split("test"), tokens, 32)
    (batch,) = batches(encoded, 4)
    assert batch.inputs["input_ids"].shape == (6, 6)  # no </s> behind a prompt
    np.testing.assert_array_equal(
        batch.labels, [[int(ROWS[i][2][1:]), int(ROWS[i][3][1:])] for i in batch.index.tolist()]
    )
    slow = Slow(built)
    expected = np.mean([slow.difference(clean, answer, other) for clean, _, answer, other in ROWS])
    (found,) = (
        hw.lesion(built, [task], {}, split="test", tokenizer=tokens, quiet=True)
        .performance.loc["intact"]
        .to_numpy()[:1]
    )
    assert float(found) == pytest.approx(expected, abs=1e-4)
    assert not np.isnan(hw.score(built, task, split="test", tokenizer=tokens, quiet=True)).any()


def test_what_cannot_be_patched_is_said() -> None:
    built, tokens = model("gpt2"), words()
    other = hw.Task("text", data={"train": [("w5 w6 w7",)] * 3}, kind="next-token")
    for method in ("patching", "attribution-patching"):
        with pytest.raises(HeadwiseError, match="give a task of kind 'contrast'"):
            hw.score(built, other, method=method, tokenizer=tokens)
    wrong = {
        "begin with the same token": [("w5", "w6", "w7", "w7 w8")],
        "more than max_length=4": [("w5 w6 w7 w8", "w5 w6 w7 w9", "w3", "w4")],
        "nothing to restore": [("w5 w6", "w5 w6", "w3", "w4")],
    }
    for said, rows in wrong.items():
        with pytest.raises(HeadwiseError, match=said):
            hw.score(built, contrast(rows), method="patching", tokenizer=tokens, max_length=4, quiet=True)
    with pytest.raises(HeadwiseError, match=r"4 columns \(clean, corrupted, answer, other\)"):
        hw.Task("x", data=[("a", "b")], kind="contrast", text=["a", "b"])


def test_the_command_line_patches(tmp_path: Path) -> None:
    model("llama").save_pretrained(tmp_path / "model")
    words().save_pretrained(tmp_path / "model")
    pd.DataFrame(ROWS, columns=["clean", "corrupted", "answer", "other"]).to_csv(
        tmp_path / "train.csv", index=False
    )
    (tmp_path / "tasks.toml").write_text(
        '[ioi]\nkind = "contrast"\npath = {train = "train.csv", validation = "train.csv"}\n'
    )
    shown = CliRunner().invoke(
        app,
        [
            *(
                "score",
                "--model",
                str(tmp_path / "model"),
                "--tasks-file",
                str(tmp_path / "tasks.toml"),
                "--method",
                "patching",
            ),
            *("--set", "tokens=last", "--json", "--out", str(tmp_path / "out")),
        ],
        catch_exceptions=False,
    )
    record = json.loads(shown.output)
    np.testing.assert_allclose(record["scores"]["ioi"], hw.load(tmp_path / "out").sel(task="ioi"))
    assert record["settings"]["tokens"] == "last"
    asked = [
        "score",
        "--model",
        str(tmp_path / "model"),
        "--tasks-file",
        str(tmp_path / "tasks.toml"),
        "--method",
        "patching",
    ]
    table = CliRunner().invoke(app, [*asked, "--set", "tokens=last"], catch_exceptions=False).output
    best = hw.load(tmp_path / "out").sel(task="ioi").to_series().idxmax()
    assert "What heads carry of the logit difference" in table
    assert (
        f"{best[0]}.{best[1]}" in table.split("share (%)")[1].splitlines()[2]
    )  # the strongest head comes first
