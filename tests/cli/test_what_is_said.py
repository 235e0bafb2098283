"""What verbs print beside their numbers: whose text is synthetic, what "±" and "at chance" mean, why there is no interval or p."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from typer.testing import CliRunner

from headwise._base.least import EXPLAINED
from headwise.cli import app
from headwise.report import read
from headwise.tasks._metrics import CHANCE_MEANING
from words import initial_tokenizer

QUICK = ["--epochs", "1", "--batch-size", "16", "--max-length", "9", "--size", "64"]


def said(*words: Any) -> str:
    found = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return " ".join(found.stdout.split())


@pytest.fixture(scope="module")
def model(place: Path) -> Path:
    """A model to which all words are one: its predictions are constant."""
    encoder = toy.encoder(dropout=0.0)
    for table in (encoder.embeddings.word_embeddings, encoder.embeddings.position_embeddings):
        torch.nn.init.zeros_(table.weight)
    encoder.save_pretrained(place / "letters")
    initial_tokenizer(25, model_max_length=64).save_pretrained(place / "letters")
    return place / "letters"


@pytest.fixture(scope="module")
def trained(place: Path, model: Path) -> tuple[Path, str]:
    """Two methods and seeds on text of the grammar."""
    tasks = ["--tasks", "grammar:tense", "grammar:sentiment", "--metric", "macro-f1"]
    command = ["train", "--model", model, *tasks, "--method", "multi-task", "frozen", "--seeds", 2, *QUICK]
    return place / "sources", said(*command, "--out", place / "sources")


def test_train_says_what_at_chance_means(trained: tuple[Path, str]) -> None:
    _, text = trained
    assert "at chance" in text
    assert CHANCE_MEANING[1:] in text
    assert "The text of tense, sentiment is synthetic." in text
    assert "docs/statistics.md" in text


def test_the_report_of_a_training_names_metrics_and_synthetic_text(trained: tuple[Path, str]) -> None:
    (section,) = read([trained[0]])
    assert (
        "Scores are on the validation splits (macro F1), mean ± standard deviation over seeds"
        in section.methods
    )
    assert "task's own metric" not in section.methods
    assert section.methods.endswith("The text of tense, sentiment is synthetic.")
    assert f"{CHANCE_MEANING[0].upper()}{CHANCE_MEANING[1:]}" in section.methods
    difference = next(sentence for sentence in section.findings if sentence.startswith("frozen is"))
    assert "every seed has the same value" in difference
    assert "0.00 to 0.00" not in difference
    (one,) = read([trained[0] / "frozen" / "seed-0"])
    assert "of one seed" in one.methods
    assert "t interval" not in one.methods  # nothing is compared


def test_scores_name_synthetic_text(trained: tuple[Path, str]) -> None:
    assert "The text of tense, sentiment is synthetic." in said(
        "score", "--model", trained[0] / "frozen" / "seed-0", "--examples", 8
    )


def test_transfer_says_what_its_spread_is_over_and_why_there_is_no_interval(
    trained: tuple[Path, str], place: Path
) -> None:
    few = ["--shots", "4", "--seeds", "2", "--epochs", "1", "--evaluate", "12", "--jobs", "0", "--size", "64"]
    command = [
        "transfer",
        "--from",
        trained[0],
        "--to",
        "grammar:subject_number",
        *few,
        "--out",
        place / "transfer",
    ]
    text = said(*command)
    assert "Mean ± sd over 4 runs (2 source models × few-shot seeds)" in text
    assert "The text of grammar:subject_number is synthetic." in text
    assert "no p: 2 source models of each method, 6 are needed" in text
    assert EXPLAINED in text
    assert "task chance method" in text
    (section,) = read([place / "transfer"])
    assert "fine-tuned (in full) on k examples" in section.methods
    assert section.methods.endswith("The text of grammar:subject_number is synthetic.")
    (row,) = json.loads(CliRunner().invoke(app, [*map(str, command), "--json"]).stdout)["tables"][
        "transfer-tests"
    ]
    assert (row["low"] is None) == ("no interval" in row["note"])
    assert (
        " interval p " in text or "interval" in text.split("Differences between methods")[1].split("---")[0]
    ) == (row["low"] is not None)


def test_probe_words_the_difference_by_its_standard_errors(place: Path, model: Path) -> None:
    asked = [
        "probe",
        "--model",
        model,
        "--source",
        "grammar",
        "--tasks",
        "Tense",
        "--size",
        "200",
        "--controls",
        "none",
    ]
    text = said(*asked, "--jobs", "0", "--no-figures", "--out", place / "probe")
    assert "The text of Tense is synthetic." in text
    assert "The top heads concatenated are ahead of the last layer on" in text
    assert "test examples, 50 are needed: nothing is said beyond them" in text
    assert f"tables in {place / 'probe'}" in text
    assert "figures" not in text
