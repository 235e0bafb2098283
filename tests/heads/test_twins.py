"""Twins of models: new modules around the same tensors, which is what headwise runs to read a model."""

import copy
import gc
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import pytest
import torch
import zoo
from accelerate import cpu_offload
from peft import LoraConfig, get_peft_model
from small_models import build
from torch import Tensor, nn

from headwise.heads import Heads, HeadSet
from headwise.heads._reading import twinned, twins_of, undisturbed

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))


def logits(model: Any, tokens: Tensor = TOKENS) -> Tensor:
    with torch.no_grad():
        out = model(input_ids=tokens)
    return out.logits if hasattr(out, "logits") else out[0]


def adapted() -> Any:
    torch.manual_seed(3)
    wrapped: Any = get_peft_model(
        build("bert"),
        LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False, lora_dropout=0.5),
    )
    return wrapped


MODELS: dict[str, Callable[[], Any]] = {
    name: partial(build, name) for name in ("bert", "gpt2", "llama", "t5", "albert", "deberta")
}
MODELS["lora"] = adapted
# Projects what is not contiguous, which torch rounds by who asks for gradients
MODELS["longformer"] = partial(zoo.build, "longformer")


@pytest.mark.parametrize("name", MODELS)
def test_a_twin_computes_the_same_to_the_last_bit_and_shares_nothing_but_memory(name: str) -> None:
    model = MODELS[name]().train()
    state = {path: (dict(vars(module)), module.training) for path, module in model.named_modules()}
    (twin,) = twins_of(model) or (None,)
    assert twin is not None
    inputs = {"decoder_input_ids": TOKENS} if name == "t5" else {}
    with torch.no_grad():
        expected, actual = (one(input_ids=TOKENS, **inputs)[0] for one in (copy.deepcopy(model).eval(), twin))
    assert torch.equal(actual, expected)
    assert not {id(module) for module in model.modules()} & {id(module) for module in twin.modules()}
    # As many: tied ones stay tied
    pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    assert all(
        a == b and one.data_ptr() == other.data_ptr() and one is not other for (a, one), (b, other) in pairs
    )
    assert [p.requires_grad for p in twin.parameters()] == [p.requires_grad for p in model.parameters()]
    (frozen,) = twins_of(model, frozen=True) or (None,)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(
        parameter.requires_grad == ("lora" in key or name != "lora")
        for key, parameter in model.named_parameters()
    )
    assert not any(module.training for module in twin.modules())
    assert all(module.training for module in model.modules())
    assert all(vars(module).keys() == state[path][0].keys() for path, module in model.named_modules())
    assert twin.config is not model.config
    assert twin.config.to_dict() == model.config.to_dict()


def test_a_step_of_the_optimizer_is_seen_by_the_twin_and_a_twin_is_gone_with_its_last_name() -> None:
    model = build("bert")
    (twin,) = twins_of(model) or (None,)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert torch.equal(logits(twin), logits(model))
    memory = weakref.ref(twin)
    del twin
    gc.collect()
    assert memory() is None


class Odd(nn.Module):
    """What modules do in user's code: refer to each other outside the tree, and change themselves and their
    buffers as they run."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.calls: list[int] = []
        self.sibling = [inner]
        self.parent: Any = None
        self.scaled: Any = MethodType(lambda self, x: x * (1 + len(self.calls)), self)
        self.partial = partial(self.drop.forward)
        self.weak = weakref.ref(inner)
        self.forward = MethodType(Odd.run, self)

    def run(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.calls.append(1)
        self.last = x
        assert self.sibling[0] is self.inner is self.weak()
        assert self.scaled.__self__ is self is self.parent.odd
        return self.partial(self.drop(self.inner(x)))


def odd_model() -> Any:
    model: Any = build("bert").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    layer = model.bert.encoder.layer[0]
    model.odd = Odd(layer.intermediate.dense)
    object.__setattr__(model.odd, "parent", model)
    layer.intermediate.dense = model.odd
    return model


def test_references_outside_the_tree_lead_to_twins_and_what_a_pass_changes_is_the_twins() -> None:
    model = odd_model()
    odd = model.odd
    heads = Heads(model)
    calls = len(odd.calls)
    first, second = (heads.mean_outputs({"input_ids": TOKENS}) for _ in range(2))
    assert torch.equal(first, second)  # no dropout, also where a bound method of another module applies it
    assert (calls, len(odd.calls), float(odd.seen), hasattr(odd, "last")) == (0, 0, 0.0, False)
    assert model.training
    assert odd.drop.training


def test_a_hook_that_holds_on_to_the_model_is_not_run_with_a_twin() -> None:
    """It would run modules of the model, which may be in training mode: the model itself is read then, and
    put back."""
    model: Any = build("bert").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.9
    again = model.bert.encoder.layer[0].intermediate
    model.bert.encoder.layer[0].attention.register_forward_hook(
        lambda m, a, out: (out[0] + model.dropout(again(out[0])[..., :1]), *out[1:])
    )
    assert twins_of(model) is None
    heads = Heads(model)
    first, second = (heads.mean_outputs({"input_ids": TOKENS}) for _ in range(2))
    assert torch.equal(first, second)
    assert all(module.training for module in model.modules())


class Holder:
    """What somebody keeps a model in."""

    def __init__(self, model: Any) -> None:
        self.held = model


@pytest.mark.parametrize("way", ["the old forward", "a function", "a list", "an object", "a function inside"])
def test_what_reaches_the_model_by_a_global_name_is_not_run_with_a_twin(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook, where all names are global."""
    model: Any = build("bert").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.9
    layer = model.bert.encoder.layer[0]
    world: dict[str, Any] = {
        "old": layer.forward,
        "again": lambda states: model.dropout(states),
        "models": [model],
        "holder": Holder(model),
    }
    for name, value in world.items():
        monkeypatch.setitem(globals(), name, value)
    if way == "the old forward":
        layer.forward = lambda *inputs, **named: old(*inputs, **named)  # type: ignore[name-defined]  # noqa: F821
    hooks: dict[str, Any] = {
        "a function": lambda m, a, out: again(out),  # type: ignore[name-defined]  # noqa: F821
        "a list": lambda m, a, out: models[0].dropout(out),  # type: ignore[name-defined]  # noqa: F821
        "an object": lambda m, a, out: holder.held.dropout(out),  # type: ignore[name-defined]  # noqa: F821
        "a function inside": lambda m, a, out: (lambda: again(out))(),  # type: ignore[name-defined]  # noqa: F821
    }
    if way in hooks:
        layer.register_forward_hook(hooks[way])
    assert twins_of(model) is None
    heads = Heads(model)
    first, second = (heads.mean_outputs({"input_ids": TOKENS}) for _ in range(2))
    assert torch.equal(first, second)
    assert all(module.training for module in model.modules())


