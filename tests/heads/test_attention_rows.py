"""Rows of attention recomputed from q and k, against the rows of eager attention."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from small_models import build
from test_patching import gemma2
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

IDS = torch.randint(5, 50, (3, 9), generator=torch.Generator().manual_seed(0))
LEFT = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9, [0, 0, 0, 0, 1, 1, 1, 1, 1]])
MASKS = {"whole": torch.ones_like(LEFT), "left": LEFT, "right": LEFT.flip(1)}
NEW = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}


def inputs(family: str, mask: Tensor) -> dict[str, Tensor]:
    pair = {"decoder_input_ids": IDS[:, :5]} if family in ("t5", "bart") else {}
    return {"input_ids": IDS, "attention_mask": mask, **pair}


def both(heads: Heads, rows: Any, run: Any) -> tuple[Any, Any]:
    """The tapes of chosen rows and of whole maps."""
    before = heads.model.config._attn_implementation
    with torch.no_grad(), heads.recorded("last", attention=rows) as ours:
        assert heads.model.config._attn_implementation == before
        run()
    with torch.no_grad(), heads.recorded("last", attention=True) as theirs:
        run()
    return ours, theirs


@pytest.mark.parametrize("padding", list(MASKS))
@pytest.mark.parametrize(
    "family", ["gpt2", "llama", "gemma2", "t5", "bart", "neox", "bloom", "falcon-gqa", "bert"]
)
def test_rows_are_those_of_eager_attention(family: str, padding: str) -> None:
    heads = Heads(gemma2() if family == "gemma2" else build(family))
    mask = MASKS[padding]
    rows = [0, 3, -1]
    ours, theirs = both(heads, rows, lambda: heads.model(**inputs(family, mask)))
    last, _ = both(heads, "last", lambda: heads.model(**inputs(family, mask)))
    for site, query_rows, maps, end in zip(
        heads.sites, ours.attention, theirs.attention, last.attention, strict=True
    ):
        query_mask = mask if site.kind == "self" else torch.ones(3, 5)  # of the queries
        assert query_rows.shape == (3, site.n_heads, 3, maps.shape[-1])
        for row in range(3):
            real = [t for t in range(query_mask.shape[1]) if query_mask[row, t]]
            for i, position in enumerate(rows):
                torch.testing.assert_close(
                    query_rows[row, :, i], maps[row, :, real[position]], rtol=0, atol=1e-5
                )
            torch.testing.assert_close(end[row, :, 0], maps[row, :, real[-1]], rtol=0, atol=1e-5)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "t5"])
def test_generation_keeps_one_row_a_step(family: str, cached: bool) -> None:
    heads = Heads(gemma2() if family == "gemma2" else build(family))
    prompt = {"input_ids": IDS, "attention_mask": LEFT}
    ours, theirs = both(heads, "last", lambda: heads.model.generate(**prompt, **NEW, use_cache=cached))
    generated, _ = both(heads, "generated", lambda: heads.model.generate(**prompt, **NEW, use_cache=cached))
    for site in heads.sites:
        full_steps = theirs.steps(site.index)
        steps = 1 if family == "t5" and site.kind == "self" else 4  # the encoder runs once
        assert len(ours.steps(site.index)) == len(full_steps) == steps
        assert len(generated.steps(site.index)) == steps - 1
        for rows, full in zip(ours.steps(site.index), full_steps, strict=True):
            torch.testing.assert_close(rows[:, :, 0], full[:, :, -1], rtol=0, atol=1e-5)
        for rows, full in zip(generated.steps(site.index), full_steps[1:], strict=True):
            assert rows.shape[2] == 1
            torch.testing.assert_close(rows[:, :, 0], full[:, :, -1], rtol=0, atol=1e-5)


def test_heads_packed_as_queries_of_their_key_head_are_heads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers from 5.23 on calls fused attention for one query with (batch, key heads, heads per key
    head, dim), the mask too."""

    def packing(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> Any:
        heads, size = query.shape[1], query.shape[-1]
        if query.shape[2] > 1 or mask is None:
            repeated = [rows.repeat_interleave(heads // rows.shape[1], 1) for rows in (key, value)]
            return nn.functional.scaled_dot_product_attention(query, *repeated, mask).transpose(1, 2), None
        # A bias that softmax does not see
        per_head = mask.expand(-1, heads, -1, -1) - torch.arange(heads).view(1, heads, 1, 1)
        shape = (len(query), key.shape[1], heads // key.shape[1])
        mixed = nn.functional.scaled_dot_product_attention(
            query.reshape(*shape, size), key, value, per_head.reshape(*shape, key.shape[2])
        )
        return mixed.reshape(len(query), heads, 1, size).transpose(1, 2), None

    heads = Heads(build("llama"))
    run = lambda: heads.model.generate(input_ids=IDS, attention_mask=LEFT, **NEW)  # noqa: E731
    with torch.no_grad(), heads.recorded("last", attention="last") as plain:
        run()
    attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setitem(
        ALL_ATTENTION_FUNCTIONS._global_mapping,
        "sdpa",
        lambda m, q, k, v, mask, **o: packing(m, q, k, v, _added(mask, q), **o),
    )
    with torch.no_grad(), heads.recorded("last", attention="last") as packed:
        run()
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is not attend
    for site in heads.sites:
        for rows, expected in zip(packed.steps(site.index), plain.steps(site.index), strict=True):
            torch.testing.assert_close(rows, expected, rtol=0, atol=1e-5)


def _added(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """A mask of truth values as one that is added to scores."""
    return (
        mask if mask is None or mask.dtype != torch.bool else torch.zeros(mask.shape).masked_fill(~mask, -1e9)
    )


def test_positions_that_come_later_are_kept_when_they_come() -> None:
    heads = Heads(build("llama"))
    prompt = {"input_ids": IDS, "attention_mask": LEFT}  # 7, 9 and 5 real tokens
    ours, theirs = both(heads, [6, 9], lambda: heads.model.generate(**prompt, **NEW))
    first, *later = ours.steps(0)
    full_steps = theirs.steps(0)
    torch.testing.assert_close(first[0, :, 0], full_steps[0][0, :, 8], rtol=0, atol=1e-5)
    assert first.shape[2] == 2  # each position keeps its place
    assert first[2].isnan().all()  # it has only five tokens yet
    assert first[:, :, 1].isnan().all()
    torch.testing.assert_close(later[0][1, :, 1], full_steps[1][1, :, 0], rtol=0, atol=1e-5)
    torch.testing.assert_close(later[1][2, :, 0], full_steps[2][2, :, 0], rtol=0, atol=1e-5)
    only, _ = both(heads, [6], lambda: heads.model.generate(**prompt, **NEW))
    assert len(only.steps(0)) == 2  # of generated tokens, passes without any of the positions are not kept


def test_half_precision() -> None:
    heads = Heads(build("llama").to(torch.bfloat16))
    ours, theirs = both(heads, "last", lambda: heads.model(IDS, attention_mask=LEFT))
    torch.testing.assert_close(
        ours.attention[0][:, :, 0], theirs.attention[0][:, :, -1].float(), rtol=0, atol=1e-2
    )
    torch.testing.assert_close(ours.attention[0].sum(-1), torch.ones(3, 4, 1))


def hidden_flash(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kw: Any
) -> tuple[Tensor, None]:
    """A kernel that shows nothing: causal, with a window and capped scores; its mask covers keys, (batch,
    keys)."""
    with torch._C.DisableTorchFunction():
        groups, queries, keys = query.shape[1] // key.shape[1], query.shape[2], key.shape[2]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = query @ key.transpose(2, 3) * kw["scaling"]
        if kw.get("softcap"):
            scores = (scores / kw["softcap"]).tanh() * kw["softcap"]
        back = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        allowed = (back >= 0) & (back < (kw.get("sliding_window") or keys + 1))
        allowed = allowed if mask is None else allowed & mask[:, None, None].bool()
        probabilities = scores.masked_fill(~allowed, -1e9).softmax(-1)
        return (probabilities @ value).transpose(1, 2).contiguous(), None


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "hidden_flash", hidden_flash)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "hidden_flash", flash_attention_mask)
    yield "hidden_flash"
    assert ALL_ATTENTION_FUNCTIONS["hidden_flash"] is hidden_flash
    assert "hidden_flash" not in ALL_ATTENTION_FUNCTIONS._local_mapping


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_flash_attention_stays_and_its_rows_are_recomputed(family: str, flash: str) -> None:
    model: Any = gemma2() if family == "gemma2" else build(family)
    heads = Heads(model)
    model.config._attn_implementation = flash
    for mask in (LEFT, torch.ones_like(LEFT)):
        prompt = {"input_ids": IDS, "attention_mask": mask}
        ours, theirs = both(heads, "last", lambda p=prompt: model.generate(**p, **NEW))
        for layer in range(2):
            for rows, full in zip(ours.steps(layer), theirs.steps(layer), strict=True):
                torch.testing.assert_close(rows[:, :, 0], full[:, :, -1], rtol=0, atol=1e-5)


def test_other_threads_and_other_models_are_left_alone(flash: str) -> None:
    heads, bystander = Heads(build("llama")), build("llama", seed=1)
    with torch.no_grad(), heads.recorded("last", attention="last") as tape:
        heads.model(IDS)
        before = tape.attention[0].clone()
        bystander(IDS)
        with ThreadPoolExecutor(1) as pool:  # a pass of another thread through the same model
            pool.submit(torch.no_grad()(lambda: heads.model(IDS.flip(0)))).result()
        heads.model(IDS)
    torch.testing.assert_close(tape.attention[0], torch.cat((before, before)))


def test_what_cannot_be_followed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: Any = Heads(build("llama"))

    def kernel(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        return hidden_flash(module, query, key, value, None, **kwargs)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "hidden_kernel", kernel)
    heads.model.config._attn_implementation = "hidden_kernel"
    with (
        pytest.raises(HeadwiseError, match="attends by 'hidden_kernel'"),
        heads.recorded("last", attention="last"),
    ):
        heads.model(IDS)
    heads.model.config._attn_implementation = "sdpa"
    for wrong, message in (
        ("first", "got 'first'"),
        ([], "takes positions"),
        ([0.5], "takes positions"),
        ([[1]], "takes positions"),
    ):
        with pytest.raises(HeadwiseError, match=message), heads.recorded("last", attention=wrong):
            heads.model(IDS)
    with torch.no_grad(), heads.recorded("last", attention="generated") as tape:
        heads.model(IDS)
    with pytest.raises(HeadwiseError, match="no attention maps"):
        _ = tape.attention


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_masks_of_a_static_cache_are_refused_in_words(family: str) -> None:
    heads = Heads(gemma2() if family == "gemma2" else build(family))
    options = {**NEW, "cache_implementation": "static", "disable_compile": True}
    with (
        pytest.raises(HeadwiseError, match=r"does not say which .* real: pass one of \(batch, tokens\)"),
        heads.recorded("last"),
    ):
        heads.model.generate(IDS, attention_mask=LEFT, **options)
    padded = {**options, "pad_token_id": 0}
    with pytest.raises(HeadwiseError, match=r"give it to generate\(\) as attention_mask="):  # noqa: SIM117
        with heads.steered({(0, 0): torch.ones(8)}, tokens="last"):
            heads.model.generate(IDS * LEFT, **padded)
    # These ask for no positions
    with (
        heads.steered({(0, 0): torch.ones(8)}),
        heads.silenced(HeadSet([(1, 1)])),
    ):
        heads.model.generate(IDS, attention_mask=LEFT, **options)


LONG = """
import resource, torch
from transformers import LlamaConfig, LlamaForCausalLM
from headwise.heads import Heads
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
    intermediate_size=8, vocab_size=20, max_position_embeddings=32000)).eval()
heads = Heads(model)
ids = torch.randint(5, 20, (1, 32000))
with torch.no_grad():
    model(ids)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with heads.recorded("last", attention="last") as tape:
        model(ids)
assert tape.attention[0].shape == (1, 2, 1, 32000)
assert abs(float(tape.attention[0].sum()) - 2) < 1e-3
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_32000_tokens_fit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) < 200_000  # kB; whole maps would take 8 GB


@pytest.mark.parametrize("wanted", [[20, 0], [20]], ids=["both", "one"])
@torch.no_grad()
def test_positions_beyond_a_text_are_nan_in_their_places(wanted: list[int]) -> None:
    """Index 0 was position 0, since position 20 was left out."""
    heads = Heads(build("bert"))
    tokens = torch.arange(5, 11)[None]
    with heads.recorded(attention=True) as full:
        heads.model(tokens)
    with heads.recorded(attention=wanted) as tape:
        heads.model(tokens)
    for maps, rows in zip(full.attention, tape.attention, strict=True):
        assert rows.shape[2] == len(wanted)
        assert rows[:, :, 0].isnan().all()
        if len(wanted) > 1:
            torch.testing.assert_close(rows[:, :, 1], maps[:, :, 0])
