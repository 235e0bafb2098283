"""Settings of `headwise.harness.run_harness`: declared once, without torch."""

from pathlib import Path
from typing import Any

from headwise.settings import HEADS, TOKENIZER, DataPath, Opening, Resampling, option


class Evaluate(Resampling, Opening):
    """Settings of `headwise.harness.run_harness`: one of silence, gates and steer says what is changed."""

    out: Path | None = option(
        None, "Save tables and examples in this folder, which must not exist.", short="-o", decides=False
    )
    silence: Any = option(
        None, "Heads to silence: a JSON file [[layer, head], ...]; in Python also a HeadSet."
    )
    gates: Any = option(
        None, "Gates of all heads: a JSON or .npy file (layers × heads); in Python also an array."
    )
    steer: Any = option(None, "Steering: a folder of `headwise steer --out`; in Python also its result.")
    strength: float | None = option(None, "Strength of the steering; default: the chosen one.", gt=0)
    include: DataPath | None = option(None, "Folder with task files (YAML) of your own.")
    fewshot: int | None = option(None, "Number of examples in the prompt; default: the task's own.", ge=0)
    limit: int | None = option(None, "Only this many examples per task, the first ones; default: all.", ge=1)
    batch_size: int = option(8, "Requests per batch; the result does not depend on it.", ge=1, decides=False)
    seed: int = option(0, "Random seed of prompts, generation and intervals.", ge=0)
    tokenizer: Any = TOKENIZER
    heads: Any = HEADS
