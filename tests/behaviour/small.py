"""Tiny models of the families that roles are compared on, and a tokenizer of one token per word."""

from typing import Any

import torch
import transformers as t

from words import LANGUAGE, word_tokenizer

COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "intermediate_size": 24,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

BUILDERS: dict[str, Any] = {
    "gpt2": lambda: t.GPT2LMHeadModel(
        t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=50, **TOKENS)
    ),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**COMMON, num_key_value_heads=2, **TOKENS)),
    "gemma": lambda: t.GemmaForCausalLM(t.GemmaConfig(**COMMON, num_key_value_heads=1, head_dim=8, **TOKENS)),
    "neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**COMMON, **TOKENS)),
    "bert": lambda: t.BertForMaskedLM(t.BertConfig(**COMMON, max_position_embeddings=64)),
    "t5": lambda: t.T5ForConditionalGeneration(
        t.T5Config(
            d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=24, vocab_size=50, decoder_start_token_id=0
        )
    ),
    "bart": lambda: t.BartForConditionalGeneration(
        t.BartConfig(
            d_model=32,
            vocab_size=50,
            **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
            **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 24),
            max_position_embeddings=64,
            decoder_start_token_id=2,
            **TOKENS,
        )
    ),
}
TEXTS = ["w3 w4 , w5 w3 . w9", "w7 , w7 w8 w7 w8 w11 w12 .", "w20 w3 w21 w3 w22"]


def build(family: str, seed: int = 0) -> Any:
    """One of `BUILDERS`, with weights large enough that attention is far from even."""
    torch.manual_seed(seed)
    model = BUILDERS[family]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def tokenizer(side: str = "right", begin: bool = True) -> Any:
    """Words w3 to w47 and two marks; "<s>" in front if `begin`."""
    words = [*LANGUAGE, *(f"w{i}" for i in range(3, 48)), ",", "."]
    return word_tokenizer(words, "<s>" if begin else "", padding_side=side)
