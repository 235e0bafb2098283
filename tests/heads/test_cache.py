"""Interventions on texts that come in pieces: through caches of every kind, and through every way in which
`generate()` reads its prompt."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import test_patching
import test_steering
import torch
import transformers as t
from small_models import FFN, TOKENS, build
from test_steering import DIRECTIONS
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

G = torch.Generator().manual_seed(2)
IDS, OTHERS = torch.randint(5, 50, (3, 9), generator=G), torch.randint(5, 50, (4, 6), generator=G)
IDS[1, 5:] = IDS[1, :4]  # repeats itself, so that prompt lookup finds something
MASK = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9, [0, 1, 1, 1, 1, 1, 1, 1, 1]])
PLACES = (MASK.cumsum(1) - 1).clamp(min=0)
PROMPT = 6  # columns of IDS that are the prompt; the others were "generated"
CHOSEN = HeadSet([(0, 1), (1, 3)])
NEW: dict[str, Any] = {
    "max_new_tokens": 5,
    "min_new_tokens": 5,
    "do_sample": False,
    "pad_token_id": 0,
    "output_logits": True,
    "return_dict_in_generate": True,
}


def made(family: str) -> Any:
    return test_patching.gemma2() if family == "gemma2" else build(family)


@pytest.fixture(scope="module")
def llama() -> Heads:
    return Heads(build("llama"))


def in_pieces(model: Any, sizes: list[int], cache: Any) -> Tensor:
    """Logits of the real tokens, read in passes of these sizes."""
    logits, start = [], 0
    with torch.no_grad():
        for size in sizes:
            end = start + size
            out = model(
                IDS[:, start:end],
                attention_mask=MASK[:, :end],
                position_ids=PLACES[:, start:end],
                past_key_values=cache,
                use_cache=True,
            )
            logits.append(out.logits)
            start, cache = end, out.past_key_values
    return torch.cat(logits, 1)[MASK.bool()]


def interventions(heads: Heads) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    prompt_columns = slice(0, PROMPT)
    source = {
        "input_ids": IDS.flip(0)[:, prompt_columns],
        "attention_mask": MASK[:, prompt_columns],
        "position_ids": PLACES[:, prompt_columns],
    }
    return {
        "gates": lambda: heads.gated(torch.linspace(0, 1, heads.total).view(heads.shape)),
        "gates by row": lambda: heads.gated(torch.linspace(0, 1, 3 * heads.total).view(3, *heads.shape)),
        "zero": lambda: heads.silenced(CHOSEN),
        "mean": lambda: heads.silenced(CHOSEN, "mean", {"input_ids": OTHERS}),
        "resample": lambda: heads.silenced(CHOSEN, "resample", {"input_ids": OTHERS}, seed=3),
        "patch": lambda: heads.patched(CHOSEN, source, prompt=PROMPT),
        "patch of the last": lambda: heads.patched(CHOSEN, source, "last", prompt=PROMPT),
        "patch of some": lambda: heads.patched(CHOSEN, source, [(1, 0), (0, 5)]),
        "steering": lambda: heads.steered(DIRECTIONS, 2.0),
        "steering of the last": lambda: heads.steered(DIRECTIONS, 2.0, "last", prompt=PROMPT),
        "steering of generated": lambda: heads.steered(DIRECTIONS, 2.0, "generated", prompt=PROMPT),
    }


CACHES: dict[str, Callable[[Any], Any]] = {
    "made by the model": lambda config: None,
    "dynamic": lambda config: t.DynamicCache(config=config),
    "static": lambda config: t.StaticCache(config=config, max_cache_len=12),
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(
    "family", ["gpt2", "llama", "gemma2"]
)  # Gemma 2: one layer in two keeps a window of four tokens
def test_pieces_are_as_near_to_one_pass_as_without_the_intervention(family: str, cache: str) -> None:
    heads = Heads(made(family))
    model: Any = heads.model
    chunkings = [[4, 5], [6, 3], [2, 1, 4, 1, 1], [1] * 9]

    def apart(block: Callable[[], AbstractContextManager[Any]]) -> tuple[Tensor, float]:
        """Logits of one pass, and how far those of several passes are from them at most."""
        with block():
            at_once = in_pieces(model, [9], None)
        distances = []
        for sizes in chunkings:
            with block():
                distances.append(
                    float((in_pieces(model, sizes, CACHES[cache](model.config)) - at_once).abs().max())
                )
        return at_once, max(distances)

    plain, without = apart(nullcontext)
    for name, block in interventions(heads).items():
        at_once, distance = apart(block)
        assert distance <= 2 * without, name
        assert (at_once - plain).abs().max() > 1e-3, name


def steered_by_hand(heads: Heads, ids: Tensor, prompt: int, tokens: str) -> Tensor:
    """Logits of one text without padding, whose first `prompt` tokens are the prompt."""
    first = {"last": prompt - 1, "generated": prompt}[tokens]
    return test_steering.by_hand(heads, ids[None], list(range(first, len(ids))))[0]


def check_steps(out: Any, row: int, expected: Tensor, start: int) -> None:
    """Logits of each step of `generate()` against those of one pass over all it wrote; the prompt has `start`
    tokens."""
    for step, logits in enumerate(out.logits):
        torch.testing.assert_close(
            logits[row].to(expected.dtype), expected[start - 1 + step], rtol=1e-4, atol=3e-5
        )


def draft() -> Any:
    torch.manual_seed(1)
    return t.LlamaForCausalLM(t.LlamaConfig(**FFN, num_key_value_heads=2, **TOKENS)).eval()


def filled(model: Any, columns: int, rows: slice, mask: Tensor = MASK) -> Any:
    """A cache of the first columns, filled outside any block."""
    with torch.no_grad():
        return model(
            IDS[rows, :columns],
            attention_mask=mask[rows, :columns],
            position_ids=PLACES[rows, :columns],
            use_cache=True,
        ).past_key_values


ALL, ONE = slice(0, 3), slice(1, 2)
WAYS: dict[str, tuple[slice, Callable[[Any], dict[str, Any]]]] = {
    "plain": (ALL, lambda model: {}),
    "no cache": (ALL, lambda model: {"use_cache": False}),
    "pieces of the prompt": (ALL, lambda model: {"prefill_chunk_size": 2}),
    "a cached beginning": (ALL, lambda model: {"past_key_values": filled(model, 3, ALL)}),
    "a static cache": (ALL, lambda model: {"cache_implementation": "static", "disable_compile": True}),
    "a draft model": (ONE, lambda model: {"assistant_model": draft()}),
    "a draft of its own lower layers": (ONE, lambda model: {"assistant_early_exit": 1}),
    "lookup in the prompt": (ONE, lambda model: {"prompt_lookup_num_tokens": 3}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tokens", ["last", "generated"])
def test_steering_finds_the_end_of_the_prompt(llama: Heads, tokens: str, way: str) -> None:
    rows, options = WAYS[way]
    model: Any = llama.model
    settings = options(model)
    with llama.steered(DIRECTIONS, 2.0, tokens):
        out = model.generate(IDS[rows], attention_mask=MASK[rows], **NEW, **settings)
    for row in range(len(out.sequences)):
        text = out.sequences[row][int((MASK[rows][row] == 0).sum()) :]
        length = int(MASK[rows][row].sum())
        check_steps(out, row, steered_by_hand(llama, text, length, tokens), length)
    assert "generate" not in vars(model)


def test_only_what_follows_a_cached_beginning_can_be_passed(llama: Heads) -> None:
    model: Any = llama.model
    for tokens in ("last", "generated"):
        cache = filled(model, 4, ALL)
        with llama.steered(DIRECTIONS, 2.0, tokens):
            out = model.generate(
                IDS[:, 4:], attention_mask=MASK, position_ids=PLACES[:, 4:], past_key_values=cache, **NEW
            )
        for row in range(3):
            length = int(MASK[row].sum())
            text = torch.cat((IDS[row][MASK[row].bool()], out.sequences[row, 5:]))
            check_steps(out, row, steered_by_hand(llama, text, length, tokens), length)


@pytest.mark.parametrize("way", WAYS)
def test_a_patch_of_the_last_token_finds_it(way: str) -> None:
    heads = Heads(build("llama"))
    rows, options = WAYS[way]
    model: Any = heads.model
    source, settings = {"input_ids": OTHERS[:1]}, options(model)
    with heads.patched(CHOSEN, source, "last"):
        out = model.generate(IDS[rows], attention_mask=MASK[rows], **NEW, **settings)
    for row in range(len(out.sequences)):
        text = out.sequences[row][int((MASK[rows][row] == 0).sum()) :]
        length = int(MASK[rows][row].sum())
        expected = test_patching.by_hand(heads, {"input_ids": text[None]}, source, CHOSEN, [(5, length - 1)])[
            0
        ]
        check_steps(out, row, expected, length)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "a cached beginning"])
def test_a_prompt_keeps_its_drawn_example_for_all_passes(llama: Heads, way: str) -> None:
    rows, options = WAYS[way]
    model: Any = llama.model
    reference = {"input_ids": OTHERS}
    with llama.silenced(CHOSEN, "resample", reference, seed=5):
        out = model.generate(IDS[rows], attention_mask=MASK[rows], **NEW, **options(model))
        again = model.generate(IDS[rows], attention_mask=MASK[rows], **NEW, **options(model))
    mask = torch.cat((MASK[rows], torch.ones(len(out.sequences), 5, dtype=torch.long)), 1)
    with torch.no_grad(), llama.silenced(CHOSEN, "resample", reference, seed=5):
        for output in (out, again):  # draws follow the order of prompts, not the number of passes
            at_once = model(
                output.sequences, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)
            ).logits
            for row in range(len(out.sequences)):
                check_steps(output, row, at_once[row], IDS.shape[1])


def test_beams_of_a_prompt_share_its_example(llama: Heads) -> None:
    with llama.silenced(CHOSEN, "resample", {"input_ids": OTHERS}, seed=5), llama.recorded("all") as tape:
        llama.model.generate(
            IDS, attention_mask=MASK, num_beams=3, max_new_tokens=4, min_new_tokens=4, pad_token_id=0
        )
    with torch.no_grad(), llama.recorded("all") as bank:
        llama.model(OTHERS)
    drawn = torch.randint(4, (3,), generator=torch.Generator().manual_seed(5))
    assert len({int(example) for example in drawn}) > 1
    for number, (outputs, _) in enumerate(tape.passes(1)):
        last = (MASK.sum(1) - 1 + number) % 6  # examples have six tokens, and start over
        expected = bank.layer(1)[drawn, last, 3].repeat_interleave(3, 0)  # (prompts × beams, head_dim)
        torch.testing.assert_close(outputs[:, -1, 3], expected)


def test_a_copy_of_a_cache_goes_on_with_its_examples(llama: Heads) -> None:
    model: Any = llama.model
    with torch.no_grad(), llama.silenced(CHOSEN, "resample", {"input_ids": OTHERS}, seed=5):
        at_once = model(IDS).logits
    with torch.no_grad(), llama.silenced(CHOSEN, "resample", {"input_ids": OTHERS}, seed=5):
        first = model(IDS[:, :4], use_cache=True).past_key_values
        model(OTHERS, use_cache=True)  # other texts in between draw for themselves
        copied = copy.deepcopy(first)
        for cache in (first, copied):
            continued = model(IDS[:, 4:], past_key_values=cache).logits
            torch.testing.assert_close(continued, at_once[:, 4:], rtol=1e-4, atol=2e-5)


def test_outside_generate_the_prompt_is_said_or_refused(llama: Heads) -> None:
    model: Any = llama.model
    source = {"input_ids": OTHERS[:1]}
    blocks: list[Callable[..., AbstractContextManager[Any]]] = [
        lambda **prompt: llama.steered(DIRECTIONS, 2.0, "last", **prompt),
        lambda **prompt: llama.steered(DIRECTIONS, 2.0, "generated", **prompt),
        lambda **prompt: llama.patched(CHOSEN, source, "last", **prompt),
        lambda **prompt: llama.patched(CHOSEN, source, [(0, -2)], **prompt),
        lambda **prompt: llama.recorded("last", attention="generated", **prompt),
        lambda **prompt: llama.recorded("last", attention=[-1], **prompt),
    ]
    for block in blocks:
        with (
            pytest.raises(
                HeadwiseError, match=r"continues from a cache of 4 tokens outside generate\(\).*prompt="
            ),
            block(),
        ):
            in_pieces(model, [4, 5], None)
        with block(prompt=5):
            in_pieces(model, [4, 5], None)
    for wrong in (0, -1, 2.5, True, "5"):
        with (
            pytest.raises(HeadwiseError, match="prompt is the number of tokens"),
            llama.steered(DIRECTIONS, prompt=wrong),
        ):  # type: ignore[arg-type]
            pass
    with (
        pytest.raises(HeadwiseError, match="prompt= says where the prompt ends"),
        llama.steered(DIRECTIONS, 1.0, "generated"),
    ):
        in_pieces(model, [9], None)


def test_a_longer_text_is_not_the_continuation_of_the_one_before(llama: Heads) -> None:
    with torch.no_grad(), llama.steered(DIRECTIONS, 2.0, "last"):
        llama.model(IDS[:1, :4])
        ours = llama.model(IDS[:1, :7]).logits[0]
    torch.testing.assert_close(ours, test_steering.by_hand(llama, IDS[:1, :7], [6])[0], rtol=1e-4, atol=2e-5)


def test_padding_behind_a_prompt_in_pieces_is_refused(llama: Heads) -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    with (
        pytest.raises(HeadwiseError, match=r"row 0 .* padding after its text"),
        llama.steered(DIRECTIONS, 1.0, "last", prompt=6),
    ):
        llama.model(
            IDS[:2, 2:6],
            attention_mask=mask,
            past_key_values=llama.model(
                IDS[:2, :2], attention_mask=mask[:, :2], use_cache=True
            ).past_key_values,
        )


class OwnGenerate(t.LlamaForCausalLM):
    """Makes its prompts itself, as Whisper does."""

    def generate(self, text: Tensor, **options: Any) -> Any:
        """Generates after a start token."""
        return super().generate(torch.cat((torch.full((len(text), 1), 7), text), 1), **options)


def test_a_generate_that_makes_its_own_prompts() -> None:
    torch.manual_seed(0)
    heads = Heads(OwnGenerate(t.LlamaConfig(**FFN, **TOKENS)).eval())
    for cached in (True, False):
        with heads.steered(DIRECTIONS, 2.0, "generated"):
            out = heads.model.generate(IDS[:1], use_cache=cached, **NEW)
        check_steps(out, 0, steered_by_hand(heads, out.sequences[0], 10, "generated"), 10)
    for options in ({"prefill_chunk_size": 3}, {"prompt_lookup_num_tokens": 2}):
        with pytest.raises(HeadwiseError, match=rf"generate\(\) of its own, and with {next(iter(options))}="):  # noqa: SIM117
            with heads.steered(DIRECTIONS, 2.0, "generated"):
                heads.model.generate(IDS[:1], **options, **NEW)


def test_what_hides_the_prompt_is_refused(llama: Heads) -> None:
    with (
        pytest.raises(HeadwiseError, match="guidance_scale= also runs the model"),
        llama.steered(DIRECTIONS, 2.0, "generated"),
    ):
        llama.model.generate(IDS, guidance_scale=1.5, **NEW)
    with (
        pytest.raises(HeadwiseError, match="cu_seq_lens_q= does not say where"),
        llama.steered(DIRECTIONS, 2.0, "last"),
    ):
        llama.model(IDS, cu_seq_lens_q=torch.tensor([0, 3, 9]))
    with (
        pytest.raises(HeadwiseError, match="type tuple does not say how many tokens"),
        llama.steered(DIRECTIONS, 2.0, "last"),
    ):
        llama.model(IDS, past_key_values=())


def test_decoders_with_a_text_of_their_own() -> None:
    heads = Heads(test_steering.made("bart-lm"))
    decoder = {key: vector for key, vector in DIRECTIONS.items() if key[0] == 1}
    lookup = {"prompt_lookup_num_tokens": 2}
    start = heads.model.config.decoder_start_token_id
    for text, columns in (
        (None, 1),
        (IDS[:1, :3], 4),
        (torch.cat((torch.tensor([[start]]), IDS[:1, :3]), 1), 4),
    ):
        for options in ({}, lookup):
            with heads.steered(decoder, 2.0, "generated"), heads.recorded("all"):
                out = heads.model.generate(IDS[1:2], decoder_input_ids=text, num_beams=1, **options, **NEW)
            with torch.no_grad(), heads.steered(decoder, 2.0, "generated", prompt=columns):
                at_once = heads.model(IDS[1:2], decoder_input_ids=out.sequences).logits[0]
            check_steps(out, 0, at_once, columns)


def test_generate_is_the_models_own_again_and_copies_have_it() -> None:
    model: Any = build("llama")
    heads = Heads(model)
    generate = model.generate
    with heads.steered(DIRECTIONS):
        watched = model.generate
        with heads.silenced(CHOSEN, "resample", {"input_ids": OTHERS}):
            assert model.generate is watched
            twin = copy.deepcopy(model)
            model(IDS)
        assert model.generate is watched
    assert model.generate == generate
    assert "generate" not in vars(model)
    assert "generate" not in vars(twin)
    model.generate = lambda *args, **kwargs: "mine"
    with heads.steered(DIRECTIONS, tokens="all"):
        assert model.generate(IDS) == "mine"
        model(IDS)
    assert model.generate(IDS) == "mine"
