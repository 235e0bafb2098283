"""A place with a tiny model and a few data sets, as a user of the command line has them."""

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import toy

NAMES = ("mood", "animal", "third")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/ (2 layers × 4 heads), tasks.toml with three tasks, and data/qqp, a preset whose own metric is F1."""
    folder = tmp_path_factory.mktemp("place")
    toy.encoder(dropout=0.0).save_pretrained(folder / "model")
    toy.tokenizer().save_pretrained(folder / "model")
    blocks = []
    for name in NAMES:
        task = toy.task("mood" if name == "third" else name, n=24, seed=7 if name == "third" else 0)
        for split in ("train", "validation"):
            with (folder / f"{name}-{split}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["text", "label"])
                writer.writerows([[text[0], task.classes[label]] for text, label in task.split(split)])
        files = ", ".join(f'{split} = "{name}-{split}.csv"' for split in ("train", "validation"))
        blocks.append(f'[{name}]\npath = {{{files}}}\nlabel = "label"\n')
    (folder / "tasks.toml").write_text("\n".join(blocks))
    (folder / "data" / "qqp").mkdir(parents=True)
    pairs = toy.task("same", n=24)
    for split in ("train", "validation"):
        with (folder / "data" / "qqp" / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question1", "question2", "label"])
            writer.writerows([[*text, int(label)] for text, label in pairs.split(split)])
    return folder
