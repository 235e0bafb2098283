"""A two-layer GPT-2 made by hand that completes repeated sequences: head 0.0 looks at the token before, head 1.1 is an induction head."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

WORDS, PLACES = 50, 64
WIDTH = 2 * WORDS + PLACES + 28  # tokens, positions, tokens before; the rest is free, so that two heads fit
HEADS = 3


def circuit() -> GPT2LMHeadModel:
    """Heads of 64; token t is the t-th unit vector, position p the (50 + p)-th, the token before lies after those."""
    torch.manual_seed(0)
    size = WIDTH // HEADS
    config = GPT2Config(
        n_embd=WIDTH, n_layer=2, n_head=HEADS, n_positions=PLACES, vocab_size=WORDS, n_inner=4,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    token, place, before = (
        slice(0, WORDS),
        slice(WORDS, WORDS + PLACES),
        slice(WORDS + PLACES, 2 * WORDS + PLACES),
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln_" not in name:
                parameter.copy_(torch.randn_like(parameter) * 1e-3)
        model.transformer.wte.weight.zero_()[:, token] = torch.eye(WORDS)
        model.transformer.wpe.weight.zero_()[:, place] = torch.eye(PLACES)
        model.lm_head.weight.zero_()[:, token] = torch.eye(WORDS) * 8

        def plant(layer: int, head: int, reads: slice, keys: slice, shift: int, writes: slice) -> None:
            attention = model.transformer.h[layer].attn
            query, key, value = (
                attention.c_attn.weight[:, part * WIDTH + head * size : part * WIDTH + (head + 1) * size]
                for part in range(3)
            )
            for weight in (query, key, value):
                weight.zero_()
            n = reads.stop - reads.start
            query[reads, :n] = torch.eye(n).roll(-shift, dims=1) * 8
            key[keys, :n] = torch.eye(n)
            value[token, :WORDS] = torch.eye(WORDS)
            attention.c_proj.weight[head * size : (head + 1) * size].zero_()
            attention.c_proj.weight[head * size : head * size + WORDS, writes] = torch.eye(WORDS)

        plant(0, 0, place, place, 1, before)
        plant(1, 1, token, before, 0, token)
    return model
