"""What the stem-cell study can be told: settings declared once, without torch."""

from typing import Any, Literal

from headwise.settings import DataPath, Settings, option
from headwise.training import Train

Name = Literal["pos", "xpos", "ner", "dep", "tree-dep", "con", "srl"]
Gates = Literal["subset", "l0", "causal-gating", "gate-gradient", "dynamic"]
# Encoder 5e-5 (1e-5 with gates), decoders 1e-3, warm-up 10 %, clip 1, p ∝ batches^0.8, losses balanced over 5
# steps.
PAPER: dict[str, Any] = {
    "epochs": 30,
    "learning_rate": 5e-5,
    "decoder_learning_rate": 1e-3,
    "gate_learning_rate": 1e-3,
    "warmup": 0.1,
    "clip": 1.0,
    "sampling": "power",
    "power": 0.8,
    "balance": 5,
    "max_length": 512,
}


# A small encoder has more to learn: a higher rate for it, and a little weight decay.
SMALL: dict[str, Any] = PAPER | {
    "epochs": 20,
    "learning_rate": 2e-4,
    "weight_decay": 0.01,
    "max_length": 256,
    "evaluate": "epoch",
    "early_stopping": 20,
}


class Training(Train):
    """Settings of all trainings."""

    gated_learning_rate: float = option(1e-5, "Peak learning rate of the encoder under gates.", gt=0)


class StemCells(Settings):
    """Settings of `headwise.studies.stem_cell_study`, and the keys of a recipe of kind "stem-cells"."""

    tasks: tuple[Name, ...] = option(
        ("pos", "ner", "dep", "con", "srl"),
        "Annotation layers to train on: two or more of pos, xpos, ner, dep, tree-dep (dependencies made of "
        "constituency trees), con, srl.",
    )
    data: DataPath | None = option(
        None,
        "Annotated sentences: a folder with train, validation and test, or a file; default: the embedded "
        "grammar.",
    )
    skip_bad: bool = option(False, "Skip and count malformed sentences.")
    size: int = option(600, "Number of sentences to generate from the grammar.", ge=64)
    runs: int = option(3, "Runs of every training.", ge=2)
    pairs: bool = option(True, "Also train every pair of tasks.")
    fraction: float = option(0.3, "Fraction of all heads that each task may claim (k).", gt=0, lt=1)
    gates: tuple[Gates, ...] = option(
        ("subset", "l0"),
        "Ways to learn claims; the first one tests the hypothesis: subset, l0, causal-gating, gate-gradient, "
        "dynamic.",
        min_length=1,
    )
    gate_steps: int = option(300, "Training steps for learning claims.", ge=1)
    gate_examples: int | None = option(
        10_000, "At most this many examples per task for learning claims.", ge=16
    )
    control: bool = option(True, "Also learn claims in encoders with random weights.")
    important_heads: bool = option(True, "Also train all tasks by important-head training.")
    probe_examples: int | None = option(
        None, "At most this many sentences per split for probing; default: all.", ge=16
    )


# What `headwise stemcells` runs without a recipe: about an hour on two cores, a few minutes on a GPU.
SMALL_RECIPE: dict[str, Any] = {
    "kind": "stem-cells",
    "title": "Stem cells, small",
    "pairs": False,
    "gates": ["subset"],
    "gate_steps": 60,
    "gate_examples": 500,
    "probe_examples": 300,
    "training": {
        "epochs": 4,
        "learning_rate": 2e-4,
        "gated_learning_rate": 1e-4,
        "weight_decay": 0.01,
        "max_length": 256,
    },
}
