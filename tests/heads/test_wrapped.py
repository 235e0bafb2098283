"""Models as they are used: PEFT, torch.compile, gradient checkpointing, autocast, device maps, half
precision, training."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from peft import LoraConfig, get_peft_model
from small_models import build
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2ForSequenceClassification
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
GATES = torch.rand(3, 2, 4, generator=torch.Generator().manual_seed(1))


def test_lora_on_the_output_projection() -> None:
    plain = build("bert").eval()
    with torch.no_grad(), Heads(plain).gated(GATES):
        expected = plain(TOKENS).logits
    model: Any = get_peft_model(
        plain, LoraConfig(target_modules=["query", "attention.output.dense"], task_type="SEQ_CLS")
    ).eval()
    heads = Heads(model)
    assert heads.sites[0].path == "base_model.model.bert.encoder.layer.0.attention.output.dense"
    with torch.no_grad(), heads.gated(GATES):
        assert torch.equal(model(input_ids=TOKENS).logits, expected)  # a fresh adapter changes nothing
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
        with heads.gated(GATES), heads.recorded("last") as tape:
            adapted = model(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS)).logits
        with pytest.raises(HeadwiseError, match="head_mask"), heads.gated(GATES):
            model(input_ids=TOKENS, head_mask=torch.ones(2, 4))
        merged = model.merge_and_unload()
        with Heads(merged).gated(GATES):
            torch.testing.assert_close(adapted, merged(TOKENS).logits, rtol=1e-4, atol=1e-5)
    assert tape.outputs.shape == (3, 2, 4, 8)
    with pytest.raises(HeadwiseError, match="build Heads"), heads.gated(GATES):  # the adapters are gone
        merged(TOKENS)


@pytest.mark.parametrize(
    ("family", "targets"),
    [("gpt2", ["c_attn"]), ("llama", ["q_proj", "o_proj"])],
    ids=["a projection called attention", "DoRA"],
)
def test_adapters_that_look_like_something_else(family: str, targets: list[str]) -> None:
    settings = LoraConfig(target_modules=targets, use_dora=family == "llama", init_lora_weights=False)
    model: Any = get_peft_model(build(family), settings).eval()
    heads = Heads(model)
    assert heads.shape == (2, 4)
    with torch.no_grad(), heads.gated(GATES[0]):
        adapted = model(input_ids=TOKENS).logits
    merged = model.merge_and_unload()
    with torch.no_grad(), Heads(merged).gated(GATES[0]):
        torch.testing.assert_close(adapted, merged(input_ids=TOKENS).logits, rtol=1e-3, atol=1e-4)


def test_adapters_added_after_heads_were_found_are_noticed() -> None:
    plain = build("bert").eval()
    heads = Heads(plain)
    model: Any = get_peft_model(
        plain, LoraConfig(target_modules=["attention.output.dense"], task_type="SEQ_CLS")
    ).eval()
    with (
        pytest.raises(
            HeadwiseError, match=r"layer\.0\.attention\.output\.dense .*lora.*build Heads\(model\) again"
        ),
        heads.gated(GATES),
    ):
        model(input_ids=TOKENS)
    with pytest.raises(HeadwiseError, match="build Heads"):
        heads.remove(HeadSet([(0, 0)]))
    unadapted = build("bert").eval()
    plain_heads = Heads(unadapted)
    # A whole layer is exchanged: the same class, another module
    unadapted.bert.encoder.layer[1] = build("bert").bert.encoder.layer[1]
    with pytest.raises(HeadwiseError, match=r"layer\.1 of this .*another"), plain_heads.gated(GATES):
        unadapted(TOKENS)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in unadapted.modules())


def one_layer() -> Any:
    model: Any = build("bert").eval()
    del model.bert.encoder.layer[1]
    return model


def test_compiled_models_stay_compiled_with_hooks_set_before() -> None:
    heads = Heads(one_layer())
    heads.install()
    compiled = torch.compile(heads.model, backend="eager")
    with torch.no_grad():
        plain = compiled(TOKENS).logits
        for gates in (GATES[0, :1], GATES[1, :1]):
            with heads.gated(gates):
                inside, expected = compiled(TOKENS).logits, heads.model(TOKENS).logits
                with ThreadPoolExecutor(1) as pool:  # a pass of another thread is plain
                    assert torch.equal(
                        pool.submit(torch.no_grad()(lambda: compiled(TOKENS).logits)).result(), plain
                    )
            assert torch.equal(inside, expected)
            assert not torch.equal(inside, plain)
        assert torch.equal(compiled(TOKENS).logits, plain)
    heads.uninstall()
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in heads.model.modules())
    torch._dynamo.reset()


def gradients(heads: Heads, gates: Tensor) -> list[Tensor]:
    gates = gates.clone().requires_grad_()
    heads.model.zero_grad()
    with heads.gated(gates), heads.recorded("cls") as tape:
        out = heads.model(TOKENS)
        (out.logits if hasattr(out, "logits") else out[0]).pow(2).sum().backward()
    assert tape.outputs.shape[0] == 3  # recomputation is not recorded again
    return [gates.grad, *(p.grad.clone() for p in heads.model.parameters() if p.grad is not None)]  # type: ignore[list-item]


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant: bool) -> None:
    model = no_dropout(build("bert").train())
    heads = Heads(model)
    expected = gradients(heads, GATES)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    for ours, theirs in zip(gradients(heads, GATES), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_of_shared_layers(reentrant: bool) -> None:
    model: Any = no_dropout(build("albert").train())
    heads = Heads(model)
    gates = torch.rand(3, *heads.shape, generator=torch.Generator().manual_seed(2))
    expected = gradients(heads, gates)
    group = model.encoder.albert_layer_groups[0]
    forward = group.forward
    group.forward = lambda *args, **kwargs: checkpoint(
        lambda *a: forward(*a, **kwargs), *args, use_reentrant=reentrant
    )
    for ours, theirs in zip(gradients(heads, gates), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def no_dropout(model: nn.Module) -> Any:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def test_autocast_keeps_its_type() -> None:
    heads = Heads(build("bert").eval())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        plain = heads.model(TOKENS).logits
        with heads.gated(torch.ones(heads.shape, requires_grad=True)):
            inside = heads.model(TOKENS).logits
        with heads.gated(GATES), heads.recorded("mean") as tape:
            heads.model(TOKENS)
    assert plain.dtype == inside.dtype == tape.outputs.dtype == torch.bfloat16
    assert torch.equal(plain, inside)


def test_half_precision_models() -> None:
    heads = Heads(build("llama").to(torch.bfloat16).eval())
    with torch.no_grad(), heads.gated(GATES):
        assert heads.model(TOKENS).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("placed", ["dispatched", "offloaded"])
def test_device_maps(placed: str) -> None:
    model = build("bert").eval()
    heads = Heads(model)
    with torch.no_grad(), heads.gated(GATES):
        expected = model(TOKENS).logits
    if placed == "dispatched":
        dispatch_model(model, {"": "cpu"}, force_hooks=True)
    else:
        cpu_offload(model, execution_device=torch.device("cpu"))
    heads = Heads(model)
    with torch.no_grad(), heads.gated(GATES):
        assert torch.equal(model(TOKENS).logits, expected)


@pytest.mark.parametrize("offloaded", [False, True])
def test_a_model_that_returns_hidden_states_returns_each_once_after_building(offloaded: bool) -> None:
    """transformers sets its hooks for them in the first pass, which may be one of ours, and notes that in an
    attribute."""
    model = build("bert").eval()
    model.config.output_hidden_states = True
    with torch.no_grad():
        expected = deepcopy(model)(TOKENS).hidden_states
        if offloaded:  # which is read itself
            cpu_offload(model, execution_device=torch.device("cpu"))
        Heads(model)
        states = model(TOKENS).hidden_states
    assert len(states) == len(expected) == model.config.num_hidden_layers + 1
    assert all(
        torch.equal(state, expected_state) for state, expected_state in zip(states, expected, strict=True)
    )


def test_building_leaves_no_trace() -> None:
    model = no_dropout(build("bert").train())
    model.bert.encoder.layer[1].eval()  # modes may differ inside
    model.bert.embeddings.word_embeddings.weight.requires_grad_(False)
    model(TOKENS).logits.sum().backward()
    before = [
        (n, m.training, len(m._forward_pre_hooks), len(m._forward_hooks), sorted(m.__dict__))
        for n, m in model.named_modules()
    ]
    grads = {
        n: (p.requires_grad, None if p.grad is None else p.grad.clone(), p._version)
        for n, p in model.named_parameters()
    }
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    random = torch.random.get_rng_state()
    Heads(model)
    assert before == [
        (n, m.training, len(m._forward_pre_hooks), len(m._forward_hooks), sorted(m.__dict__))
        for n, m in model.named_modules()
    ]
    assert torch.equal(torch.random.get_rng_state(), random)
    assert all(torch.equal(b, buffers[n]) for n, b in model.named_buffers())
    for name, parameter in model.named_parameters():
        requires, grad, version = grads[name]
        assert (parameter.requires_grad, parameter._version) == (requires, version)
        assert (parameter.grad is None) == (grad is None)
        assert grad is None or torch.equal(parameter.grad, grad)
    with torch.inference_mode():
        Heads(model)
    assert torch.is_grad_enabled()


def test_training_inside_a_block_learns() -> None:
    heads = Heads(build("bert").train())
    optimizer = torch.optim.SGD(heads.model.parameters(), lr=0.1)
    weight = heads.model.get_submodule(heads.sites[0].path).weight
    before = weight.detach().clone()
    with heads.silenced(HeadSet([(0, 0)])):
        heads.model(TOKENS, labels=torch.tensor([0, 1, 0])).loss.backward()
        optimizer.step()
    moved = (weight != before).any(0).view(4, 8).any(1)  # by head
    assert moved.tolist() == [False, True, True, True]  # a silenced head's columns get no gradient


def test_a_task_model_without_padding_token() -> None:
    model = GPT2ForSequenceClassification(
        GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=50, bos_token_id=1, eos_token_id=1)
    )
    assert Heads(model).total == 8


def test_attention_that_cannot_be_watched_gives_way_while_heads_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        with torch._C.DisableTorchFunction():  # as a fused kernel: nothing of it is seen
            return torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(
                1, 2
            ).contiguous(), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "hidden_kernel", hidden)
    model: Any = build("bert").eval()
    expected = Heads(model).sites
    model.config._attn_implementation = "hidden_kernel"
    heads = Heads(model)
    assert heads.sites == expected
    assert model.config._attn_implementation == model.bert.config._attn_implementation == "hidden_kernel"
    with torch.no_grad(), heads.recorded("cls", attention=True) as tape:
        model(TOKENS)
    assert tape.attention[0].shape == (3, 4, 6, 6)
    assert model.config._attn_implementation == "hidden_kernel"
