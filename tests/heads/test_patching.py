"""Patches, against a loop that overwrites slices of one row's projection inputs by hand."""

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from small_models import build
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

G = torch.Generator().manual_seed(0)
CLEAN, OTHER = torch.randint(5, 50, (4, 6), generator=G), torch.randint(5, 50, (4, 6), generator=G)
SETS = [HeadSet([(0, 1)]), HeadSet([(1, 3), (0, 0)]), HeadSet([(1, 2)]), HeadSet([(0, 3), (1, 0), (1, 1)])]


def gemma2() -> Any:
    torch.manual_seed(0)
    return Gemma2ForCausalLM(
        Gemma2Config(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=24,
            vocab_size=50,
            sliding_window=4,
            attn_logit_softcapping=0.5,
            query_pre_attn_scalar=8,
        )
    ).eval()


def found(family: str) -> Heads:
    return Heads((gemma2() if family == "gemma2" else build(family)).double())


@pytest.fixture(scope="module")
def gpt2() -> Heads:
    return found("gpt2")


def logits(heads: Heads, **inputs: Any) -> Tensor:
    with torch.no_grad():
        out = heads.model(**inputs)
    return out.logits if hasattr(out, "logits") else out[0]


def by_hand(
    heads: Heads, inputs: dict[str, Any], source: dict[str, Any], head_set: HeadSet, pairs: Any
) -> Tensor:
    """One row's logits with the projection inputs of `head_set` overwritten column by column; `pairs`:
    (source, target) columns."""
    outputs: dict[int, Tensor] = {}

    def keep(index: int) -> Any:
        return lambda module, args: outputs.__setitem__(index, args[0].clone())

    def write(site: Any) -> Any:
        def hook(module: Any, args: Any) -> Any:
            x = args[0].clone()
            for layer, head in head_set:
                if layer == site.index:
                    for there, here in pairs:
                        x[0, here, head * 8 : head * 8 + 8] = outputs[layer][
                            0, there, head * 8 : head * 8 + 8
                        ]
            return (x, *args[1:])

        return hook

    modules = {site.index: heads.model.get_submodule(site.path) for site in heads.sites}
    with ExitStack() as stack:
        for site in heads.sites:
            stack.callback(modules[site.index].register_forward_pre_hook(keep(site.index)).remove)
        logits(heads, **source)
    with ExitStack() as stack:
        for site in heads.sites:
            stack.callback(modules[site.index].register_forward_pre_hook(write(site)).remove)
        return logits(heads, **inputs)


EQUAL = [(t, t) for t in range(6)]


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "t5", "bart", "neox", "bloom"])
def test_a_patched_row_equals_a_run_of_its_own(family: str) -> None:
    heads = found(family)
    pair = family in ("t5", "bart")
    inputs, source = {"input_ids": CLEAN}, {"input_ids": OTHER}
    if pair:
        inputs["decoder_input_ids"], source["decoder_input_ids"] = OTHER[:, :4], CLEAN[:, :4]
    last = len(heads.sites) - 1  # the decoder's cross attention
    sets = [head_set | HeadSet([(last, 2)]) for head_set in SETS] if pair else SETS
    with heads.patched(sets, source):
        together = logits(heads, **inputs)
    for row in range(4):
        mine, its = ({k: v[row : row + 1] for k, v in d.items()} for d in (inputs, source))
        with heads.patched(sets[row], its):
            alone = logits(heads, **mine)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)
        if not pair:
            torch.testing.assert_close(alone, by_hand(heads, mine, its, sets[row], EQUAL), rtol=0, atol=0)
    assert (together - logits(heads, **inputs)).abs().amax((1, 2)).min() > 1e-6


@pytest.mark.parametrize(
    ("tokens", "pairs"),
    [
        ([2], [(2, 2)]),
        ([0, -1], [(0, 0), (5, 5)]),
        ("last", [(5, 5)]),
        (torch.tensor([3, 1]), [(3, 3), (1, 1)]),
        ([(1, 4), (-1, 2)], [(1, 4), (5, 2)]),
        ({3: 0}, [(3, 0)]),
    ],
)
def test_chosen_and_aligned_tokens(gpt2: Heads, tokens: Any, pairs: Any) -> None:
    with gpt2.patched(SETS, {"input_ids": OTHER}, tokens=tokens):
        together = logits(gpt2, input_ids=CLEAN)
    for row in range(4):
        expected = by_hand(gpt2, {"input_ids": CLEAN[[row]]}, {"input_ids": OTHER[[row]]}, SETS[row], pairs)
        torch.testing.assert_close(together[[row]], expected, rtol=0, atol=1e-12)


