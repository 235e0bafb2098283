"""Lesions by mean and by another example, against loops over single examples."""

import pytest
import torch
from small_models import build
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

CHOSEN = HeadSet([(0, 1), (1, 0), (1, 3)])
TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]])
OTHERS = torch.randint(5, 50, (4, 5), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=["bert", "gpt2", "llama"])
def heads(request: pytest.FixtureRequest) -> Heads:
    return Heads(build(request.param).eval())


def logits(heads: Heads, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        return heads.model(tokens, attention_mask=mask).logits


def replaced_by_hand(heads: Heads, values: dict[int, Tensor], tokens: Tensor) -> Tensor:
    """Puts values[layer] (tokens, heads, head_dim) in place of the chosen heads of one example, with hooks
    written out."""
    handles = []
    for layer, members in CHOSEN.layers().items():
        site = heads.sites[layer]

        def hook(
            module: object,
            args: tuple[Tensor],
            layer: int = layer,
            members: tuple[int, ...] = members,
            site: object = site,
        ) -> tuple[Tensor]:
            x = args[0].clone()
            for head in members:
                x[0, :, site.columns(head)] = values[layer][:, head]  # type: ignore[attr-defined]
            return (x,)

        handles.append(heads.model.get_submodule(site.path).register_forward_pre_hook(hook))
    out = logits(heads, tokens)
    for handle in handles:
        handle.remove()
    return out


def test_mean_over_real_tokens(heads: Heads) -> None:
    batches = [{"input_ids": TOKENS, "attention_mask": MASK}, {"input_ids": OTHERS}]
    means = heads.mean_outputs(batches)
    total, count = torch.zeros(*heads.shape, 8, dtype=torch.float64), 0
    examples = (
        [TOKENS[row][MASK[row].bool()] for row in range(3)]
        if heads.model.config.model_type == "bert"
        else None
    )
    with torch.no_grad(), heads.recorded("all") as tape:
        heads.model(TOKENS, attention_mask=MASK)
    for row in range(3):
        real = tape.outputs[row][MASK[row].bool()]  # (tokens, layers, heads, head_dim)
        total, count = total + real.double().sum(0), count + real.shape[0]
    with torch.no_grad(), heads.recorded("all") as tape:
        heads.model(OTHERS)
    total, count = total + tape.outputs.double().sum((0, 1)), count + 20
    torch.testing.assert_close(means, total / count)
    assert examples is None or sum(map(len, examples)) + 20 == count

    with heads.silenced(CHOSEN, how="mean", reference=means):
        out = logits(heads, OTHERS[:1])
    values = {layer: means[layer].float().expand(5, -1, -1) for layer in CHOSEN.layers()}
    torch.testing.assert_close(out, replaced_by_hand(heads, values, OTHERS[:1]), rtol=1e-4, atol=1e-5)
    with heads.silenced(CHOSEN, how="mean", reference=batches):
        torch.testing.assert_close(logits(heads, OTHERS[:1]), out)


def test_resampling_takes_another_example_token_by_token(heads: Heads) -> None:
    # One example of three tokens
    with heads.silenced(CHOSEN, how="resample", reference={"input_ids": TOKENS[:1, :3]}):
        out = logits(heads, OTHERS[:1])
    with torch.no_grad(), heads.recorded("all") as tape:
        heads.model(TOKENS[:1, :3])
    # Starting over after three
    values = {layer: tape.outputs[0, [0, 1, 2, 0, 1], layer] for layer in CHOSEN.layers()}
    torch.testing.assert_close(out, replaced_by_hand(heads, values, OTHERS[:1]), rtol=1e-4, atol=1e-5)


def test_resampling_does_not_depend_on_batches_or_padding() -> None:
    heads = Heads(build("bert").eval())
    reference = [{"input_ids": OTHERS}]
    with heads.silenced(CHOSEN, how="resample", reference=reference, seed=3):
        together = logits(heads, TOKENS)
    with heads.silenced(CHOSEN, how="resample", reference=reference, seed=3):
        apart = torch.cat([logits(heads, row[None]) for row in TOKENS])
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)
    with heads.silenced(CHOSEN, how="resample", reference=reference, seed=4):
        assert not torch.allclose(logits(heads, TOKENS), together)
    padded = torch.cat((torch.zeros(3, 2, dtype=torch.long), TOKENS), 1)
    position_ids = torch.arange(6).repeat(3, 1)
    positions = torch.cat((torch.zeros(3, 2, dtype=torch.long), position_ids), 1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]] * 3)
    with (
        heads.recorded("cls") as plain,
        heads.silenced(CHOSEN, how="resample", reference=reference, seed=3),
        torch.no_grad(),
    ):
        heads.model(TOKENS, position_ids=position_ids)
    with (
        heads.recorded("cls") as shifted,
        heads.silenced(CHOSEN, how="resample", reference=reference, seed=3),
        torch.no_grad(),
    ):
        heads.model(padded, attention_mask=mask, position_ids=positions)
    torch.testing.assert_close(plain.outputs, shifted.outputs, rtol=1e-4, atol=1e-5)


def test_the_reference_is_run_outside_open_contexts() -> None:
    heads = Heads(build("bert").eval())
    expected = heads.mean_outputs({"input_ids": OTHERS})
    heads.model.train()
    random = torch.random.get_rng_state()
    with heads.gated(torch.full(heads.shape, 0.5)):
        inside = heads.mean_outputs({"input_ids": OTHERS})
        heads.model.eval()
        after = logits(heads, OTHERS)  # still gated
        heads.model.train()
    assert torch.equal(inside, expected)
    heads.model.eval()
    with heads.gated(torch.full(heads.shape, 0.5)):
        assert torch.equal(logits(heads, OTHERS), after)
    assert not torch.equal(logits(heads, OTHERS), after)
    heads.model.train()
    with heads.silenced(CHOSEN, how="mean", reference={"input_ids": OTHERS}):
        torch.random.set_rng_state(random)
        heads.model(OTHERS)


def test_what_is_wrong_with_a_reference_is_said() -> None:
    heads = Heads(build("bert").eval())
    for how, reference, message in [
        ("mean", None, "needs reference="),
        ("resample", None, "needs reference="),
        ("median", OTHERS, "how is one of zero, mean, resample; got 'median'"),
        ("mean", torch.zeros(2, 3, 8), r"shape \(2, 3, 8\); expected \(2, 4, 8\)"),
        ("mean", [], "the reference set is empty"),
        ("resample", [], "the reference set is empty"),
        ("resample", torch.zeros(2, 4, 8), "takes other examples"),
    ]:
        with pytest.raises(HeadwiseError, match=message):
            heads.silenced(CHOSEN, how=how, reference=reference)  # type: ignore[arg-type]
