"""What is read from a pass is read from the present one: its mask, its rows, its tokens; where nothing says
them, that is said."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import transformers as t
from small_models import build
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
LENGTHS = MASK.sum(1).tolist()
POOLINGS = ["cls", "last", "mean"]


def by_hand(outputs: Tensor, pooling: str, before: int = 0) -> Tensor:
    """Rows (batch, tokens, ...) pooled over their real tokens, which come after `before` others."""
    real = [row[before : before + length] for row, length in zip(outputs, LENGTHS, strict=True)]
    return torch.stack([{"cls": row[0], "last": row[-1], "mean": row.mean(0)}[pooling] for row in real])


def without_dropout(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@pytest.mark.parametrize("way", ["forward", "part"])
@torch.no_grad()
def test_a_pass_that_comes_in_past_the_model_is_not_pooled(way: str) -> None:
    model: Any = build("bert").bert
    heads = Heads(model)

    def run(_: Any = None) -> None:
        if way == "forward":
            model.forward(TOKENS, attention_mask=MASK)
        else:  # after a pass with another mask
            model.encoder(model.embeddings(TOKENS))

    blocks: list[Callable[[], Any]] = [
        *(lambda pooling=pooling: heads.recorded(pooling) for pooling in POOLINGS),
        lambda: heads.recorded("all", attention=[0]),
        lambda: heads.gated(torch.rand(3, *heads.shape)),
        lambda: heads.steered({(0, 0): torch.ones(8)}, tokens="last"),
        lambda: heads.patched(HeadSet([(0, 0)]), {"input_ids": TOKENS}, tokens=[0]),
        lambda: heads.silenced(HeadSet([(0, 0)]), how="resample", reference={"input_ids": TOKENS}),
    ]
    for block in blocks:
        with (
            pytest.raises(
                HeadwiseError, match=r"was reached past BertModel\(...\).*call the BertModel itself"
            ),
            block(),
        ):
            run(model(TOKENS, attention_mask=MASK))
    with heads.recorded("all") as tape:  # these need no more than the numbers
        model(TOKENS[:2])
        tape.clear()
        run()
    assert tape.outputs.shape[:2] == (3, 6)
    with heads.silenced(HeadSet([(0, 0)])):
        run()


@torch.no_grad()
def test_a_part_that_runs_after_a_pass_has_none_of_its_masks() -> None:
    model: Any = build("bert").bert
    heads = Heads(model)
    with heads.recorded("all") as tape:
        model(TOKENS[:2], attention_mask=MASK[:2])
        tape.clear()
        model.encoder(model.embeddings(TOKENS[:, :5]))
    assert tape.outputs.shape[:2] == (3, 5)
    assert not tape.outputs.isnan().any()


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_positional_arguments_of_a_wrapper_that_hands_them_on(pooling: str) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(build("bert").bert, peft.LoraConfig(target_modules=["query"]))
    heads = Heads(model)
    with heads.recorded("all") as full, heads.recorded(pooling) as tape:
        model(TOKENS, MASK)
    torch.testing.assert_close(tape.outputs, by_hand(full.outputs, pooling))


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_virtual_tokens_are_no_part_of_a_text(pooling: str, padded: bool) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        build("bert"), peft.PromptTuningConfig(num_virtual_tokens=2, task_type="SEQ_CLS")
    ).eval()
    heads = Heads(model)
    mask = MASK if padded else None
    with heads.recorded("all") as full, heads.recorded(pooling) as tape:
        model(input_ids=TOKENS, attention_mask=mask)
    assert full.outputs.shape[1] == 8
    expected = by_hand(full.outputs, pooling, before=2) if padded else None
    if expected is None:
        text = full.outputs[:, 2:]
        expected = {"cls": text[:, 0], "last": text[:, -1], "mean": text.mean(1)}[pooling]
    torch.testing.assert_close(tape.outputs, expected)


def test_a_soft_prompt_in_generation_is_refused_where_it_matters() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        build("llama"), peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    ).eval()
    heads = Heads(model)
    prompt = {
        "input_ids": TOKENS,
        "attention_mask": torch.ones_like(TOKENS),
        "max_new_tokens": 2,
        "do_sample": False,
    }
    with pytest.raises(HeadwiseError, match="has a soft prompt"), heads.recorded("mean"):
        model.generate(**prompt)
    with heads.recorded("all"), heads.steered({(0, 0): torch.ones(8)}):
        model.generate(**prompt)
    for disabled in (True, False):
        way = model.disable_adapter() if disabled else nullcontext()
        with torch.no_grad(), way, heads.recorded("mean") as tape, heads.recorded("all") as full:
            model(input_ids=TOKENS, attention_mask=MASK)
        torch.testing.assert_close(tape.outputs, by_hand(full.outputs, "mean", before=0 if disabled else 2))


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_the_mask_of_a_static_cache_may_go_on(pooling: str) -> None:
    heads = Heads(build("llama"))
    model: Any = heads.model
    cache = t.StaticCache(config=model.config, max_cache_len=12)
    mask = torch.zeros(3, 12, dtype=torch.long)
    mask[:, :6] = MASK
    with heads.recorded("all") as full, heads.recorded(pooling) as tape:
        model(TOKENS, past_key_values=cache, attention_mask=mask)
    torch.testing.assert_close(tape.outputs, by_hand(full.outputs, pooling))


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_a_decoder_that_reads_the_encoders_text_has_its_mask(pooling: str) -> None:
    """BART given no text for its decoder shifts that of the encoder."""
    heads = Heads(build("bart"))
    with heads.recorded("all") as full, heads.recorded(pooling) as tape:
        heads.model(input_ids=TOKENS, attention_mask=MASK)
    for site in heads.sites:
        torch.testing.assert_close(tape.layer(site.index), by_hand(full.layer(site.index), pooling))


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_a_row_without_a_real_token_is_nan(pooling: str) -> None:
    heads = Heads(build("bert"))
    mask = MASK.clone()
    mask[1] = 0
    with heads.recorded("all") as full, heads.recorded(pooling) as tape:
        heads.model(TOKENS, attention_mask=mask)
    assert tape.outputs[1].isnan().all()
    torch.testing.assert_close(tape.outputs[[0, 2]], by_hand(full.outputs, pooling)[[0, 2]])


@torch.no_grad()
def test_rows_of_a_failed_pass_do_not_stand_among_others() -> None:
    heads = Heads(build("bert"))
    model: Any = heads.model

    def fail(where: Any) -> None:
        handle = where.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(TOKENS)
        handle.remove()

    for where in (model.bert.encoder.layer[1], model.classifier):  # half-way, and behind all heads
        with heads.recorded("cls") as tape:
            fail(where)
            assert tape.layer(0).shape[0] == 3  # a pass that is left early on purpose can be read
            model(TOKENS[:2])
            for read in (lambda: tape.outputs, lambda: tape.layer(0)):
                with pytest.raises(HeadwiseError, match=r"failed.*tape.clear\(\)"):
                    read()
            tape.clear()
            model(TOKENS[:2])
        assert tape.outputs.shape[0] == 2


def test_rows_of_dropped_layers_are_not_taken_for_those_of_other_passes() -> None:
    sizes = {
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    }
    config = t.BartConfig(
        d_model=32, vocab_size=50, **sizes, encoder_ffn_dim=24, decoder_ffn_dim=24, encoder_layerdrop=0.5
    )
    torch.manual_seed(1)
    model = t.BartModel(config).train()
    heads = Heads(model)
    with torch.no_grad(), heads.recorded("cls") as tape:
        for _ in range(6):
            model(TOKENS)
    rows = [tape.layer(site.index).shape[0] for site in heads.sites]
    assert min(rows) < max(rows) == 18
    with pytest.raises(HeadwiseError, match="was not in the same passes as the layers beside it"):
        _ = tape.outputs


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_go_by_the_tokens_of_their_own_pass(reentrant: bool) -> None:
    model = without_dropout(build("llama").train())
    model.enable_input_require_grads()
    heads = Heads(model)

    def loss(mask: Tensor) -> Tensor:
        result: Tensor = model(input_ids=TOKENS, attention_mask=mask, use_cache=False).logits.pow(2).sum()
        return result

    def gradients(together: bool) -> list[Tensor]:
        model.zero_grad()
        with heads.steered({(0, 1): torch.arange(8.0)}, tokens="last"):
            if together:
                (loss(MASK) + loss(torch.ones_like(MASK))).backward()
            else:
                loss(MASK).backward()
                loss(torch.ones_like(MASK)).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients(together=True)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    for ours, right in zip(gradients(together=False), expected, strict=True):
        torch.testing.assert_close(ours, right)
    with pytest.raises(HeadwiseError, match="another pass has begun since"):
        gradients(together=True)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_are_not_repeated_without_their_block(reentrant: bool) -> None:
    model = without_dropout(build("bert").train())
    model.enable_input_require_grads()
    heads = Heads(model)

    def loss() -> Tensor:
        result: Tensor = model(TOKENS).logits.pow(2).sum()
        return result

    with heads.gated(torch.rand(heads.shape)):
        plain = loss()
    plain.backward()  # nothing is repeated
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    with heads.gated(torch.rand(heads.shape)):
        late = loss()
    with pytest.raises(HeadwiseError, match="run the backward pass inside the block"):
        late.backward()
    with heads.recorded("cls"):
        read = loss()
    read.backward()  # a recording changes nothing
