"""A head that puts out inf or NaN can be silenced, removed and left out of lesions; gates go on multiplying."""

from typing import Any

import pytest
import torch
from small_models import build
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
SICK, WELL = HeadSet([(0, 1)]), HeadSet([(1, 2)])


def sick(value: float) -> Any:
    """A model whose head 0.1 puts out `value`."""
    model: Any = build("bert")
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.value.bias[8:16] = value
    return model


def healed(model: Any) -> Tensor:
    """Logits without the head: its values made finite, its columns of W_O zero."""
    twin: Any = build("bert")
    twin.bert.encoder.layer[0].attention.output.dense.weight[:, 8:16] = 0
    result: Tensor = twin(TOKENS).logits
    return result


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("found", ["before", "after"])
@torch.no_grad()
def test_a_head_that_is_no_number_silences_to_zero(value: float, found: str) -> None:
    model = sick(value)
    heads = Heads(model if found == "after" else build("bert"))
    if found == "before":
        heads.model.load_state_dict(model.state_dict())
    model, expected = heads.model, healed(model)
    assert not model(TOKENS).logits.isfinite().any()
    with heads.silenced(SICK):
        torch.testing.assert_close(model(TOKENS).logits, expected)
    opened = torch.ones(3, *heads.shape, dtype=torch.bool)
    opened[:2, 0, 1] = False  # rows of their own
    with heads.gated(opened):
        logits = model(TOKENS).logits
    torch.testing.assert_close(logits[:2], expected[:2])
    assert logits[2].isnan().all()
    with heads.gated(opened[:2].float()[0]):  # numbers multiply: learnt gates need the gradient at 0
        assert model(TOKENS).logits.isnan().all()
    smaller = heads.remove(SICK)
    torch.testing.assert_close(smaller(TOKENS).logits, expected)


def test_a_silenced_head_that_is_no_number_leaves_gradients_finite() -> None:
    heads = Heads(sick(float("inf")))
    with heads.silenced(SICK):
        heads.model(TOKENS).logits.pow(2).sum().backward()
    gradients = {name: parameter.grad for name, parameter in heads.model.named_parameters()}
    assert gradients["bert.encoder.layer.1.attention.self.query.weight"].isfinite().all()  # type: ignore[union-attr]
    assert (gradients["bert.encoder.layer.0.attention.output.dense.weight"][:, 8:16] == 0).all()  # type: ignore[index]


@pytest.mark.parametrize("how", ["mean", "resample"])
def test_what_is_no_number_cannot_stand_for_a_head(how: str) -> None:
    heads = Heads(sick(float("nan")))
    with pytest.raises(HeadwiseError, match=r"head \(0, 1\) puts out inf or NaN on the reference"):
        heads.silenced(SICK, how=how, reference={"input_ids": TOKENS})
    with torch.no_grad(), heads.silenced(HeadSet([(0, 0)]), how=how, reference={"input_ids": TOKENS}):
        heads.model(TOKENS)  # the heads beside it can be replaced


def test_a_gate_at_zero_has_its_gradient() -> None:
    """Learnt gates begin to open by it."""
    heads = Heads(build("bert"))
    gates = torch.ones(heads.shape)
    gates[0, 1] = 0
    gates.requires_grad_()
    with heads.gated(gates):
        heads.model(TOKENS).logits.square().sum().backward()
    assert gates.grad is not None
    slope, step = float(gates.grad[0, 1]), 1e-2

    def loss(value: float) -> float:
        opened = gates.detach().clone()
        opened[0, 1] = value
        with torch.no_grad(), heads.gated(opened):
            return float(heads.model(TOKENS).logits.square().sum())

    assert slope == pytest.approx((loss(step) - loss(-step)) / (2 * step), rel=0.05)
    assert abs(slope) > 1e-4
