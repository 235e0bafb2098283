"""The harness on a changed model beside the intact one: pairing by hand, files that say what is changed, and a run on a local task."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

import headwise as hw
from headwise.cli import app
from headwise.errors import HeadwiseError, MissingExtra
from headwise.harness import Evaluate, _running as running, run_harness
from headwise.harness._pairing import paired, summary
from headwise.harness._running import described_change
from headwise.steering import Steering
from words import LANGUAGE, word_tokenizer

HARNESS = find_spec("lm_eval") is not None


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of fewer examples than would hold their level, so that the arithmetic can be checked on small data."""
    monkeypatch.setattr("headwise.lesions._intervals.MIN_EXAMPLES", 2)


def sample(number: int, acc: float, **more: Any) -> dict[str, Any]:
    return {
        "doc_id": number,
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": f"d{number}",
        "prompt_hash": "p",
        "acc": acc,
        **more,
    }


def test_examples_are_paired_whatever_their_order() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.integers(2, size=(2, 40)).astype(float)
    intact = {"a": [sample(i, before[i]) for i in range(40)]}
    changed = {"a": [sample(i, after[i]) for i in rng.permutation(40)]}
    examples, notes = paired(intact, changed)
    assert not notes
    np.testing.assert_array_equal(examples["intact"], before)
    np.testing.assert_array_equal(examples["changed"], after)
    row = summary(examples, 2000, 0.95, 0).iloc[0]
    assert row["difference"] == pytest.approx((after - before).mean())
    error = (after - before).std(ddof=1) / np.sqrt(40)
    assert row["low"] == pytest.approx(row["difference"] - 2.02 * error, abs=0.4 * error)
    assert row["high"] == pytest.approx(row["difference"] + 2.02 * error, abs=0.4 * error)
    assert summary(examples.head(1), 200, 0.95, 0)[["low", "high"]].isna().all(axis=None)


def test_other_examples_are_not_paired_and_metrics_without_numbers_are_named() -> None:
    intact = {"a": [sample(0, 1.0), sample(1, 0.0)]}
    for wrong in (
        [sample(0, 1.0)],
        [sample(0, 1.0), sample(2, 0.0)],
        [sample(0, 1.0), sample(1, 0.0, prompt_hash="other")],
    ):
        with pytest.raises(HeadwiseError, match="evaluations of a are not of the same examples"):
            paired(intact, {"a": wrong})
    tuples = {"a": [sample(0, 1.0, metrics=["acc", "word_perplexity"], word_perplexity=(-3.0, 2))]}
    examples, notes = paired(tuples, tuples)
    assert list(examples["metric"]) == ["acc"]
    assert notes == ["word_perplexity of a has no value per example, so it has no paired difference"]


def model() -> Any:
    torch.manual_seed(0)
    sizes: Any = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 50}
    return GPT2LMHeadModel(
        GPT2Config(**sizes, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.3)
    ).eval()


def tokenizer() -> Any:
    return word_tokenizer([*LANGUAGE, *(f"w{i}" for i in range(47))])


def steering(strength: float = 2.0) -> Steering:
    torch.manual_seed(1)
    heads = pd.DataFrame([{"layer": 0, "head": 1}])
    return Steering(
        pd.DataFrame({"strength": [0.0], "note": ""}),
        heads,
        {(0, 1): torch.randn(8)},
        strength,
        {"task": "x"},
        [],
    )


def test_files_say_what_is_changed(tmp_path: Path) -> None:
    plain, heads = model(), hw.Heads(model())
    ids = torch.tensor([[1, 5, 6, 7]])
    (tmp_path / "heads.json").write_text(hw.HeadSet([(0, 1), (1, 3)]).to_json())
    gates = np.random.default_rng(0).random((2, 4)).astype(np.float32)
    (tmp_path / "gates.json").write_text(json.dumps(gates.tolist()))
    np.save(tmp_path / "gates.npy", gates)
    steering().save(tmp_path / "steered")
    expected = {
        "silence": heads.silenced(hw.HeadSet([(0, 1), (1, 3)])),
        "gates": heads.gated(torch.from_numpy(gates)),
        "steer": heads.steered(steering().vectors, 2.0),
    }
    for name, file in (
        ("silence", "heads.json"),
        ("gates", "gates.json"),
        ("gates", "gates.npy"),
        ("steer", "steered"),
    ):
        _, change = described_change(Evaluate(**{name: str(tmp_path / file)}))
        own = hw.Heads(plain)
        with torch.no_grad(), change(own):
            found = plain(ids).logits
        if file != "gates.npy":
            with torch.no_grad(), expected[name]:
                wanted = heads.model(ids).logits
        torch.testing.assert_close(found, wanted)
        assert not torch.allclose(found, plain(ids).logits)


