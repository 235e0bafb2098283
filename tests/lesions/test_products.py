"""Products by oneDNN are those of plain torch, and taken only where nothing but the order of summation changes."""

import threading
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.pytorch_utils import Conv1D

import headwise as hw
import planted
from headwise._passes import products
from headwise._passes.products import OneDNN, quick_products
from headwise._passes.subject import computing

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN"
)
CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"vocab_size": len(planted.WORDS), "initializer_range": 0.3}
MODELS = {
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=48,
        )
    ),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SIZES, n_embd=32, n_layer=3, n_head=4, n_positions=40)),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """oneDNN is the faster one, at any size; lists the shapes of the weights that it multiplied by."""
    found: list[tuple[int, ...]] = []
    product = products._product

    def watched(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        found.append(tuple(weight.shape))
        return product(x, weight, bias)

    monkeypatch.setattr(products, "_product", watched)
    monkeypatch.setattr(products, "faster", lambda: True)
    monkeypatch.setattr(products, "WORTH", 1)
    monkeypatch.setattr(products, "ROWS", 1)
    return found


@pytest.mark.parametrize("kind", MODELS)
def test_leave_one_out_equals_a_loop_in_float64(kind: str, taken: list[tuple[int, ...]]) -> None:
    torch.manual_seed(2)
    model, tokenizer = MODELS[kind]().eval(), planted.tokenizer()
    rng = np.random.default_rng(0)
    rows = [(" ".join(rng.choice(planted.FILLERS, 9)),) for _ in range(3)]
    task = hw.Task("t", data={"train": rows, "validation": rows[:1]}, kind="next-token")
    found = hw.score(
        model, task, method="ablation", measure="loss", tokenizer=tokenizer, quiet=True
    ).to_numpy()
    assert len(taken) > 3 * 12  # every lesion took it

    exact = deepcopy(model).double()
    ids = torch.tensor([tokenizer(text)["input_ids"] for (text,) in rows])

    def loss() -> float:
        with torch.no_grad():
            logits = exact(ids, use_cache=False).logits[:, :-2]  # [SEP] is not text that is predicted
            return float(cross_entropy(logits.flatten(0, 1), ids[:, 1:-1].flatten()))

    intact, expected = loss(), np.empty((3, 4))
    for layer in range(3):
        place = (
            exact.model.layers[layer].self_attn.o_proj
            if kind == "llama"
            else exact.transformer.h[layer].attn.c_proj
        )
        for head in range(4):
            part = slice(8 * head, 8 * head + 8)
            handle = place.register_forward_pre_hook(
                lambda module, args, part=part: (_without(args[0], part),)
            )
            expected[layer, head] = loss() - intact
            handle.remove()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.abs(expected).min() > 1e-4  # every head does something


def _without(x: Tensor, part: slice) -> Tensor:
    x = x.clone()
    x[..., part] = 0
    return x


@pytest.mark.parametrize("shape", [(40, 24), (5, 8, 24), (2, 3, 7, 24)])
def test_products_equal_those_in_float64(shape: tuple[int, ...], taken: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    x, weight, square, bias = torch.randn(shape), torch.randn(16, 24), torch.randn(24, 24), torch.randn(24)
    conv = Conv1D(16, 24).requires_grad_(False)
    strided = torch.randn(*shape[:-1], 48)[..., ::2]
    with torch.no_grad(), quick_products(CPU):
        found = [
            linear(x, weight),
            linear(x, square, bias),
            linear(strided, weight.T.contiguous().T),
            conv(x),
        ]
        turned = torch.addmm(bias, x.flatten(0, -2), square)
    assert len(taken) == 5
    wide, exact = x.double(), [t.double() for t in (weight, square, bias)]
    torch.testing.assert_close(found[0].double(), wide @ exact[0].T, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1].double(), wide @ exact[1].T + exact[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[2].double(), strided.double() @ exact[0].T, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        found[3].double(), wide @ conv.weight.double() + conv.bias.double(), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(
        turned.double(), wide.flatten(0, -2) @ exact[1] + exact[2], rtol=1e-5, atol=1e-5
    )


@pytest.mark.filterwarnings("ignore:TF32")
def test_whatever_else_runs_as_it_would(taken: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(40, 24), torch.nn.Parameter(torch.randn(16, 24))
    bias = torch.randn(16)
    with quick_products(CPU), OneDNN():  # the first does nothing where gradients are wanted
        linear(x, weight).sum().backward()
        assert weight.grad is not None
    with torch.no_grad(), OneDNN():
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(x, weight).dtype == torch.bfloat16
        assert linear(x.double(), weight.double()).dtype == torch.float64
        taken.clear()
        for call in (
            lambda: linear(x, torch.randn(16, 48)[:, ::2]),
            lambda: linear(x, weight, bias=bias),
            lambda: torch.addmm(bias, x, weight.T, beta=0.5),
            lambda: torch.addmm(torch.randn(40, 16), x, weight.T),
            lambda: linear(x[0], weight),
        ):
            call()
        with pytest.raises(RuntimeError, match="shapes"):
            linear(x, torch.randn(16, 23))
    with torch.no_grad(), computing("bf16", CPU):
        assert linear(x, weight).dtype == torch.bfloat16
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), quick_products(CPU):
        linear(x, weight)
    assert not taken


def test_small_products_stay_where_they_are(
    taken: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "WORTH", 40 * 24 * 16)
    monkeypatch.setattr(products, "ROWS", 8)
    with torch.no_grad(), quick_products(CPU):
        for rows, outputs in ((40, 16), (40, 15), (39, 16), (8, 80), (7, 100)):
            linear(torch.randn(rows, 24), torch.randn(outputs, 24))
    assert taken == [(16, 24), (80, 24)]


def test_other_threads_are_left_alone(taken: list[tuple[int, ...]]) -> None:
    def work() -> None:
        with torch.no_grad():
            linear(torch.randn(40, 24), torch.randn(16, 24))

    with torch.no_grad(), quick_products(CPU):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not taken


@pytest.mark.parametrize(
    ("capability", "vendor", "expected"),
    [
        ("AVX512", "AuthenticAMD", True),
        ("AVX512", "GenuineIntel", False),
        ("AVX2", "AuthenticAMD", False),
        ("AVX512", None, False),
    ],
)
def test_it_is_for_avx_512_beside_intel(
    capability: str, vendor: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*args: Any, **kwargs: Any) -> str:
        if vendor is None:
            raise FileNotFoundError
        return f"processor\t: 0\nvendor_id\t: {vendor}\n"

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(products.Path, "read_text", read)
    assert products.faster.__wrapped__() == expected
