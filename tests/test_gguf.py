"""GGUF files as models: found by file or folder, read with dequantised weights, refused in one line where the reader is missing."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headwise._base import places
from headwise._base.opener import open_tokenizer
from headwise.engine import ModelName
from headwise.errors import HeadwiseError, MissingExtra
from headwise.heads import Heads, HeadSet
from headwise.models import open_model
from headwise.settings import Settings
from headwise.store._decision import model_parts

WORDS = ["<unk>", "<s>", "</s>", *(chr(ord("a") + i) for i in range(26)), "ab", "cd", "ef"]  # 32
PLACES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def written(file: Path) -> Any:
    """A tiny Llama, written as llama.cpp does with 8-bit blocks in one matrix; gives the model whose weights the file holds."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (extra gguf)")
    from gguf.quants import dequantize, quantize

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(
        LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=len(WORDS), tie_word_embeddings=False)
    ).eval()
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(["a b", "c d", "e f"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            own = name.removesuffix(".weight")
            prefix = ""
            if own.startswith("model.layers."):
                number, own = own.removeprefix("model.layers.").split(".", 1)
                prefix = f"blk.{number}."
            values = weight.numpy()
            if own == "self_attn.o_proj":
                blocks = quantize(values, gguf.GGMLQuantizationType.Q8_0)
                weight.copy_(torch.from_numpy(dequantize(blocks, gguf.GGMLQuantizationType.Q8_0).copy()))
                writer.add_tensor(
                    f"{prefix}{PLACES[own]}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0
                )
                continue
            if own in (
                "self_attn.q_proj",
                "self_attn.k_proj",
            ):  # llama.cpp interleaves the halves of rotary pairs
                n = 4 if own.endswith("q_proj") else 2
                values = values.reshape(n, 2, 4, 32).swapaxes(1, 2).reshape(values.shape)
            writer.add_tensor(f"{prefix}{PLACES[own]}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_gguf_file_opens_as_a_plain_model_that_saves(tmp_path: Path) -> None:
    (tmp_path / "gguf").mkdir()
    expected = written(tmp_path / "gguf" / "tiny.gguf")
    ids = torch.tensor([[1, 5, 9, 7, 4, 30]])
    for given in (tmp_path / "gguf" / "tiny.gguf", tmp_path / "gguf"):
        model = open_model(given, need="heads")
        assert isinstance(model, LlamaForCausalLM)
        with torch.no_grad():
            torch.testing.assert_close(model(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-5)
        answers = open_model(given)
        assert [task.kind for task in answers.tasks.values()] == ["next-token"]
        assert answers.tokenizer.convert_ids_to_tokens(answers.tokenizer("ab")["input_ids"])[-1] == "ab"
    heads = Heads(model)
    with torch.no_grad(), heads.silenced(HeadSet([(0, 1)])):
        silenced = model(ids).logits
    assert not torch.allclose(silenced, expected(ids).logits)
    model.save_pretrained(tmp_path / "plain")
    again = LlamaForCausalLM.from_pretrained(tmp_path / "plain")
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-5)
    assert open_tokenizer(model.config.name_or_path).get_vocab().keys() >= {"ab", "cd"}


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF one")
    assert places.model_place(tmp_path) == str(tmp_path / "a.gguf")
    before = model_parts(tmp_path)
    assert before == model_parts(tmp_path / "a.gguf")
    (tmp_path / "a.gguf").write_bytes(b"GGUF two")
    assert model_parts(tmp_path)["weights"] != before["weights"]
    (tmp_path / "b.gguf").touch()
    with pytest.raises(HeadwiseError, match=r"holds 2 GGUF files: give one of them, for instance .*a\.gguf"):
        places.model_place(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert places.model_place(tmp_path) == str(tmp_path)


def test_a_recipe_takes_a_gguf_file(tmp_path: Path) -> None:
    """By file or by folder, relative to the recipe; it counts by its content, under any name."""
    (tmp_path / "gguf").mkdir()
    file = tmp_path / "gguf" / "tiny.gguf"
    written(file)

    class Asked(Settings):
        model: ModelName

    def named(given: str) -> ModelName:
        return Asked.model_validate({"model": given}, context={"base": tmp_path}).model

    for given in ("gguf/tiny.gguf", "gguf", str(file)):
        assert named(given) == str(file)
    before = named("gguf").fingerprint()
    assert isinstance(open_model(named("gguf"), need="heads"), LlamaForCausalLM)
    file.rename(tmp_path / "other.gguf")
    assert named("other.gguf").fingerprint() == before
    with (tmp_path / "other.gguf").open("ab") as end:
        end.write(b"more")
    assert named("other.gguf").fingerprint() != before
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "gguf" / name).write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="holds 2 GGUF files: give one of them"):
        named("gguf")
    with pytest.raises(ValueError, match="looked for a model folder"):
        named("./none.gguf")


def test_a_recipe_says_which_extra_reads_gguf_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(places, "find_spec", lambda name: None if name == "gguf" else find_spec(name))

    class Asked(Settings):
        model: ModelName

    with pytest.raises(ValueError, match=r"pip install 'headwise\[gguf\]'"):
        Asked.model_validate({"model": "a.gguf"}, context={"base": tmp_path})


def test_without_the_reader_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(places, "find_spec", lambda name: None if name == "gguf" else find_spec(name))
    with pytest.raises(
        MissingExtra, match=r"gguf is not installed; install it with: pip install 'headwise\[gguf\]'"
    ):
        open_model(tmp_path / "a.gguf")


def test_without_a_tokenizer_the_hint_is_no_saving_into_the_file(tmp_path: Path) -> None:
    """Nothing can be saved into a file of weights."""
    (tmp_path / "a.gguf").write_bytes(b"GGUF of nothing")
    pytest.importorskip("gguf", reason="gguf is not installed (extra gguf)")
    with pytest.raises(
        HeadwiseError,
        match=r"no tokenizer could be opened .*a\.gguf'.*with its tokenizer, or pass tokenizer=",
    ) as caught:
        open_tokenizer(tmp_path / "a.gguf")
    assert "save" not in str(caught.value)