def test_rows_with_positions_of_their_own(gpt2: Heads) -> None:
    positions = torch.tensor([[0, 1], [2, 3], [4, 5], [-1, -2]])
    aligned = torch.stack((positions, positions.flip(1)), -1)  # (rows, n, 2)
    for tokens in (positions, aligned):
        with gpt2.patched(SETS, {"input_ids": OTHER}, tokens=tokens):
            together = logits(gpt2, input_ids=CLEAN)
        for row in range(4):
            pairs = [
                tuple(p)
                for p in (aligned if tokens is aligned else torch.stack((positions, positions), -1))[row]
                .remainder(6)
                .tolist()
            ]
            expected = by_hand(
                gpt2, {"input_ids": CLEAN[[row]]}, {"input_ids": OTHER[[row]]}, SETS[row], pairs
            )
            torch.testing.assert_close(together[[row]], expected, rtol=0, atol=1e-12)


def test_every_head_of_every_prompt_in_one_batch(gpt2: Heads) -> None:
    every = list(gpt2.all())
    rows = torch.arange(4).repeat(len(every))
    mask = torch.zeros(len(rows), *gpt2.shape, dtype=torch.bool)
    for i, (layer, head) in enumerate(every):
        mask[4 * i : 4 * i + 4, layer, head] = True
    with gpt2.patched(mask, {"input_ids": OTHER}, tokens="last", rows=rows.tolist()):
        together = logits(gpt2, input_ids=CLEAN[rows]).view(len(every), 4, 6, -1)
    for i, head in enumerate(every):
        with gpt2.patched(HeadSet([head]), {"input_ids": OTHER}, tokens="last"):
            torch.testing.assert_close(together[i], logits(gpt2, input_ids=CLEAN), rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_changes_nothing(side: str) -> None:
    heads = found("llama")
    lengths, theirs = [6, 4, 5, 3], [3, 5, 4, 6]

    def padded(tokens: Tensor, real: list[int], side: str) -> dict[str, Tensor]:
        ids, mask = torch.zeros(4, 6, dtype=torch.long), torch.zeros(4, 6, dtype=torch.long)
        for row, n in enumerate(real):
            columns = slice(6 - n, 6) if side == "left" else slice(0, n)
            ids[row, columns], mask[row, columns] = tokens[row, :n], 1
        return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}

    tokens = [(1, -1), (-1, 0), (0, -2)]
    with heads.patched(SETS, padded(OTHER, theirs, "right" if side == "left" else "left"), tokens=tokens):
        inputs = padded(CLEAN, lengths, side)
        together = logits(heads, **inputs)
    for row in range(4):
        n, m = lengths[row], theirs[row]
        pairs = [(there % m, here % n) for there, here in tokens]
        expected = by_hand(
            heads, {"input_ids": CLEAN[[row], :n]}, {"input_ids": OTHER[[row], :m]}, SETS[row], pairs
        )
        torch.testing.assert_close(
            together[row][inputs["attention_mask"][row].bool()], expected[0], rtol=0, atol=1e-9
        )


def test_a_recording_is_a_source(gpt2: Heads) -> None:
    with torch.no_grad(), gpt2.recorded("all") as tape:
        for row in OTHER:
            gpt2.model(row[None])
    with gpt2.patched(SETS, tape), gpt2.silenced(HeadSet([(0, 2)])):
        ours = logits(gpt2, input_ids=CLEAN)
    with gpt2.patched(SETS, {"input_ids": OTHER}), gpt2.silenced(HeadSet([(0, 2)])):
        torch.testing.assert_close(ours, logits(gpt2, input_ids=CLEAN), rtol=0, atol=1e-12)
    with gpt2.patched(SETS[0], tape, rows=[3, 3]):
        ours = logits(gpt2, input_ids=CLEAN[:2])
    with gpt2.patched(SETS[0], {"input_ids": OTHER[3:]}):  # one row for all
        torch.testing.assert_close(ours, logits(gpt2, input_ids=CLEAN[:2]), rtol=0, atol=1e-12)


