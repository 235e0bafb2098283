"""Ownership found from gradients, against slices derived by hand from each family's code."""

import pytest
import torch
from small_models import build
from torch import Tensor
from transformers import AlbertConfig, AlbertModel

from headwise.heads import Heads
from headwise.heads._freeze.ownership import ownership

D = 8  # head size
OUTPUTS = {"output.dense.weight", "c_proj.weight", "o_proj.weight", "dense.weight", "Wo.weight"}


def rows(*blocks: list[int]) -> list[tuple[int, ...]]:
    """The owners of each entry, if every block of `D` entries belongs to the heads in it."""
    return [tuple(block) for block in blocks for _ in range(D)]


EACH = rows([0], [1], [2], [3])
PAIRS = rows([0, 1], [2, 3])
ALL = rows([0, 1, 2, 3])

# {family: (prefix of the first layer, {parameter: (axis, owners of each entry)})}, written down from the
# models' code.
BY_HAND = {
    "bert": (
        "bert.encoder.layer.0.attention.",
        {
            **{
                f"self.{part}.{kind}": (0, EACH)
                for part in ("query", "key", "value")
                for kind in ("weight", "bias")
            },
            "output.dense.weight": (1, EACH),
        },
    ),
    # [q | k | v], transposed
    "gpt2": (
        "transformer.h.0.attn.",
        {"c_attn.weight": (1, EACH * 3), "c_attn.bias": (0, EACH * 3), "c_proj.weight": (0, EACH)},
    ),
    "llama": (
        "model.layers.0.self_attn.",
        {
            "q_proj.weight": (0, EACH),
            "k_proj.weight": (0, PAIRS),
            "v_proj.weight": (0, PAIRS),
            "o_proj.weight": (1, EACH),
        },
    ),
    # q, k, v of one head after another
    "neox": (
        "gpt_neox.layers.0.attention.",
        {
            "query_key_value.weight": (0, rows(*[[h] for h in range(4) for _ in "qkv"])),
            "query_key_value.bias": (0, rows(*[[h] for h in range(4) for _ in "qkv"])),
            "dense.weight": (1, EACH),
        },
    ),
    "bloom": (
        "transformer.h.0.self_attention.",
        {
            "query_key_value.weight": (0, rows(*[[h] for h in range(4) for _ in "qkv"])),
            "query_key_value.bias": (0, rows(*[[h] for h in range(4) for _ in "qkv"])),
            "dense.weight": (1, EACH),
        },
    ),
    "falcon-mha": (
        "transformer.h.0.self_attention.",
        {
            "query_key_value.weight": (0, rows(*[[h] for h in range(4) for _ in "qkv"])),
            "dense.weight": (1, EACH),
        },
    ),
    # all queries, then one key and one value
    "falcon-mqa": (
        "transformer.h.0.self_attention.",
        {"query_key_value.weight": (0, EACH + ALL + ALL), "dense.weight": (1, EACH)},
    ),
    # for each group its queries, its key, its value
    "falcon-gqa": (
        "transformer.h.0.self_attention.",
        {
            "query_key_value.weight": (0, rows([0], [1], [0, 1], [0, 1], [2], [3], [2, 3], [2, 3])),
            "dense.weight": (1, EACH),
        },
    ),
    "modernbert": ("layers.0.attn.", {"Wqkv.weight": (0, EACH * 3), "Wo.weight": (1, EACH)}),
    "phi3": (
        "model.layers.0.self_attn.",
        {"qkv_proj.weight": (0, EACH + PAIRS + PAIRS), "o_proj.weight": (1, EACH)},
    ),
    # nothing of the compressed states, nor of the rotary key that all heads share; rows per head: 8 + 4 of
    # queries, 8 + 8 of keys and values
    "latent": (
        "layers.0.self_attn.",
        {
            "q_b_proj.weight": (0, [(h,) for h in range(4) for _ in range(12)]),
            "kv_b_proj.weight": (0, [(h,) for h in range(4) for _ in range(16)]),
            "o_proj.weight": (1, EACH),
        },
    ),
    # a norm over all queries has one weight for each feature
    "olmo2": (
        "layers.0.self_attn.",
        {
            **{f"{part}_proj.weight": (0, EACH) for part in "qkv"},
            **{f"{part}_norm.weight": (0, EACH) for part in "qk"},
            "o_proj.weight": (1, EACH),
        },
    ),
}


