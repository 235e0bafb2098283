"""What the zoo knows about single families: which values make them small, where the common names are not
enough."""

from collections.abc import Callable
from typing import Any

import torch
from zoo_inputs import wave

# Small values by the names configurations use.
SMALL: dict[str, Any] = {
    **dict.fromkeys(
        (
            "hidden_size",
            "d_model",
            "n_embd",
            "embed_dim",
            "dim",
            "emb_dim",
            "embedding_size",
            "projection_dim",
        ),
        32,
    ),
    **dict.fromkeys(
        ("hidden_dim", "out_hidden_size", "text_hidden_size", "encoder_hidden_size", "decoder_hidden_size"),
        32,
    ),
    **dict.fromkeys(
        ("attention_hidden_size", "output_hidden_size", "encoder_hidden_dim", "hidden_size_global"), 32
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2
    ),
    **dict.fromkeys(
        ("num_decoder_layers", "num_encoder_layers", "depth", "layers", "decoder_num_hidden_layers"), 2
    ),
    **dict.fromkeys(
        (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "encoder_attention_heads",
            "attention_heads",
        ),
        4,
    ),
    **dict.fromkeys(
        (
            "decoder_attention_heads",
            "decoder_num_attention_heads",
            "encoder_num_attention_heads",
            "num_key_value_heads",
        ),
        4,
    ),
    **dict.fromkeys(
        (
            "intermediate_size",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "d_ff",
            "ffn_dim",
            "mlp_dim",
            "n_inner",
            "dim_ff",
        ),
        48,
    ),
    **dict.fromkeys(
        (
            "ffn_hidden_size",
            "d_inner",
            "dff",
            "decoder_intermediate_size",
            "dim_feedforward",
            "encoder_feedforward_dim",
        ),
        48,
    ),
    **dict.fromkeys(
        (
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "expert_ffn_hidden_size",
        ),
        16,
    ),
    **dict.fromkeys(
        ("vocab_size", "text_vocab_size", "t2u_vocab_size", "char_vocab_size", "entity_vocab_size"), 99
    ),
    **dict.fromkeys(("vocab_size_per_layer_input",), 99),
    **dict.fromkeys(("hidden_size_per_layer_input",), 8),
    **dict.fromkeys(
        (
            "max_position_embeddings",
            "n_positions",
            "max_target_positions",
            "n_ctx",
            "max_seq_len",
            "model_max_length",
        ),
        128,
    ),
    **dict.fromkeys(
        (
            "head_dim",
            "d_kv",
            "kv_channels",
            "v_head_dim",
            "qk_nope_head_dim",
            "d_head",
            "attention_head_dim",
            "dim_head",
        ),
        8,
    ),
    **dict.fromkeys(("global_head_dim", "swa_head_dim", "index_head_dim"), 8),
    "qk_rope_head_dim": 4,
    "rotary_dim": 4,
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(
        ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "moe_num_shared_experts"),
        4,
    ),
    **dict.fromkeys(
        (
            "num_experts_per_tok",
            "num_experts_per_token",
            "moe_topk",
            "moe_k",
            "num_selected_experts",
            "top_k_experts",
        ),
        2,
    ),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    "image_size": 32,
    "patch_size": 8,
    **dict.fromkeys(("codebook_size", "num_embeddings"), 64),
    "num_queries": 6,
    "num_mel_bins": 16,
    "sliding_window": 16,
    "max_source_positions": 20,
    "type_vocab_size": 2,
}


def many(names: str, **values: Any) -> dict[str, dict[str, Any]]:
    """The same values for several model types."""
    return dict.fromkeys(names.split(), values)


