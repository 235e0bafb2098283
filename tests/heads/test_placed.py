"""Patching, steering and rows of attention on weights that are offloaded, quantised or sharded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from small_models import build
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations.bitnet import BitLinear, pack_weights

import headwise
from headwise._passes.frozen import with_gradients
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, UnsupportedModel

IDS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
LEFT = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1]])
SETS = [HeadSet([(0, 1)]), HeadSet([(1, 3), (0, 0)]), HeadSet([(1, 2)])]
DIRECTIONS = {(0, 1): torch.linspace(-1, 1, 8), (1, 2): torch.ones(8)}


def everything(heads: Heads) -> list[Tensor]:
    """Generation inside each kind of block: logits of every step, outputs and rows of attention."""
    model: Any = heads.model
    options: dict[str, Any] = {
        "max_new_tokens": 3,
        "min_new_tokens": 3,
        "do_sample": False,
        "pad_token_id": 0,
    }
    options |= {"output_logits": True, "return_dict_in_generate": True, "attention_mask": LEFT}
    tensors: list[Tensor] = []
    source = {"input_ids": IDS.flip(0), "attention_mask": LEFT}
    for block in (
        heads.silenced(SETS[1]),
        heads.gated(torch.linspace(0, 1, 24).view(3, 2, 4)),
        heads.patched(SETS, source),
        heads.steered(DIRECTIONS, tokens="generated"),
    ):
        with torch.no_grad(), block, heads.recorded("last", attention="last") as tape:
            tensors += model.generate(IDS, **options).logits
        tensors += [tape.outputs, *tape.attention]
    return tensors


@pytest.mark.parametrize("placed", ["dispatched", "cpu", "disk"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_weights_that_accelerate_brings(family: str, placed: str, tmp_path: Path) -> None:
    expected = everything(Heads(build(family)))
    model = build(family)
    if placed == "dispatched":
        dispatch_model(model, {"": "cpu"}, force_hooks=True)
    elif placed == "cpu":
        cpu_offload(model, execution_device=torch.device("cpu"))
    else:
        disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    heads = Heads(model)
    for ours, theirs in zip(everything(heads), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    if placed != "dispatched":
        with pytest.raises(UnsupportedModel, match="on meta: bake"):
            heads.bake(DIRECTIONS)


@torch.compiler.set_stance("force_eager")  # the unpacking is compiled otherwise, which takes minutes
def test_one_and_a_half_bits(tmp_path: Path) -> None:
    """BitNet's packed weights, the quantisation that transformers loads without another package: as the model
    with the same weights."""
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        vocab_size=50,
        pad_token_id=0,
        quantization_config={"quant_method": "bitnet", "modules_to_not_convert": ["lm_head"]},
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    state = dict(model.state_dict())
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            state[f"{name}.weight"] = pack_weights(torch.randint(-1, 2, module.weight.shape).float())
            state[f"{name}.weight_scale"] = torch.tensor([4.0])
    model.save_pretrained(tmp_path, state_dict=state)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    heads = Heads(loaded)
    projection = loaded.get_submodule(heads.sites[0].path)
    assert isinstance(projection, BitLinear)
    assert projection.weight.dtype == torch.uint8
    everything(heads)
    with torch.no_grad(), heads.silenced(SETS[0]):
        silenced = loaded(IDS).logits

    def zero(module: nn.Module, args: Any) -> Any:
        x = args[0].clone()
        x[..., 8:16] = 0
        return (x, *args[1:])

    handle = projection.register_forward_pre_hook(zero)
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, silenced)
    handle.remove()
    with pytest.raises(UnsupportedModel, match=r"torch\.uint8 .* bake\(\) writes into plain weights"):
        heads.bake(DIRECTIONS)
    with (
        pytest.raises(HeadwiseError, match=r"q_proj \(BitLinear .* hands no true gradient back"),
        with_gradients(loaded),
    ):
        pass  # it rounds what it reads


@pytest.mark.slow
def test_sharded_weights_in_two_processes(tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(Path(headwise.__file__).parent.parent)])
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--rdzv_backend",
        "c10d",
    ]
    command += ["--rdzv_endpoint", "localhost:0", str(here / "sharded_script.py"), str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads((tmp_path / "sharded.json").read_text())
    for order in ("before", "after"):
        assert max(record[order]["apart"]) < 1e-6
        assert "is a DTensor, not a plain parameter (sharded" in record[order]["said"]
        assert "data-parallel" in record[order]["said"]
