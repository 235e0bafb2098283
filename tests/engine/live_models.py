"""Live models as users bring them, small and random, with a task they answer; also imported by a process that a test starts."""

from typing import Any

import peft
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForSequenceClassification,
)

import planted

SIZE: dict[str, Any] = {
    "id2label": {0: "0", 1: "1"},
    "vocab_size": len(planted.WORDS),
    "initializer_range": 0.5,
}
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    **SIZE,
}


def bert(**changes: Any) -> Any:
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(max_position_embeddings=32, **{**SMALL, **changes})
    ).eval()


def llama(**changes: Any) -> Any:
    """Its configuration names no padding token."""
    torch.manual_seed(0)
    return LlamaForSequenceClassification(
        LlamaConfig(**{"max_position_embeddings": 32, **SMALL, **changes})
    ).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **SIZE)).eval()


def adapted(kind: str) -> Any:
    """A BERT with two adapters of one kind, "default" and "two", which add something; "default" is in use."""
    base = bert()
    layers = {"task_type": "SEQ_CLS", "target_modules": ["query", "value"]}
    made = {
        "lora": lambda: peft.LoraConfig(r=2, init_lora_weights=False, **layers),
        "dora": lambda: peft.LoraConfig(r=2, init_lora_weights=False, use_dora=True, **layers),
        "ia3": lambda: peft.IA3Config(feedforward_modules=[], init_ia3_weights=False, **layers),
        "prompt": lambda: peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3),
    }[kind]
    torch.manual_seed(1)
    model = peft.get_peft_model(base, made())
    model.add_adapter("two", made())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ia3" in name:
                parameter.copy_(torch.randn(parameter.shape))
    return model.eval()


def scaled(model: Any) -> None:
    """Another strength of an adapter."""
    for module in model.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.set_scale("default", 8.0)


def with_eps(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1.0


def with_relu(model: Any) -> None:
    model.bert.encoder.layer[0].intermediate.intermediate_act_fn = nn.ReLU()


def turned_slower(model: Any) -> None:
    """Other frequencies of the rotary embedding."""
    model.model.rotary_emb.inv_freq.mul_(0.1)
