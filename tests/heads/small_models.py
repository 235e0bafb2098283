"""A few tiny random models (2 layers, 4 heads of 8) with known layouts, for tests that need more than one
family.

Weights are larger than usual at the start of training, so that a wrong slice shows.
"""

import torch
import transformers as t
from torch import nn

COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
FFN = {**COMMON, "intermediate_size": 24}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

BUILDERS = {
    "bert": lambda: t.BertForSequenceClassification(t.BertConfig(**FFN, max_position_embeddings=32)),
    "gpt2": lambda: t.GPT2LMHeadModel(
        t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=50, **TOKENS)
    ),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**FFN, num_key_value_heads=2, **TOKENS)),
    "neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**FFN, **TOKENS)),
    "bloom": lambda: t.BloomForCausalLM(
        t.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=50, **TOKENS)
    ),
    "falcon-mha": lambda: t.FalconForCausalLM(
        t.FalconConfig(**COMMON, multi_query=False, alibi=True, **TOKENS)
    ),
    "falcon-mqa": lambda: t.FalconForCausalLM(t.FalconConfig(**COMMON, multi_query=True, **TOKENS)),
    "falcon-gqa": lambda: t.FalconForCausalLM(
        t.FalconConfig(**COMMON, num_kv_heads=2, new_decoder_architecture=True, **TOKENS)
    ),
    "modernbert": lambda: t.ModernBertModel(
        t.ModernBertConfig(**FFN, **TOKENS, cls_token_id=1, sep_token_id=2, attn_implementation="sdpa")
    ),
    "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**FFN, num_key_value_heads=2, **TOKENS)),
    "t5": lambda: t.T5ForConditionalGeneration(
        t.T5Config(
            d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=24, vocab_size=50, decoder_start_token_id=0
        )
    ),
    "bart": lambda: t.BartModel(
        t.BartConfig(
            d_model=32,
            vocab_size=50,
            **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
            **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
            **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 24),
            max_position_embeddings=32,
        )
    ),
    "albert": lambda: t.AlbertModel(t.AlbertConfig(**{**FFN, "num_hidden_layers": 3}, embedding_size=16)),
    "mpnet": lambda: t.MPNetModel(t.MPNetConfig(**FFN)),
    "deberta": lambda: t.DebertaV2Model(
        t.DebertaV2Config(**FFN, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4)
    ),
    "latent": lambda: t.DeepseekV3Model(
        t.DeepseekV3Config(
            **FFN,
            q_lora_rank=16,
            kv_lora_rank=12,
            qk_rope_head_dim=4,
            qk_nope_head_dim=8,
            v_head_dim=8,
            first_k_dense_replace=2,
            n_routed_experts=4,
            **TOKENS,
        )
    ),
    "olmo2": lambda: t.Olmo2Model(t.Olmo2Config(**FFN, **TOKENS)),
    "vit": lambda: t.ViTModel(
        t.ViTConfig(**{k: v for k, v in FFN.items() if k != "vocab_size"}, image_size=16, patch_size=8)
    ),
}


def build(family: str, seed: int = 0) -> nn.Module:
    """One of `BUILDERS`, in evaluation mode."""
    torch.manual_seed(seed)
    model: nn.Module = BUILDERS[family]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()