def test_changes_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="exactly one of silence, gates and steer; got none"):
        run_harness(model(), "x")
    with pytest.raises(HeadwiseError, match="got silence and gates"):
        run_harness(model(), "x", silence=[(0, 1)], gates=np.ones((2, 4)))
    with pytest.raises(HeadwiseError, match="nothing would be changed"):
        run_harness(model(), "x", silence=[])
    with pytest.raises(HeadwiseError, match="nothing would be changed: give strength"):
        run_harness(model(), "x", steer=steering(0.0))
    with pytest.raises(HeadwiseError, match=r"looked for .*none\.json"):
        run_harness(model(), "x", silence=str(tmp_path / "none.json"))


def test_without_the_harness_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"lm-eval is not installed; install it with: pip install 'headwise\[eval\]'"
    ):
        run_harness(model(), "x", silence=[(0, 1)])


TASK = """
task: copied
dataset_path: json
dataset_kwargs:
  data_files: {{test: {file}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{start}}}}"
doc_to_choice: "{{{{[good, bad]}}}}"
doc_to_target: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


@pytest.mark.skipif(not HARNESS, reason="lm-eval is not installed (extra eval)")
def test_a_local_task_is_run_on_both_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    docs = [
        dict(zip(("start", "good", "bad"), (f"w{i}" for i in rng.choice(47, 3, replace=False)), strict=True))
        for _ in range(30)
    ]
    (tmp_path / "tasks").mkdir()
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, docs)))
    (tmp_path / "tasks" / "copied.yaml").write_text(TASK.format(file=tmp_path / "docs.jsonl"))
    plain, words = model(), tokenizer()
    plain.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    (tmp_path / "heads.json").write_text(hw.HeadSet([(0, 1), (1, 0), (1, 3)]).to_json())
    arguments = [
        "eval",
        "--model",
        str(tmp_path / "model"),
        "--silence",
        str(tmp_path / "heads.json"),
        "--tasks",
        "copied",
    ]
    arguments += ["--include", str(tmp_path / "tasks"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "copied" in shown.output
    assert "not a git repository" not in capfd.readouterr().err

    heads = hw.Heads(plain)
    found = hw.load(tmp_path / "out")
    examples = found.examples.sort_values("example")
    for column, chosen in (("intact", hw.HeadSet([])), ("changed", hw.HeadSet([(0, 1), (1, 0), (1, 3)]))):
        right = []
        for doc in docs:
            ids = words(doc["start"], return_tensors="pt")["input_ids"]
            with torch.no_grad(), heads.silenced(chosen):
                last = plain(ids).logits[0, -1]
            good, bad = (words(doc[side])["input_ids"][0] for side in ("good", "bad"))
            right.append(float(last[good] > last[bad]))
        np.testing.assert_array_equal(examples["changed" if column == "changed" else "intact"], right)
    assert found.table.loc[0, "difference"] == pytest.approx(
        (examples["changed"] - examples["intact"]).mean()
    )
    assert not np.array_equal(examples["changed"], examples["intact"])

    import lm_eval

    asked, usual = [], lm_eval.simple_evaluate

    def noted(**options: Any) -> Any:
        result = usual(**options)
        asked.extend(request[0] for one in result["samples"]["copied"] for request in one["arguments"])
        return result

    monkeypatch.setattr(lm_eval, "simple_evaluate", noted)
    few = run_harness(
        plain, "copied", silence=[(0, 1)], include=tmp_path / "tasks", tokenizer=words, fewshot=2, limit=5
    )
    assert len(few.examples) == 5
    assert len(asked) == 2 * 5 * 2  # intact and changed, two choices each
    assert {len(prompt.split()) for prompt in asked} == {
        2 * 2 + 1
    }  # two examples of a start and its answer, then a start
    with pytest.raises(HeadwiseError, match="lm-eval has no task 'copid'"):
        run_harness(plain, "copid", silence=[(0, 1)], include=tmp_path / "tasks", tokenizer=words)
