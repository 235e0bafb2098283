"""Roles beside TransformerLens' own detector on the same model; run where it is installed (`make peers`)."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import small
import torch

import headwise as hw

pytest.importorskip("transformer_lens", reason="TransformerLens is not installed: `make peers` runs this")

NAMES = {
    "previous-token-text": "previous_token_head",
    "duplicate-token-text": "duplicate_token_head",
    "induction-text": "induction_head",
}


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma"])
@pytest.mark.parametrize("exclude", [False, True])
def test_previous_duplicate_and_induction_equal_detect_head(
    family: str, exclude: bool, tmp_path: Path
) -> None:
    """To 1e-4 on repeated random tokens; the Llama has grouped queries, the Gemma one key head."""
    from transformer_lens.head_detector import detect_head
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    small.tokenizer().save_pretrained(tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), small.build(family)
    rng = np.random.default_rng(0)
    halves = [" ".join(f"w{i}" for i in rng.choice(np.arange(3, 48), 12, replace=False)) for _ in range(3)]
    texts = [f"{half} {half}" for half in halves]
    options = {"exclude_first": exclude, "exclude_current": exclude}
    ours = hw.roles(model, tokenizer, roles=tuple(NAMES), texts=texts, quiet=True, **options)
    lens = TransformerBridge.boot_transformers(
        family, hf_model=deepcopy(model), tokenizer=tokenizer, device="cpu"
    )
    for role, name in NAMES.items():
        with torch.no_grad():
            theirs = detect_head(lens, texts, name, exclude_bos=exclude, exclude_current_token=exclude)
        np.testing.assert_allclose(ours.sel(role=role), theirs.numpy(), atol=1e-4)
        apart = float(np.abs(ours.sel(role=role) - theirs.numpy()).max())
        print(f"{family}, {role}: {apart:.2g} apart")
    assert float(ours.max()) > 0.1
