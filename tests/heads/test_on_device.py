"""Nothing goes through the CPU while a model runs or learns: checked on the meta device, from which nothing
can be copied."""

import pytest
import torch
from transformers import BertConfig, BertModel

from headwise.heads import Heads, HeadSet
from headwise.heads._freeze.ownership import ownership

SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 20,
}
CHOSEN = HeadSet([(0, 1), (1, 2)])


def meta_heads() -> Heads:
    heads = Heads(BertModel(BertConfig(**SIZE), add_pooling_layer=False))
    ownership(heads)  # found once, by real passes, like the heads themselves
    heads.model.to("meta")
    return heads


def run(model: BertModel, rows: int = 3) -> torch.Tensor:
    return model(input_ids=torch.zeros(rows, 5, dtype=torch.long, device="meta")).last_hidden_state


def test_the_meta_device_notices() -> None:
    with pytest.raises(NotImplementedError, match="no data"):
        run(meta_heads().model).cpu()


@pytest.mark.parametrize("output_projection", [True, False])
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.AdamW(p, weight_decay=0.1, foreach=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
])  # fmt: skip
def test_a_training_step_never_leaves_the_device(make, output_projection: bool) -> None:
    heads = meta_heads()
    model = heads.model
    optimizer = make(model.parameters())
    for _ in range(3):  # the first makes the plan and the optimizer's state
        with heads.training_only(CHOSEN, optimizer, output_projection=output_projection):
            run(model).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(2, 4), (3, 2, 4), (3, 5, 2, 4)])
def test_gated_passes_never_leave_the_device(shape: tuple[int, ...]) -> None:
    heads = meta_heads()
    gates = torch.ones(shape, device="meta", requires_grad=True)
    with heads.gated(gates):
        state = run(heads.model)
    (gradient,) = torch.autograd.grad(state.sum(), gates)
    assert gradient.shape == shape
    assert gradient.is_meta
