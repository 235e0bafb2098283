"""Recording, against values taken by hand from every token, under padding on either side."""

import pytest
import torch
from small_models import build
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

from headwise.errors import HeadwiseError
from headwise.heads import Heads

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]])


@pytest.fixture(scope="module")
def bert() -> Heads:
    return Heads(build("bert").eval())


def inputs_by_hand(heads: Heads) -> Tensor:
    """The input of every projection, split into heads: (batch, tokens, layers, heads, head_dim)."""
    seen: list[Tensor] = []
    handles = [
        heads.model.get_submodule(s.path).register_forward_pre_hook(lambda m, args: seen.append(args[0]))
        for s in heads.sites
    ]
    with torch.no_grad():
        heads.model(TOKENS, attention_mask=MASK)
    for handle in handles:
        handle.remove()
    return torch.stack([x.view(3, 6, 4, 8) for x in seen], 2)


@pytest.mark.parametrize("pooling", ["cls", "last", "mean", "all"])
def test_positions(bert: Heads, pooling: str) -> None:
    every = inputs_by_hand(bert)
    with torch.no_grad(), bert.recorded(pooling) as tape:
        bert.model(TOKENS, attention_mask=MASK)
    rows = []
    for row in range(3):
        real = [t for t in range(6) if MASK[row, t]]
        rows.append(
            {
                "cls": every[row, real[0]],
                "last": every[row, real[-1]],
                "mean": every[row, real].mean(0),
                "all": every[row],
            }[pooling]
        )
    torch.testing.assert_close(tape.outputs, torch.stack(rows))


@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
def test_results_do_not_depend_on_padding_or_batch(bert: Heads, pooling: str) -> None:
    short = TOKENS[:, :4]
    right = torch.cat((short, torch.zeros(3, 2, dtype=torch.long)), 1)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]] * 3)
    with torch.no_grad(), bert.recorded(pooling, hidden=True) as alone:
        for row in short:
            bert.model(row[None])
    with torch.no_grad(), bert.recorded(pooling, hidden=True) as padded:
        bert.model(right, attention_mask=mask)
    torch.testing.assert_close(alone.outputs, padded.outputs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone.hidden, padded.hidden, rtol=1e-4, atol=1e-5)


def test_hidden_states_are_those_of_transformers() -> None:
    model = BertModel(
        BertConfig(
            hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=24, vocab_size=50
        )
    ).eval()
    heads = Heads(model)
    with torch.no_grad(), heads.recorded("last", hidden=True) as tape:
        out = model(TOKENS, attention_mask=MASK, output_hidden_states=True)
    last = [5, 3, 5]
    expected = torch.stack(
        [torch.stack([h[row, last[row]] for h in out.hidden_states[1:]]) for row in range(3)]
    )
    assert torch.equal(tape.hidden, expected)


def test_attention_maps_are_those_of_transformers_and_eager_is_left_again(bert: Heads) -> None:
    with torch.no_grad():
        plain = bert.model(TOKENS, attention_mask=MASK).logits
        with bert.recorded("cls", attention=True) as tape:
            bert.model(TOKENS, attention_mask=MASK)
        assert bert.model.config._attn_implementation == "sdpa"
        assert torch.equal(bert.model(TOKENS, attention_mask=MASK).logits, plain)
        bert.model.set_attn_implementation("eager")
        expected = bert.model(TOKENS, attention_mask=MASK, output_attentions=True).attentions
        bert.model.set_attn_implementation("sdpa")
    for ours, theirs in zip(tape.attention, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["llama", "t5", "albert", "bloom", "falcon-gqa"])
def test_attention_maps_of_other_layouts_sum_to_one(kind: str) -> None:
    heads = Heads(build(kind).eval())
    with torch.no_grad(), heads.recorded("all", attention=True) as tape:
        heads.model(**heads.example)
    for site, maps in zip(heads.sites, tape.attention, strict=True):
        assert maps.shape[:2] == (2, site.n_heads)
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:3]))


def test_shared_layers_are_told_apart() -> None:
    heads = Heads(build("albert").eval())
    with torch.no_grad(), heads.recorded("cls", hidden=True) as tape:
        out = heads.model(TOKENS, output_hidden_states=True)
    assert tape.outputs.shape == (3, 3, 4, 8)
    for layer in range(3):
        assert torch.equal(tape.hidden[:, layer], out.hidden_states[layer + 1][:, 0])


def test_gradients_flow_only_when_asked(bert: Heads) -> None:
    with bert.recorded("cls") as cut:
        bert.model(TOKENS)
    assert not cut.outputs.requires_grad
    with bert.recorded("cls", detach=False) as attached:
        loss = bert.model(TOKENS).logits.sum()
    # The pooled copy lies beside the path
    assert torch.autograd.grad(loss, attached.layer(0), allow_unused=True)[0] is None
    assert attached.outputs.requires_grad


def test_an_encoder_decoder_in_generation() -> None:
    config = BartConfig(
        d_model=32,
        vocab_size=50,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        pad_token_id=0,
        forced_eos_token_id=None,
    )
    heads = Heads(BartForConditionalGeneration(config).eval())
    assert [site.kind for site in heads.sites] == ["self", "decoder", "cross"]
    with heads.recorded("last") as tape:
        heads.model.generate(TOKENS, attention_mask=MASK, max_new_tokens=3, min_new_tokens=3)
    # One pass of the encoder, three of the decoder
    assert [tape.layer(i).shape[0] for i in range(3)] == [
        3,
        9,
        9,
    ]
    with torch.no_grad(), heads.recorded("last") as direct:
        heads.model.get_encoder()(TOKENS, attention_mask=MASK)
    assert torch.equal(direct.layer(0), tape.layer(0))
    with pytest.raises(HeadwiseError, match="no head outputs of layer 1"):
        direct.layer(1)


def test_other_arguments_do_not_confuse_the_batch(bert: Heads) -> None:
    with torch.no_grad(), bert.recorded("last") as plain:
        bert.model(TOKENS)
    with torch.no_grad(), bert.recorded("last") as tape:
        bert.model(position_ids=torch.arange(6)[None], input_ids=TOKENS)
    assert torch.equal(tape.outputs, plain.outputs)
    with torch.no_grad(), bert.recorded("last") as tape:  # the body of the task model on its own
        bert.model.bert(inputs_embeds=bert.model.get_input_embeddings()(TOKENS), attention_mask=MASK)
    with torch.no_grad(), bert.recorded("last") as plain:
        bert.model(TOKENS, attention_mask=MASK)
    assert torch.equal(tape.outputs, plain.outputs)


def test_what_cannot_be_recorded_says_so(bert: Heads) -> None:
    full_mask = MASK[:, None, None].expand(-1, -1, 6, -1).bool()  # (batch, 1, queries, keys)
    with (
        pytest.raises(HeadwiseError, match="does not say which tokens are real"),
        bert.recorded("mean"),
        torch.no_grad(),
    ):
        bert.model(TOKENS, attention_mask=full_mask)
    with (
        pytest.raises(HeadwiseError, match="pooling is one of cls, last, mean, all; got 'first'"),
        bert.recorded("first"),
    ):
        pass
    with bert.recorded("cls") as tape:
        bert.model(TOKENS)
        tape.clear()
        bert.model(TOKENS[:1])
    assert tape.outputs.shape[0] == 1
    with pytest.raises(HeadwiseError, match="hidden=True"):
        _ = tape.hidden
    with pytest.raises(HeadwiseError, match="attention=True"):
        _ = tape.attention