def owners(marks: Tensor) -> list[tuple[int, ...]]:
    return [tuple(row.nonzero()[:, 0].tolist()) for row in marks]


@pytest.mark.parametrize("family", BY_HAND)
def test_owners_are_those_derived_by_hand(family: str) -> None:
    heads = Heads(build(family))
    prefix, expected = BY_HAND[family]
    by_name = {owned.name: owned for owned in ownership(heads) if 0 in owned.owners}
    assert by_name.keys() == {prefix + name for name in expected}
    for name, (dim, who) in expected.items():
        owned = by_name[prefix + name]
        assert (owned.dim, owned.output) == (dim, name in OUTPUTS)
        assert owners(owned.owners[0]) == who, name


def test_layers_that_share_weights_own_them_together() -> None:
    heads = Heads(build("albert"))
    for owned in ownership(heads):
        assert list(owned.owners) == [0, 1, 2]
        assert all(owners(marks) == EACH for marks in owned.owners.values())


def test_a_table_of_position_biases_belongs_to_the_heads_of_all_layers() -> None:
    heads = Heads(build("t5"))
    tables = {owned.name: owned for owned in ownership(heads) if "relative_attention_bias" in owned.name}
    kinds = {
        name.split(".")[0]: [heads.sites[site].kind for site in owned.owners]
        for name, owned in tables.items()
    }
    assert kinds == {"encoder": ["self", "self"], "decoder": ["decoder", "decoder"]}
    assert all(
        owned.dim == 1 and owners(marks) == [(0,), (1,), (2,), (3,)]
        for owned in tables.values()
        for marks in owned.owners.values()
    )


def test_zero_weights_half_precision_and_frozen_parameters_change_nothing() -> None:
    plain = ownership(Heads(build("bert")))
    model = build("bert")
    for parameter in model.parameters():
        parameter.data.zero_()
        parameter.requires_grad_(False)
    changed = ownership(Heads(model.to(torch.bfloat16)))
    assert [(o.name, o.dim, owners(o.owners[s])) for o in plain for s in o.owners] == [
        (o.name, o.dim, owners(o.owners[s])) for o in changed for s in o.owners
    ]


def test_finding_owners_leaves_no_trace() -> None:
    model = build("gpt2").train()
    heads = Heads(model)
    frozen = next(model.parameters()).requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    ownership(heads)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert all(module.training for module in model.modules())
    assert not frozen.requires_grad
    assert (
        sum(parameter.requires_grad for parameter in model.parameters()) == len(list(model.parameters())) - 1
    )
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("bert", 4 * 8 * 32 + 3 * 8),
        ("gpt2", 4 * 8 * 32 + 3 * 8),
        ("llama", 4 * 8 * 32),  # keys and values of the group in full
        ("falcon-mqa", 4 * 8 * 32),
    ],
)
def test_parameters_per_head(family: str, count: int) -> None:
    assert Heads(build(family)).parameters_per_head() == [count, count]


def test_layers_are_tied_where_heads_of_one_number_share_parameters() -> None:
    assert Heads(build("mpnet")).tied_layers() == ((0, 1),)  # one table of position biases
    assert Heads(build("albert")).tied_layers() == ((0, 1, 2),)  # one layer, used three times
    t5 = Heads(build("t5"))
    kinds = [[t5.sites[layer].kind for layer in group] for group in t5.tied_layers()]
    assert kinds == [["self", "self"], ["decoder", "decoder"]]
    assert all(Heads(build(family)).tied_layers() == () for family in ("bert", "gpt2", "llama"))
    two = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "vocab_size": 40,
        "embedding_size": 16,
    }
    grouped = AlbertModel(AlbertConfig(num_hidden_layers=4, num_hidden_groups=2, **two))
    assert Heads(grouped).tied_layers() == ((0, 1), (2, 3))
