"""Finding heads in attention written in every way one may write it, with the truth planted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, multi_head_attention_forward, scaled_dot_product_attention
from transformers import PreTrainedConfig, PreTrainedModel

from headwise.heads import Heads, UnsupportedModel
from headwise.heads._find.discovery import find_sites

DIM, HEADS, SIZE = 24, 3, 8


class ToyConfig(PreTrainedConfig):
    model_type = "toy"


class ToyAttention(nn.Module):
    """One attention layer whose inner part is given: (module, queries, keys, values (batch, heads, tokens,
    size)) -> (batch, tokens, dim)."""

    def __init__(self, inner: Callable[..., Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.norm, self.small_norm = nn.LayerNorm(DIM), nn.LayerNorm(SIZE)
        self.gate = nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            projection(x).view(*x.shape[:2], HEADS, SIZE).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        self.x = x
        return self.inner(self, q, k, v)


class Toy(PreTrainedModel):
    config_class = ToyConfig
    main_input_name = "input_ids"

    def __init__(self, inner: Callable[..., Tensor]) -> None:
        super().__init__(ToyConfig(vocab_size=40))
        self.embed = nn.Embedding(40, DIM)
        self.layers = nn.ModuleList([ToyAttention(inner) for _ in range(2)])

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        return x


def merge(r: Tensor) -> Tensor:
    return r.transpose(1, 2).flatten(2)  # (batch, tokens, dim)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)


def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2) / SIZE**0.5).softmax(-1).to(q.dtype)
    return torch.dropout(scores, 0.1, False) @ v


def bmm(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    flat = [t.flatten(0, 1) for t in (q, k, v)]
    r = torch.bmm(torch.softmax(torch.bmm(flat[0], flat[1].transpose(1, 2)), -1), flat[2])
    return m.out(merge(r.view(q.shape)))


def einsum(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    p = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    return m.out(torch.einsum("bhqk,bhkd->bqhd", p, v).flatten(2))


def one_by_one(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return m.out(torch.cat([eager(q[:, [h]], k[:, [h]], v[:, [h]])[:, 0] for h in range(HEADS)], -1))


SUPPORTED: dict[str, Callable[..., Tensor]] = {
    "fused": lambda m, q, k, v: m.out(merge(fused(q, k, v))),
    "eager": lambda m, q, k, v: m.out(merge(eager(q, k, v))),
    "bmm": bmm,
    "einsum": einsum,
    "one by one": one_by_one,
    "norm over all heads": lambda m, q, k, v: m.out(m.norm(merge(fused(q, k, v)))),
    "norm per head": lambda m, q, k, v: m.out(merge(m.small_norm(fused(q, k, v)))),
    "gated by the input": lambda m, q, k, v: m.out(merge(fused(q, k, v)) * m.gate(m.x).sigmoid()),
    "tokens first": lambda m, q, k, v: m.out(merge(fused(q, k, v)).transpose(0, 1)).transpose(0, 1),
    "run together": lambda m, q, k, v: m.out(merge(fused(q, k, v)).flatten(0, 1)).view(m.x.shape),
    "in place": lambda m, q, k, v: m.out(merge(fused(q, k, v).mul_(2.0))),
    "values of one head": lambda m, q, k, v: m.out(merge(eager(q, k, v[:, :1]))),
}


@pytest.mark.parametrize("way", SUPPORTED)
def test_every_way_is_found(way: str) -> None:
    torch.manual_seed(0)
    heads = Heads(Toy(SUPPORTED[way]))
    assert [(s.path, s.n_heads, s.head_dim, s.layer_path) for s in heads.sites] == [
        (f"layers.{i}.out", HEADS, SIZE, f"layers.{i}") for i in range(2)
    ]
    assert heads.sites[0].n_groups == (1 if way == "values of one head" else HEADS)
    assert heads.rows_apart
    gates = torch.rand(2, *heads.shape)
    tokens = torch.arange(10).view(2, 5)
    with torch.no_grad(), heads.gated(gates):
        together = heads.model(tokens)
    for row in range(2):
        with torch.no_grad(), heads.gated(gates[row]):
            torch.testing.assert_close(heads.model(tokens[row : row + 1])[0], together[row])
    if heads.sites[0].head_order is not None:
        with torch.no_grad(), heads.recorded("all", attention=True) as tape:
            heads.model(tokens)
        torch.testing.assert_close(tape.attention[1].sum(-1), torch.ones(2, HEADS, 5))


def test_heads_in_another_order_keep_their_maps() -> None:
    torch.manual_seed(0)
    order = [2, 0, 1]
    turned, plain = (
        Toy(lambda m, q, k, v, o=o: m.out(merge(eager(q, k, v)[:, o]))) for o in (order, [0, 1, 2])
    )
    plain.load_state_dict(turned.state_dict())
    turned_heads, plain_heads = Heads(turned), Heads(plain)
    assert turned_heads.sites[0].head_order == tuple(order)
    tokens = torch.arange(10).view(2, 5)
    tapes = []
    for heads in (turned_heads, plain_heads):
        with torch.no_grad(), heads.recorded("all", attention=True) as tape:
            heads.model(tokens)
        tapes.append(tape)
    assert torch.equal(tapes[0].layer(0), tapes[1].layer(0)[..., order, :])
    assert torch.equal(tapes[0].attention[0], tapes[1].attention[0][:, order])


REFUSED: dict[str, tuple[Callable[..., Tensor], str]] = {
    "projected without a module": (
        lambda m, q, k, v: linear(merge(fused(q, k, v)), m.out.weight),
        "reaches no projection module|does not split",
    ),
    "heads mixed": (
        lambda m, q, k, v: m.out(merge(fused(q, k, v).cumsum(1))),
        "does not split into slices of one head each",
    ),
    "heads interleaved": (
        lambda m, q, k, v: m.out(fused(q, k, v).permute(0, 2, 3, 1).flatten(2)),
        "does not split",
    ),
    "torch's own": (
        lambda m, q, k, v: multi_head_attention_forward(
            *[m.x.transpose(0, 1)] * 3,
            DIM,
            HEADS,
            None,
            None,
            None,
            None,
            False,
            0.0,
            m.out.weight,
            m.out.bias,
            use_separate_proj_weight=True,
            q_proj_weight=m.q.weight,
            k_proj_weight=m.k.weight,
            v_proj_weight=m.v.weight,
            in_proj_bias=torch.zeros(3 * DIM),
        )[0].transpose(0, 1),
        "multi_head_attention_forward",
    ),
    "no softmax": (
        lambda m, q, k, v: m.out(merge(q @ (k.transpose(-1, -2) @ v))),
        "made no softmax attention",
    ),
}


@pytest.mark.parametrize("way", REFUSED)
def test_what_cannot_be_reached_is_refused_with_the_reason(way: str) -> None:
    inner, reason = REFUSED[way]
    torch.manual_seed(0)
    model = Toy(inner)
    with pytest.raises(UnsupportedModel, match=reason):
        Heads(model)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_softmax_that_pools_tokens_is_no_head() -> None:
    class Pooled(Toy):
        def forward(self, input_ids: Tensor) -> Tensor:
            x = super().forward(input_ids)
            return self.last(self.score(x).softmax(1).transpose(1, 2) @ x)

    torch.manual_seed(0)
    model = Pooled(SUPPORTED["fused"])
    model.score, model.last = nn.Linear(DIM, 1), nn.Linear(DIM, 2)
    findings = find_sites(model)
    assert [site.path for site in findings.sites] == ["layers.0.out", "layers.1.out"]
    assert not findings.missed