def test_modules_compiled_in_their_place_run_as_written() -> None:
    model: Any = build("bert")
    heads, expected = Heads(model), logits(model)
    model.bert.encoder.layer[0] = torch.compile(model.bert.encoder.layer[0], backend="eager")
    model.bert.encoder.layer[1].compile(backend="eager")
    means = heads.mean_outputs({"input_ids": TOKENS})
    with undisturbed(heads) as (twin,):
        assert torch.equal(logits(twin.model), expected)
        assert twin.model.bert.encoder.layer[1]._compiled_call_impl is None
    plain = build("bert")
    assert torch.equal(means, Heads(plain).mean_outputs({"input_ids": TOKENS}))
    torch._dynamo.reset()


def test_open_blocks_hold_for_twins_that_an_operation_reads() -> None:
    """As they did when the model itself was read."""
    heads = Heads(build("gpt2"))
    lesion = HeadSet([(0, 1), (1, 2)])
    with heads.silenced(lesion):
        expected = logits(heads.model)
        with twinned(heads.model, heads) as (model, twin):
            assert torch.equal(logits(model), expected)
            with twin.gated(torch.full(heads.shape, 0.5)):
                both = logits(model)
        with heads.gated(torch.full(heads.shape, 0.5)):
            assert torch.equal(logits(heads.model), both)
        assert twins_of(heads, blocks=False) is not None
        with undisturbed(heads) as (twin,):
            plain = logits(twin.model)
    assert torch.equal(plain, logits(heads.model))
    assert not torch.equal(plain, expected)


def test_a_steered_generation_is_steered_on_a_twin_too() -> None:
    heads = Heads(build("gpt2"))
    direction = {(0, 1): torch.full((8,), 5.0)}
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with heads.steered(direction, tokens="generated"):
        expected = heads.model.generate(TOKENS, **options)
        with twinned(heads.model) as (model,):
            assert torch.equal(model.generate(TOKENS, **options), expected)
    assert not torch.equal(heads.model.generate(TOKENS, **options), expected)


def test_an_offloaded_model_is_read_itself_and_left_as_it_was() -> None:
    model = build("bert")
    expected = Heads(model).mean_outputs({"input_ids": TOKENS})
    cpu_offload(model.train(), execution_device=torch.device("cpu"))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    heads = Heads(model)
    assert twins_of(model, heads) is None
    assert torch.equal(heads.mean_outputs({"input_ids": TOKENS}), expected)
    assert all(module.training for module in model.modules())
    with heads.gated(torch.zeros(heads.shape)):  # a block of ours stays open around a reference pass
        assert torch.equal(heads.mean_outputs({"input_ids": TOKENS}), expected)
        logits(model)


class Chancy(nn.Module):
    """A projection that draws in evaluation mode, too."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x) + 0.1 * torch.randn(())
        return output


@pytest.mark.parametrize("chancy", [True, False])
def test_the_random_state_is_taken_back_only_of_models_that_draw(
    chancy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = build("bert")
    if chancy:
        model.bert.encoder.layer[0].intermediate.dense = Chancy(
            model.bert.encoder.layer[0].intermediate.dense
        )
    before = torch.get_rng_state()
    heads = Heads(model)
    heads.mean_outputs({"input_ids": TOKENS})
    assert heads.draws is chancy
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(type(model), "forward", _drawing_beside(type(model).forward))
    heads.mean_outputs({"input_ids": TOKENS})  # another thread draws meanwhile
    assert torch.equal(torch.get_rng_state(), before) is chancy


def _drawing_beside(forward: Callable[..., Any]) -> Callable[..., Any]:
    def drawing(self: Any, *args: Any, **kwargs: Any) -> Any:
        torch.rand(7)
        return forward(self, *args, **kwargs)

    return drawing
