"""What a model card says and draws, compared with what was saved: titles, tables, pictures, and the lines that load it."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, T5Config, T5Model

import headwise as hw
import planted
from headwise.heads import Heads, HeadSet, save_removed
from headwise.models import MultiTaskModel
from headwise.sections import Chart, HeadMaps, Section
from headwise.sharing import _card

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 50,
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray[Any, Any]]:
    """The head maps that cards draw, in order."""
    maps: list[np.ndarray[Any, Any]] = []
    monkeypatch.setattr(
        "headwise.sharing._card.heads_heatmap", lambda axes, values, **looks: maps.append(np.asarray(values))
    )
    return maps


def bert(**more: Any) -> Any:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(**{**SMALL, "vocab_size": len(planted.WORDS), **more}, max_position_embeddings=32)
    ).eval()


def table_rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_model_cut_twice_is_shown_by_the_heads_it_had_at_first(
    tmp_path: Path, drawn: list[np.ndarray[Any, Any]]
) -> None:
    model = bert(num_hidden_layers=3)
    model.config._name_or_path = "org/whole"
    first = Heads(model).remove(
        HeadSet([(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (2, 0)])
    )  # the first layer has none left
    second = Heads(first).remove(
        HeadSet([(0, 1), (1, 2)])
    )  # of what is left: heads 2 of layer 1, 3 of layer 2
    save_removed(second, tmp_path / "cut")
    text = _card.card(tmp_path / "cut").text
    assert "# org/whole without 8 of its attention heads" in text
    assert "removed 8 of the 12 attention heads" in text
    expected = np.ones((3, 4))
    expected[0] = 0
    expected[1, [1, 2]] = 0
    expected[2, [0, 3]] = 0
    np.testing.assert_array_equal(drawn[0], expected)
    assert table_rows(text)[2:] == [["0", "0", "0 1 2 3"], ["1", "2", "1 2"], ["2", "2", "0 3"]]
    assert "from_pretrained" in text
    assert "ordinary model of transformers" not in text
    assert "library_name: headwise" in text


def test_an_evenly_cut_model_is_shown_by_the_heads_it_had(
    tmp_path: Path, drawn: list[np.ndarray[Any, Any]]
) -> None:
    torch.manual_seed(0)
    heads = Heads(LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2)).eval())
    importance = np.array([[3.0, 4.0, 0.0, 1.0], [0.0, 0.0, 5.0, 5.0]])
    save_removed(heads.remove(heads.prunable_evenly(importance, 0.5)), tmp_path / "even")
    text = _card.card(tmp_path / "even").text
    np.testing.assert_array_equal(drawn[0], [[1, 1, 0, 0], [0, 0, 1, 1]])
    assert " without 4 of its attention heads\n" in text
    assert 'model = LlamaForCausalLM.from_pretrained("even")' in text


def test_a_head_embedding_shows_its_heads_in_a_map_of_all_layers(
    tmp_path: Path, drawn: list[np.ndarray[Any, Any]]
) -> None:
    embedding = hw.HeadEmbedding(bert(num_hidden_layers=3), HeadSet([(0, 1), (1, 3)]), planted.tokenizer())
    embedding.save(str(tmp_path / "vectors"))
    text = _card.card(tmp_path / "vectors").text
    assert "# Sentence vectors from 2 attention heads" in text
    assert "Layers above 1 are not computed" in text
    (map_,) = drawn
    assert [tuple(index) for index in np.argwhere(map_ == 1)] == [(0, 1), (1, 3)]
    assert map_.shape[1] == 4
    assert map_.sum() == 2


def test_a_trained_models_card_has_every_score(tmp_path: Path) -> None:
    tasks = list(planted.tasks(size=64).values())
    model = MultiTaskModel(bert(), planted.tokenizer(), tasks)
    result = hw.train(model, tasks, epochs=1, quiet=True, out=tmp_path / "run", device="cpu")
    text = _card.card(tmp_path / "run", "me/name").text
    assert "# A model of 2 tasks: a, b" in text
    assert "One encoder with a decoder for each task. Tasks: a, b." in text
    assert "Trained by the method" in text
    assert 'hw.from_pretrained("me/name")' in text
    shown = [(row[0], row[1], row[3]) for row in table_rows(text)[2:]]
    rows = result.scores.to_dict("records")
    assert shown == [(row["task"], row["split"], f"{100 * row['score']:.1f}") for row in rows]


def test_accuracies_of_few_examples_have_no_interval() -> None:
    row = {
        "task": "t",
        "split": "validation",
        "metric": "accuracy",
        "score": 0.5,
        "examples": _card.MIN_EXAMPLES,
    }
    assert _card._with_interval(row, "classes")["interval"] != "–"
    assert _card._with_interval({**row, "examples": _card.MIN_EXAMPLES - 1}, "classes")["interval"] == "–"
    assert _card._with_interval(row, "tags")["interval"] == "–"
    assert _card._with_interval({**row, "metric": "f1"}, "classes")["interval"] == "–"


def test_a_results_card_takes_title_findings_tables_and_the_head_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = planted.tasks(size=32)
    model = MultiTaskModel(bert(), planted.tokenizer(), both.values())
    model.save(tmp_path / "model")
    hw.score(tmp_path / "model", list(both.values()), quiet=True, device="cpu", out=tmp_path / "scores")
    sections = _card.sections_of(tmp_path / "scores")
    text = _card.card(tmp_path / "scores").text
    assert f"\n# {sections[0].title}\n" in text
    assert all(f"- {_card._text(finding)}" in text for section in sections for finding in section.findings)
    caption = next(line for line in text.splitlines() if line.startswith("!["))
    first = next(block for block in sections[0].blocks if isinstance(block, HeadMaps))
    assert caption == f"![{_card._text(f'{first.title}. {first.caption}'.strip())}](figures/heads.png)"
    assert sections[0].settings.get("model", "") == "model"


def test_a_chart_without_a_caption_has_its_title_alone() -> None:
    section = Section(
        title="T",
        methods="",
        findings=[],
        blocks=[Chart("rows", title="Rows", caption="", draw=lambda: None)],
    )
    picture = _card._first_figure(section)
    assert picture is not None
    assert picture.caption == "Rows."


def test_long_tables_are_cut_and_what_is_missing_is_counted() -> None:
    frame = pd.DataFrame({"n": range(_card.MOST + 3), "share": 0.123456})
    rows = table_rows(_card._markdown(frame))
    assert rows[0] == ["n", "share"]
    assert rows[2] == ["0", "0.123"]
    assert len(rows) == 2 + _card.MOST
    assert "3 further rows are in the files." in _card._markdown(frame)
    assert "further" not in _card._markdown(frame.head(_card.MOST))
    named = pd.DataFrame({"task": ["p", "q"], "x": [None, "a|b <c>"]})
    assert table_rows(_card._markdown(named))[0] == ["task", "x"]
    assert "| p | – |" in _card._markdown(named)
    assert "| q | a\\|b &lt;c&gt; |" in _card._markdown(named)


def test_policies_of_the_extremes(tmp_path: Path) -> None:
    heads = Heads(LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2)).eval())
    hw.sharing.save_cache_policy(HeadSet([(0, 0)]), heads, tmp_path, sink_size=1, recent_size=1)
    assert '"recent_size": 1' in (tmp_path / "config.json").read_text()
    with pytest.raises(hw.HeadwiseError, match="sink_size is 0"):
        hw.sharing.save_cache_policy(HeadSet([(0, 0)]), heads, tmp_path, sink_size=0)
    with pytest.raises(hw.HeadwiseError, match="or gaps"):
        hw.sharing.save_cache_policy(np.full((2, 4), np.nan), heads, tmp_path)


def test_revision_token_and_place_reach_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_removed(Heads(bert()).remove(HeadSet([(0, 1)])), tmp_path / "cut")
    asked: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(tmp_path / "cut")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    hw.from_pretrained("me/cut", revision="v1", token="secret", cache_dir=tmp_path / "cache")
    assert (asked["name"], asked["revision"], asked["token"]) == ("me/cut", "v1", "secret")
    assert asked["cache_dir"] == tmp_path / "cache"
    assert not any(fnmatch("x.bin", pattern) for pattern in asked["allow_patterns"])


def test_an_upload_keeps_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    class Api:
        def __init__(self, token: str | None = None) -> None:
            calls.append(("api", {"token": token}))

        def create_repo(self, repo_id: str, **options: Any) -> str:
            calls.append(("create", {"repo_id": repo_id, **options}))
            return "https://hub/x"

        def upload_folder(self, **options: Any) -> None:
            calls.append(("upload", options))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    smaller = Heads(bert()).remove(HeadSet([(0, 1)]))
    hw.push_to_hub(smaller, "me/x", private=True, token="secret", message="First")
    assert calls[0] == ("api", {"token": "secret"})
    assert calls[1] == ("create", {"repo_id": "me/x", "private": True, "exist_ok": True})
    assert [options["commit_message"] for name, options in calls if name == "upload"] == [
        "First",
        "Model card",
    ]
    assert "README.md" in calls[2][1]["ignore_patterns"]
    calls.clear()
    hw.push_to_hub(smaller, "me/x")
    assert calls[1][1]["private"] is False


def test_only_left_to_right_models_have_a_cache_policy(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16, "vocab_size": 20}
    with pytest.raises(hw.HeadwiseError, match="left-to-right"):
        hw.sharing.save_cache_policy(
            HeadSet([(0, 0)]), Heads(T5Model(T5Config(**sizes, decoder_start_token_id=0)).eval()), tmp_path
        )
