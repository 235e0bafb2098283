"""Settings of trainings: declared once, without torch; the defaults are the paper's recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from headwise.errors import did_you_mean
from headwise.settings import QUIET, TOKENIZER, TRUST, Exact, Settings, option

Sampling = Literal["proportional", "square-root", "annealed", "temperature", "power", "uniform", "pooled"]
SAMPLINGS: tuple[str, ...] = get_args(Sampling)
NONFINITE: Any = option(
    1,
    "Stop with an error after this many steps in a row whose loss is NaN or infinite; 1: at the first.",
    ge=1,
    decides=False,
)


class Train(Exact):
    """Settings of `headwise.train`, the same for every method (functional-specialization, appendix A: Adam
    0.9/0.999, 2e-5, 5 epochs)."""

    epochs: int = option(
        5,
        "Epochs; one epoch has one step per batch of all tasks together, and each step is a batch of one "
        "task.",
        ge=1,
    )
    batch_size: int = option(
        32, "Examples per optimizer step, over all processes and micro-batches together.", ge=1
    )
    micro_batch_size: int | None = option(
        None, "At most this many examples per forward pass of one process; default: no limit.", ge=1
    )
    learning_rate: float = option(
        2e-5, "Peak learning rate of the encoder, and of everything else by default.", also="--lr", gt=0
    )
    decoder_learning_rate: float | None = option(None, "Peak learning rate of the decoders.", gt=0)
    gate_learning_rate: float | None = option(
        None, "Peak learning rate of parameters that a method adds (gates).", gt=0
    )
    optimizer: Literal["adamw", "adamax", "sgd", "adafactor"] = option(
        "adamw", "Optimizer: adamw, adamax, sgd or adafactor."
    )
    weight_decay: float = option(0.0, "Weight decay.", ge=0)
    betas: tuple[float, float] = option((0.9, 0.999), "β₁ and β₂ of Adam; the first is the momentum of sgd.")
    eps: float = option(1e-8, "ε of Adam.", gt=0)
    warmup: float = option(0.1, "Fraction of the steps during which the learning rate rises.", ge=0, le=1)
    schedule: Literal["linear", "constant"] = option(
        "linear", "Learning rate after the warm-up: linear decay to 0, or constant."
    )
    clip: float | None = option(None, "Maximum gradient norm; default: no clipping.", gt=0)
    sampling: Sampling = option(
        "proportional", f"How the task of each step is drawn: {', '.join(SAMPLINGS)}."
    )
    temperature: float = option(5.0, "T of temperature sampling, p ∝ N^(1/T).", gt=0)
    power: float = option(0.8, "Exponent of power sampling, p ∝ batches^power.")
    balance: int = option(
        0,
        "Scale each task's loss by (sum of the mean losses) ÷ (its own), over this many of its last steps; "
        "0: off.",
        ge=0,
    )
    max_length: int = option(256, "Maximum number of tokens per text or pair.", ge=1)
    max_examples: int | None = option(
        None, "At most this many training examples per task, drawn at random, the same for all methods.", ge=1
    )
    pooling: Literal["cls", "last", "mean"] | None = option(
        None, "How the tokens of a text are pooled: cls, last or mean; default: that of the model family."
    )
    random_weights: bool = option(False, "Control: draw the encoder's weights at random by the seed.")
    decoder_options: dict[str, Any] = option(
        {}, "Options of decoders by task, e.g. {'dep': {'tree': 'projective'}}."
    )
    precision: Literal["no", "bf16", "fp16"] = option("no", "Mixed precision: no (float32), bf16 or fp16.")
    gradient_checkpointing: bool = option(
        False, "Recompute activations in the backward pass, which saves memory."
    )
    evaluate: Literal["end", "epoch"] = option(
        "end", "When to evaluate: at the end, or after each epoch (epoch)."
    )
    early_stopping: int | None = option(
        None, "Stop after this many evaluations without a better mean score, and keep the best weights.", ge=1
    )
    stopping_split: Literal["train", "validation"] = option(
        "train",
        "What early stopping chooses on: train (a tenth of the training examples, held out), or validation, "
        "the split that is reported, whose scores are then optimistic.",
    )
    predict: tuple[str, ...] = option((), "More splits to predict, e.g. test; labels are not needed.")
    options: dict[str, Any] = option(
        {}, "Options of the method, e.g. ratios=[0.1,0.3] for ticket-share.", flag="--set"
    )
    seed: int = option(0, "Random seed for the order of examples, dropout and new weights.", ge=0)
    device: Literal["cpu", "cuda"] | None = option(
        None,
        "cpu or cuda; default: a GPU if there is one, the first that CUDA_VISIBLE_DEVICES names.",
        decides=False,
    )
    graphs: bool = option(True, "On a GPU, run steps of frequent shapes as CUDA graphs.", decides=False)
    nonfinite_steps: int = NONFINITE
    log_every: int = option(50, "Steps between records of the loss.", ge=1, decides=False)
    checkpoint_minutes: float = option(10.0, "Minutes between checkpoints.", ge=0, decides=False)
    trackers: tuple[str, ...] = option((), "Trackers of accelerate, e.g. tensorboard, wandb.", decides=False)
    quiet: bool = QUIET
    trust_remote_code: bool = TRUST
    out: str | Path | None = option(
        None, "Folder for the model and the tables; rerun to resume or show them again.", decides=False
    )
    tokenizer: Any = TOKENIZER
    also: Mapping[str, Any] | None = option(
        None, "More tasks to evaluate with a trained task's decoder, e.g. {'mnli': mnli_mm}.", live=True
    )
    start: str | Path | None = option(
        None, "Checkpoint of another training to start from, see `TrainingRun`.", live=True
    )
    label: str | None = option(
        None, "What this training is called among others, if not by its method.", live=True
    )
    branches: Mapping[int, Path] | None = option(
        None, "Folders by step, in which a checkpoint is left before that step, see `TrainingRun`.", live=True
    )

    @model_validator(mode="before")
    @classmethod
    def _move_method_options(cls, values: Any) -> Any:
        """Options of methods may stand beside the settings: `train(..., method="iat", alpha=0.3)`."""
        if not isinstance(values, dict):
            return values
        method_options = {name: value for name, value in values.items() if name not in cls.model_fields}
        if not method_options:
            return values
        from headwise.training.methods import METHODS, option_names

        names = set[str]().union(*map(option_names, METHODS))
        for name in method_options:
            if name not in names:
                near = did_you_mean(name, [*cls.model_fields, *names])
                raise ValueError(f"{name!r} is neither a setting of training nor an option of a method{near}")
        settings = {name: value for name, value in values.items() if name in cls.model_fields}
        return {**settings, "options": {**values.get("options", {}), **method_options}}

    @field_validator("early_stopping")
    @classmethod
    def _evaluated(cls, early_stopping: int | None, info: ValidationInfo) -> int | None:
        if early_stopping is not None and info.data.get("evaluate") == "end":
            raise ValueError("it needs evaluations to compare: set evaluate='epoch'")
        return early_stopping


class FewShot(Exact):
    """Settings of few-shot fine-tuning: the `[fewshot]` table of a recipe (appendix A.2: everything is
    trained, 20 epochs at 2e-5)."""

    epochs: int = option(20, "Epochs over the k examples.", ge=1)
    batch_size: int = option(32, "Examples per step.", ge=1)
    learning_rate: float = option(
        2e-5, "Peak learning rate, with linear decay and no weight decay.", also="--lr", gt=0
    )
    warmup: float = option(0.1, "Fraction of the steps during which the learning rate rises.", ge=0, le=1)
    tuning: Literal["full", "lora", "decoder"] = option(
        "full",
        "What is trained: full (all weights), lora (low-rank updates and the decoder), or decoder (only the "
        "decoder).",
    )
    rank: int = option(8, "Rank of lora.", ge=1)
    max_length: int | None = option(
        None,
        "Maximum number of tokens per text or pair; default: as in the models' training, else 256.",
        ge=1,
    )
    precision: Literal["no", "bf16"] = option("no", "Mixed precision: no (float32) or bf16.")
    nonfinite_steps: int = NONFINITE
    copies: int | None = option(
        None,
        "Seeds trained side by side; default: chosen from the device and its memory.",
        ge=1,
        decides=False,
    )
    eval_batch_size: int = option(64, "Examples per evaluation pass and seed.", ge=1, decides=False)
    quiet: bool = QUIET
    evaluate_on: Any = option(None, "Held-out `Examples`; default: the task's validation split.", live=True)


class Shots(Settings):
    """How often and on what trained models are fine-tuned: keys of a transfer recipe."""

    shots: tuple[Annotated[int, Field(ge=1)], ...] = option(
        (4, 16, 32, 100), "Total number of training examples (k)."
    )
    seeds: int = option(30, "Fine-tuning runs per model, task and k; all see the same examples.", ge=1)
    evaluate: int | None = option(None, "At most this many held-out examples, the same for all.", ge=1)


class Transfer(Shots, FewShot):
    """Settings of `headwise.studies.transfer`."""

    device: str | None = option(
        None, "cuda, cpu, ...; default: the models' device, else a GPU if there is one.", live=True
    )