# Half of a head_dim of 8
MROPE = {
    "rope_type": "default",
    "rope_theta": 10_000.0,
    "mrope_section": [2, 1, 1],
}
# Half of half a head_dim of 16
HALF_MROPE = {
    **MROPE,
    "mrope_section": [1, 1, 2],
    "partial_rotary_factor": 0.5,
}
XDROPE = {"rope_type": "default", "rope_theta": 10_000.0, "xdrope_section": [1, 1, 1, 1]}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_expand": 2, "mamba_chunk_size": 8}
UNSET = dict.fromkeys(("num_layers", "num_hidden_layers", "hidden_size", "num_attention_heads"), ...)
SWIN = {"patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, **UNSET}

# What differs for one model type; `...` leaves a value to the configuration class.
CHANGES: dict[str, dict[str, Any]] = {
    **many("hunyuan_v1_dense hunyuan_v1_moe ministral nemotron", head_dim=8, num_key_value_heads=2),
    **many("qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_5_omni_talker", rope_parameters=MROPE),
    **many("paddleocr_vl_text cosmos3_edge_text", rope_parameters=MROPE),
    **many("glm4v_text glm_ocr_text glm_image_text glm4v_moe_text", head_dim=16, rope_parameters=HALF_MROPE),
    **many("swin swinv2 donut-swin maskformer-swin", **SWIN),
    **many("longformer led", attention_window=4),
    **many(
        "aya_vision cohere2_vision deepseek_vl paligemma gemma3 colpali",
        vision_config={"vision_use_head": False},
    ),
    "bamba": {**MAMBA, "attn_layer_indices": [1], "layer_types": ...},
    "bros": {"hidden_size": 64, "dim_bbox_projection": 16},
    "canine": {
        "local_transformer_stride": 4,
        "downsampling_rate": 2,
        "attend_from_chunk_width": 4,
        "attend_to_chunk_width": 4,
    },
    "deepseek_v2": {"topk_group": 1, "n_group": 1, "num_experts_per_tok": 2},
    "deepseek_v4": {"o_groups": 2, "head_dim": 16, "num_key_value_heads": 1},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.0] * 4,
        "intermediate_size": 48,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "attention_layers": ...},
    "granitemoehybrid": {**MAMBA, "layer_types": ["mamba", "attention"], "layers_block_type": ...},
    "hunyuan_vl_text": {"head_dim": 8, "num_key_value_heads": 2, "rope_parameters": XDROPE},
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_dt_rank": 4,
        "layers_block_type": ...,
        "layer_types": ...,
    },
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "visual_embed": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lilt": {"channel_shrink_ratio": 2, "max_2d_position_embeddings": 1024, "hidden_size": 48},
    "longcat_flash": {"head_dim": 4, "zero_expert_num": 2},
    "reformer": {
        "axial_pos_embds_dim": (8, 24),
        "axial_pos_shape": (4, 4),
        "attention_head_size": 8,
        "num_buckets": 4,
        "lsh_attn_chunk_length": 4,
        "local_attn_chunk_length": 4,
        "attn_layers": ["lsh", "local"],
        "max_position_embeddings": 16,
    },
    "step3p5": {"sliding_window": 16},
    "vits": {
        "upsample_initial_channel": 16,
        "upsample_rates": [2, 2],
        "upsample_kernel_sizes": [4, 4],
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1]],
        "flow_size": 16,
        "spectrogram_bins": 9,
        "wavenet_layers": 2,
        "prior_encoder_num_flows": 2,
        "posterior_encoder_num_wavenet_layers": 2,
    },
    "xmod": {"default_language": "en_XX"},
    "zamba2": {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "layer_types": ...,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "mamba_d_state": 8,
        "attention_head_dim": 16,
        "attention_hidden_size": 64,
        "chunk_size": 8,
        "num_mem_blocks": 1,
    },
    "zaya": {"num_experts_per_tok": 1},
}

# Inputs of families whose input cannot be guessed from their signature: model -> keyword arguments.
EXAMPLES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "canine": lambda model: {"input_ids": torch.arange(5, 69).view(2, 32)},
    "vit_mae": lambda model: {"pixel_values": wave(2, 3, 32, 32), "noise": wave(2, 16)},
}