def test_gradients_reach_the_source_of_a_patch(gpt2: Heads) -> None:
    with gpt2.recorded("all", detach=False) as tape:
        gpt2.model(OTHER)
    with gpt2.patched(SETS, tape):
        loss = gpt2.model(CLEAN).logits.pow(2).sum()
    assert torch.autograd.grad(loss, tape.layer(0))[0].abs().sum() > 0


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
def test_generation_under_a_patch_with_left_padding(family: str, cached: bool) -> None:
    # Gemma 2 in float64 makes NaN of left padding
    heads = Heads(gemma2()) if family == "gemma2" else found(family)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1], [1] * 6])
    source = {"input_ids": OTHER, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    options = {
        "max_new_tokens": 4,
        "min_new_tokens": 4,
        "do_sample": False,
        "use_cache": cached,
        "pad_token_id": 0,
    }
    with heads.patched(SETS, source):
        together = heads.model.generate(
            CLEAN, attention_mask=mask, output_logits=True, return_dict_in_generate=True, **options
        )
    for row in range(4):
        real = mask[row].bool()
        ids = CLEAN[row][real][None]
        for step in range(4):  # a plain pass over what there is, the prompt patched by hand
            pairs = [(t, t) for t in range(int(real.sum()))]
            out = by_hand(heads, {"input_ids": ids}, {"input_ids": OTHER[row][real][None]}, SETS[row], pairs)
            torch.testing.assert_close(
                together.logits[step][row].double(), out[0, -1].double(), rtol=0, atol=1e-5
            )
            ids = torch.cat((ids, together.sequences[row, 6 + step].view(1, 1)), 1)


def test_a_generated_position_can_be_patched(gpt2: Heads) -> None:
    long = torch.cat((OTHER, OTHER[:, :3]), 1)
    with gpt2.patched(SETS, {"input_ids": long}, tokens=[7]):
        out = gpt2.model.generate(
            CLEAN,
            max_new_tokens=4,
            min_new_tokens=4,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    for row in range(4):
        ids = out.sequences[[row], :8]
        expected = by_hand(gpt2, {"input_ids": ids}, {"input_ids": long[[row]]}, SETS[row], [(7, 7)])
        torch.testing.assert_close(out.logits[2][row].double(), expected[0, -1], rtol=0, atol=1e-5)


def test_what_does_not_fit_says_so(gpt2: Heads) -> None:
    source = {"input_ids": OTHER}
    head_set = SETS[0]
    cases: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("patches for 3 rows met a pass of 4", SETS[:3], source, {}),
        ("a source of 2 rows met a pass of 4", head_set, {"input_ids": OTHER[:2]}, {}),
        ("row 0 has 6 tokens, its source 5", head_set, {"input_ids": OTHER[:, :5]}, {}),
        ("position 6 is not in row 0 of the source, which has 6 tokens", head_set, source, {"tokens": [6]}),
        ("position -7 is not in row 0 of the input", head_set, source, {"tokens": [(0, -7)]}),
        ("position 9 of row 0 was never reached", head_set, source, {"tokens": [(0, 9)]}),
        (
            "positions for 2 rows met a pass of 4",
            head_set,
            source,
            {"tokens": torch.zeros(2, 1, dtype=torch.long)},
        ),
        ("names no head", HeadSet(), source, {}),
        ("boolean", torch.ones(4, 2, 4), source, {}),
        (r"head \(5, 0\) is not in this", HeadSet([(5, 0)]), source, {}),
        ("tokens are", head_set, source, {"tokens": "first"}),
        ("tokens are positions", head_set, source, {"tokens": [0.5]}),
        ("rows= names a row of the source", head_set, source, {"rows": [0, 1, 2, 4]}),
        ("got Tensor", head_set, OTHER, {}),
    ]
    for message, heads, origin, options in cases:
        with pytest.raises(HeadwiseError, match=message), gpt2.patched(heads, origin, **options):
            logits(gpt2, input_ids=CLEAN)
    with gpt2.recorded("last") as tape:
        gpt2.model(OTHER)
    with pytest.raises(HeadwiseError, match='pooling="all"'), gpt2.patched(head_set, tape):
        logits(gpt2, input_ids=CLEAN)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in gpt2.model.modules())
