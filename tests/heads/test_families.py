"""A sample of architecture families, each through every check; `make architectures` runs them all."""

import family_checks
import pytest
import torch
import zoo
from transformers import PreTrainedModel

from headwise.heads import Heads, UnsupportedModel
from headwise.heads._headset import HeadSet

FAMILIES = {
    **dict.fromkeys(
        [
            "bert",
            "roberta",
            "deberta-v2",
            "albert",
            "distilbert",
            "modernbert",
            "mpnet",
            "gpt2",
            "gpt_neox",
            "bloom",
        ],
        "",
    ),
    **dict.fromkeys(
        [
            "falcon",
            "llama",
            "mistral",
            "phi3",
            "t5",
            "bart",
            "whisper",
            "vit",
            "wav2vec2",
            "deepseek_v3",
            "clip",
            "swin",
        ],
        "",
    ),
    "bitnet": "normalizes all heads of a layer together",
    "convbert": "can be silenced but not removed",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_check_holds(family: str) -> None:
    results = family_checks.check_family(zoo.build(family))
    removed = results.pop("removed")
    assert not any(results.values()), results
    assert (FAMILIES[family] in removed) if FAMILIES[family] else not removed


@pytest.mark.parametrize(
    ("family", "kinds", "heads", "groups"),
    [
        ("bert", ["self"] * 2, 4, 4),
        ("gpt2", ["self"] * 2, 4, 4),
        ("llama", ["self"] * 2, 4, 4),
        ("mistral", ["self"] * 2, 4, 2),
        ("falcon", ["self"] * 2, 4, 1),
        ("t5", ["self"] * 2 + ["decoder", "cross"] * 2, 4, 4),
        ("whisper", ["self"] * 2 + ["decoder", "cross"] * 2, 4, 4),
        ("vit", ["self"] * 2, 4, 4),
    ],
)
def test_anatomy(family: str, kinds: list[str], heads: int, groups: int) -> None:
    found = Heads(zoo.build(family))
    assert [site.kind for site in found.sites] == kinds
    assert {(site.n_heads, site.head_dim, site.n_groups) for site in found.sites} == {(heads, 8, groups)}
    assert [site.index for site in found.sites] == list(range(len(kinds)))
    assert found.total == heads * len(kinds)
    assert found.valid.all()


def test_layers_of_different_width_are_padded() -> None:
    heads = Heads(zoo.build("swin"))
    assert heads.shape == (2, 4)
    assert heads.valid.tolist() == [[True, True, False, False], [True] * 4]
    assert heads.total == 6
    assert (0, 2) not in heads.all()
    with torch.no_grad(), heads.recorded("mean") as tape:
        heads.model(**heads.example)
    assert tape.outputs[:, 0, 2:].isnan().all()
    assert not tape.outputs[:, 1].isnan().any()
    with pytest.raises(Exception, match="layer 0 has 2 heads"):
        heads.silenced(HeadSet([(0, 3)]))


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("mamba", "no attention at all"),
        ("resnet", "no attention at all"),
        ("xlnet", "XLNet projects with an einsum"),
        ("wavlm", "multi_head_attention_forward"),
        ("qwen3_next", "1 attention layers were found, but not all.*layers.0.linear_attn.*partial=True"),
        ("llava", "the example input does not reach it.*example="),
    ],
)
def test_what_cannot_be_supported_says_why(family: str, message: str) -> None:
    model = _build(family)
    with pytest.raises(UnsupportedModel, match=message):
        Heads(model)


def _build(family: str) -> PreTrainedModel:
    if family == "resnet":
        from transformers import ResNetConfig, ResNetModel

        return ResNetModel(
            ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
        )
    return zoo.build(family)


def test_partial_coverage_can_be_accepted() -> None:
    heads = Heads(zoo.build("qwen3_next"), partial=True)
    assert len(heads.sites) == 1
    assert list(heads.missed) == ["layers.0.linear_attn"]
    family_checks.ones_change_nothing(heads, heads.example)
    family_checks.silenced_equals_zeroed(heads, heads.example, 1e-4)


def test_an_example_reaches_what_a_guess_does_not() -> None:
    model = zoo.build("llava")
    image = model.config.image_token_id
    tokens = torch.tensor([[5, *[image] * 16, 6, 7]])
    example = {"input_ids": tokens, "pixel_values": torch.rand(1, 3, 32, 32)}
    heads = Heads(model, example=example)
    assert sorted({site.path.split(".")[0] for site in heads.sites}) == ["language_model", "vision_tower"]


def test_not_a_transformer_at_all() -> None:
    with pytest.raises(UnsupportedModel, match="Linear is not a transformers model"):
        Heads(torch.nn.Linear(2, 2))
