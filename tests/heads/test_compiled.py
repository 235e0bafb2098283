"""Code compiled before hooks were set does not know them: inside blocks it runs as written, or is compiled
again."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from small_models import build
from torch import Tensor, nn

from headwise.heads import Heads, HeadsDidNotFire, HeadSet
from headwise.heads._hooks import eagerly

SHORT = torch.randint(5, 50, (3, 5), generator=torch.Generator().manual_seed(0))
LONG = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(1))
CHOSEN = HeadSet([(0, 0), (1, 1)])
PARTS = {
    "a layer in its place": "encoder.layer.1",
    "attention in its place": "encoder.layer.1.attention",
    "all in its place": "",
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def bert(training: bool) -> Any:
    model: Any = build("bert").bert
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train(training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("way", [*PARTS, "a wrapped layer", "a wrapped model"])
@torch.no_grad()
def test_what_was_compiled_before_is_silenced_too(way: str, training: bool) -> None:
    model = bert(training)
    heads = Heads(model)
    with heads.silenced(CHOSEN):
        expected = [model(tokens)[0] for tokens in (SHORT, LONG)]
    run = model
    options = {"backend": "eager", "dynamic": False}
    if way in PARTS:
        model.get_submodule(PARTS[way]).compile(**options)
    elif way == "a wrapped layer":
        model.encoder.layer[1] = torch.compile(model.encoder.layer[1], **options)
    else:
        run = torch.compile(model, **options)
    plain = run(SHORT)[0]  # compiled for this length, without hooks
    heads = Heads(model)
    with heads.silenced(CHOSEN):  # a new length would be compiled with them
        for tokens, right in ((LONG, expected[1]), (SHORT, expected[0])):
            torch.testing.assert_close(run(tokens)[0], right)
    assert torch.equal(run(SHORT)[0], plain)
    heads.install()  # compiled again, with hooks
    with heads.silenced(CHOSEN):
        for tokens, right in ((LONG, expected[1]), (SHORT, expected[0])):
            torch.testing.assert_close(run(tokens)[0], right)
    assert torch.equal(run(SHORT)[0], plain)


@torch.no_grad()
def test_a_function_may_be_compiled_with_its_block() -> None:
    heads = Heads(bert(False))

    def lesioned(tokens: Tensor) -> Any:
        with heads.silenced(CHOSEN):
            return heads.model(tokens)[0]

    expected = lesioned(SHORT)
    assert torch.equal(torch.compile(lesioned, backend="eager")(SHORT), expected)
    torch._dynamo.reset()
    torch.compile(heads.model, backend="eager")(SHORT)
    # Inside, code that was compiled without hooks is taken: said, if not computed
    with pytest.raises(HeadsDidNotFire):
        torch.compile(lesioned, backend="eager")(SHORT)


def test_blocks_of_threads_that_overlap_leave_the_compiler_as_it_was() -> None:
    def stance() -> str:
        return torch._dynamo.eval_frame._stance.stance

    first, second = eagerly(), eagerly()
    first.__enter__()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        assert stance() == "force_eager"
        pool.submit(second.__exit__, None, None, None).result()
    assert stance() == "default"


def test_layers_that_are_silent_in_training_are_noticed() -> None:
    """Only models whose layers are dropped at random may leave some out."""
    model = bert(True)
    heads = Heads(model)
    layer = model.encoder.layer[1]
    layer.forward = lambda hidden, *args, **options: hidden
    with pytest.raises(HeadsDidNotFire, match=r"layer.1.attention"), heads.silenced(CHOSEN):
        model(SHORT)
    model.config.layerdrop = 0.1
    with heads.silenced(CHOSEN):
        model(SHORT)
