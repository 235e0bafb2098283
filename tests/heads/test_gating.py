"""Gates, lesions and their contexts on random shapes, head sets and nestings, against a slow oracle: weights
changed by hand."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadsDidNotFire, HeadSet
from headwise.heads._sites import input_axis

# Layers, heads, head_dim
SHAPES = st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 3, 4]), st.sampled_from([4, 8]))
FEW = settings(max_examples=12, deadline=None)


def build(kind: str, layers: int, heads: int, head_dim: int) -> nn.Module:
    torch.manual_seed(layers * 100 + heads * 10 + head_dim)
    size = heads * head_dim
    if kind == "gpt2":
        return GPT2Model(
            GPT2Config(
                vocab_size=40, n_layer=layers, n_head=heads, n_embd=size, bos_token_id=1, eos_token_id=1
            )
        ).eval()
    common = {
        "vocab_size": 40,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": size,
        "intermediate_size": 16,
    }
    if kind == "llama":
        return LlamaModel(LlamaConfig(**common, num_key_value_heads=1)).eval()
    return BertModel(BertConfig(**common)).eval()


def scaled(heads: Heads, gates: Tensor) -> nn.Module:
    """A copy of the model whose output projections carry the gates in their weights."""
    model = copy.deepcopy(heads.model)
    with torch.no_grad():
        for site in heads.sites:
            module: Any = model.get_submodule(site.path)
            for head in range(site.n_heads):
                module.weight.movedim(input_axis(module), 0)[site.columns(head)] *= gates[site.index, head]
    return model


tokens = torch.randint(3, 40, (3, 5), generator=torch.Generator().manual_seed(0))


@given(st.sampled_from(["bert", "gpt2", "llama"]), SHAPES, st.integers(0, 10_000), st.integers(1, 4))
@FEW
@torch.no_grad()
def test_nested_gates_multiply(kind: str, shape: tuple[int, int, int], seed: int, depth: int) -> None:
    heads = Heads(build(kind, *shape))
    generator = torch.Generator().manual_seed(seed)
    factors = [torch.rand(heads.shape, generator=generator) for _ in range(depth)]

    def nested(remaining: list[Tensor]) -> Tensor:
        if not remaining:
            return heads.model(tokens)[0]
        with heads.gated(remaining[0]):
            return nested(remaining[1:])

    expected = scaled(heads, torch.stack(factors).prod(0))(tokens)[0]
    torch.testing.assert_close(nested(factors), expected, rtol=1e-4, atol=1e-5)


@given(st.sampled_from(["bert", "gpt2", "llama"]), SHAPES, st.data())
@FEW
@torch.no_grad()
def test_silencing_any_set_zeroes_its_columns(
    kind: str, shape: tuple[int, int, int], data: st.DataObject
) -> None:
    heads = Heads(build(kind, *shape))
    silent = HeadSet(data.draw(st.sets(st.sampled_from(sorted(heads.all())))))
    gates = 1 - torch.from_numpy(silent.to_mask(heads.shape)).float()
    with heads.silenced(silent):
        out = heads.model(tokens)[0]
    torch.testing.assert_close(out, scaled(heads, gates)(tokens)[0], rtol=1e-5, atol=1e-6)


@given(
    st.lists(st.sampled_from(["gate", "silence", "record", "raise"]), min_size=1, max_size=6),
    st.integers(0, 10_000),
)
@settings(max_examples=20, deadline=None)
@torch.no_grad()
def test_any_nesting_survives_exceptions_and_leaves_nothing(plan: list[str], seed: int) -> None:
    heads = Heads(build("bert", 2, 2, 4))
    generator = torch.Generator().manual_seed(seed)
    plain = heads.model(tokens)[0]

    def enter(remaining: list[str]) -> None:
        if not remaining:
            heads.model(tokens)
        elif remaining[0] == "gate":
            with heads.gated(torch.rand(heads.shape, generator=generator)):
                enter(remaining[1:])
        elif remaining[0] == "silence":
            with heads.silenced(HeadSet([(seed % 2, seed // 2 % 2)])):
                enter(remaining[1:])
        elif remaining[0] == "record":
            with heads.recorded("last", hidden=True, attention=seed % 3 == 0):
                enter(remaining[1:])
        else:
            heads.model(tokens)
            raise KeyError("planned")

    if "raise" in plan:
        with pytest.raises(KeyError, match="planned"):
            enter(plan)
    else:
        enter(plan)
    assert not heads._taps.edits
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in heads.model.modules())
    assert heads.model.config._attn_implementation == "sdpa"
    assert torch.equal(heads.model(tokens)[0], plain)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_gate_gradients_equal_finite_differences(kind: str) -> None:
    heads = Heads(build(kind, 2, 2, 4).double())
    gates = torch.rand(
        3, 5, *heads.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()

    def answer(values: Tensor) -> Tensor:
        with heads.gated(values):
            return heads.model(tokens)[0].pow(3).sum((1, 2))  # (batch,)

    (gradient,) = torch.autograd.grad(answer(gates).sum(), gates)
    step = 3e-2 if kind == "llama" else 1e-6  # Llama's norms stay in float32
    for entry in [(0, 0, 0, 0), (1, 3, 1, 1), (2, 4, 0, 1)]:
        nudge = torch.zeros_like(gates)
        nudge[entry] = step
        with torch.no_grad():
            change = (answer(gates + nudge) - answer(gates - nudge)) / (2 * step)  # (batch,)
        assert change.sum() == pytest.approx(
            gradient[entry].item(), rel=2e-2 if kind == "llama" else 1e-5, abs=1e-6
        )
        # A row's gate moves that row alone
        assert change[[row for row in range(3) if row != entry[0]]].abs().max() == 0


@torch.no_grad()
def test_rows_and_tokens_may_have_gates_of_their_own() -> None:
    heads = Heads(build("bert", 2, 3, 4))
    gates = torch.rand(3, *heads.shape, generator=torch.Generator().manual_seed(1))
    with heads.gated(gates):
        together = heads.model(tokens)[0]
    for row in range(3):
        with heads.gated(gates[row]):
            torch.testing.assert_close(
                together[row], heads.model(tokens[row : row + 1])[0][0], rtol=1e-4, atol=1e-5
            )
    with heads.gated(gates[:, None].expand(-1, 5, -1, -1)):  # the same gates at every token
        torch.testing.assert_close(heads.model(tokens)[0], together, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_token_gates_reach_only_their_token() -> None:
    heads = Heads(build("bert", 1, 2, 4))
    gates = torch.ones(3, 5, *heads.shape)
    gates[1, 2] = 0
    plain = heads.model(tokens)[0]
    with heads.gated(gates):
        changed = (heads.model(tokens)[0] - plain).abs().amax(-1) > 1e-7  # (batch, tokens)
    assert changed.nonzero().tolist() == [[1, 2]]


@torch.no_grad()
def test_gates_are_copied_unless_they_learn() -> None:
    heads = Heads(build("bert", 1, 2, 4))
    gates = torch.full(heads.shape, 0.5)
    with heads.gated(gates):
        first = heads.model(tokens)[0]
        gates.zero_()
        assert torch.equal(heads.model(tokens)[0], first)


def test_gates_of_another_shape_or_kind_are_refused() -> None:
    heads = Heads(build("bert", 2, 3, 4))
    with pytest.raises(
        HeadwiseError, match=r"\(3, 2\) do not fit this model of 2 layers and 3 heads.*another model"
    ):
        heads.gated(torch.ones(3, 2))
    with pytest.raises(HeadwiseError, match="torch tensor"):
        heads.gated([[1.0] * 3] * 2)  # type: ignore[arg-type]
    with pytest.raises(HeadwiseError, match=r"head \(2, 0\) is not in this BertModel: it has 2 layers"):
        heads.silenced(HeadSet([(2, 0)]))
    with pytest.raises(HeadwiseError, match=r"head \(0, 5\) is not in this BertModel: layer 0 has 3 heads"):
        heads.silenced(HeadSet([(0, 5)]))
    with (
        pytest.raises(HeadwiseError, match="gates for 2 rows met a pass of 3 rows"),
        heads.gated(torch.zeros(2, *heads.shape)),
    ):
        heads.model(tokens)
    with (
        pytest.raises(HeadwiseError, match="of 4 tokens met an input"),
        heads.gated(torch.zeros(3, 4, *heads.shape)),
    ):
        heads.model(tokens)
    assert not any(m._forward_pre_hooks for m in heads.model.modules())


def test_a_pass_that_misses_the_heads_raises() -> None:
    heads = Heads(build("bert", 2, 2, 4))
    with (
        pytest.raises(HeadsDidNotFire, match="no forward pass inside this block"),
        heads.silenced(HeadSet([(0, 0)])),
    ):
        build("bert", 2, 2, 4)(tokens)
    with (
        pytest.raises(HeadsDidNotFire, match=r"layer.1.attention"),
        heads.silenced(HeadSet([(0, 0), (1, 0)])),
    ):
        heads.model.encoder.layer[0](heads.model.embeddings(tokens))  # half of the model
    with pytest.raises(HeadwiseError, match="head_mask= was passed"), heads.silenced(HeadSet([(0, 0)])):
        heads.model(tokens, head_mask=torch.ones(2, 2))


def test_a_lesion_kept_from_an_evaluation_serves_in_training() -> None:
    model = BertModel(
        BertConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, vocab_size=20
        )
    )
    heads, tokens = Heads(model), torch.tensor([[1, 2, 3]])
    for _ in range(2):  # the gates are made in the first evaluation
        with torch.inference_mode(), heads.silenced(HeadSet([(0, 1)])):
            model(tokens)
    with heads.silenced(HeadSet([(0, 1)])):
        model(tokens).last_hidden_state.sum().backward()
    columns = model.encoder.layer[0].attention.output.dense.weight.grad[:, 8:]
    assert (columns == 0).all()
    assert len(heads._silencers) == 1
