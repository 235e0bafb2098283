# %% [markdown]
# # Heads of a language model
#
# After "… Dursley … Durs", a language model predicts "ley": it looks for the previous occurrence of the current token and copies what
# followed. Two kinds of heads work together. A *previous-token head* writes into each position which token came before it; an *induction
# head*, in a later layer, uses that to find the place to copy from. We find both by their attention, and silence them to show that the model needs them.
#
# headwise bundles no language model, so the first cell trains a tiny one (2 layers × 4 heads) on repeated random tokens until it copies. All
# other cells work on any causal model: `AutoModelForCausalLM.from_pretrained(...)`. Runs in about a minute on two cores.

# %%
# %pip install -q "../..[figures]"

# %%
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headwise as hw

VOCABULARY = 16
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
STEPS = 700
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
for step in range(STEPS):
    length = int(torch.randint(4, 11, ()))  # varies, so that the distance says nothing and the model must look at tokens
    once = torch.rand(32, VOCABULARY).argsort(1)[:, :length]  # different tokens
    tokens = torch.cat([once, once], dim=1)
    logits = model(tokens).logits[:, length - 1 : -1]  # predictions of the second copy
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), once.flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
model.eval()
print(f"loss {loss:.2f}; guessing would be {torch.log(torch.tensor(VOCABULARY)):.2f}")

# %% [markdown]
# ## Copying
#
# New sequences: eight random tokens, twice. How often is the second copy predicted?

# %%
LENGTH = 8
once = torch.rand(200, VOCABULARY).argsort(1)[:, :LENGTH]
tokens = torch.cat([once, once], dim=1)


def copied() -> float:
    """Percentage of the tokens of the second copy (after its first) that the model predicts."""
    with torch.no_grad():
        predicted = model(tokens).logits[:, LENGTH:-1].argmax(-1)
    return 100 * (predicted == once[:, 1:]).float().mean().item()


heads = hw.Heads(model)
print(heads)
print(f"copied: {copied():.1f} %")

# %% [markdown]
# ## Where heads look
#
# `recorded(attention=True)` keeps the attention maps. A previous-token head attends one token back; an induction head, reading a token of the
# second copy, attends to the token *after* its first occurrence.

# %%
import matplotlib.pyplot as plt
import pandas as pd

with torch.no_grad(), heads.recorded(attention=True) as tape:
    model(tokens)
query = torch.arange(LENGTH, 2 * LENGTH - 1)
looks = pd.DataFrame(
    [
        {
            "head": f"{layer}.{head}",
            "previous token": tape.attention[layer][:, head, query, query - 1].mean().item(),
            "induction": tape.attention[layer][:, head, query, query - LENGTH + 1].mean().item(),
        }
        for layer, head in heads.all()
    ]
).set_index("head")
looks.round(2)

# %%
previous, induction = looks["previous token"].idxmax(), looks["induction"].idxmax()
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for axis, name, what in zip(axes, (previous, induction), ("previous token", "induction")):
    layer, head = map(int, name.split("."))
    axis.imshow(tape.attention[layer][0, head].numpy(), cmap="Blues", vmin=0, vmax=1)
    axis.set(title=f"head {name}: {what}", xlabel="key", ylabel="query", xticks=range(0, 16, 2), yticks=range(0, 16, 2))

# %% [markdown]
# ## Does the model need them?
#
# Attention shows where a head looks, not whether that matters. A lesion does: silence each head alone, then the two strongest
# induction heads together, and two others of the same layer.

# %%
lesions = {}
for layer, head in heads.all():
    with heads.silenced(hw.HeadSet([(layer, head)])):
        lesions[f"{layer}.{head}"] = copied()
looks["copied without it, %"] = pd.Series(lesions)
print(looks.round(2))

order = looks.loc["1.0":"1.3", "induction"].sort_values(ascending=False).index  # the heads of layer 1
best, rest = (hw.HeadSet(tuple(map(int, name.split("."))) for name in names) for names in (order[:2], order[2:]))
for head_set in (best, rest):
    with heads.silenced(head_set):
        print(f"without {head_set}: {copied():.1f} %")

# %% [markdown]
# In our run one head of layer 1 does most of the copying, and a second one some of it. The heads of layer 0 share the work of marking previous
# tokens, so that no single one of them is indispensable.
#
# ## Inside `generate()`
#
# Blocks also hold during generation. The prompt is a sequence and the beginning of its repetition; greedy decoding should finish it.

# %%
prompt = torch.cat([once[:50], once[:50, :2]], dim=1)
options = {"max_new_tokens": LENGTH - 2, "do_sample": False}


def finished() -> float:
    with torch.no_grad():
        text = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **options)
    return 100 * (text[:, -(LENGTH - 2) :] == once[:50, 2:]).float().mean().item()


print(f"intact: {finished():.0f} % of the generated tokens are right")
for head_set in (best, rest):
    with heads.silenced(head_set):
        print(f"without {head_set}: {finished():.0f} %")

# %% [markdown]
# ## Patching
#
# Replace the outputs of the two induction heads, at the last token of each prompt, by those from another prompt, and see whether the
# prediction follows.

# %%
with torch.no_grad():
    source = torch.cat([once[100:200], once[100:200, :4]], dim=1)
    target = torch.cat([once[:100], once[:100, :4]], dim=1)
    plain = model(target).logits[:, -1].argmax(-1)
    with heads.patched(best, {"input_ids": source, "attention_mask": torch.ones_like(source)}, tokens="last"):
        patched = model(input_ids=target, attention_mask=torch.ones_like(target)).logits[:, -1].argmax(-1)
print(f"own continuation: {100 * (plain == once[:100, 4]).float().mean():.0f} % before, {100 * (patched == once[:100, 4]).float().mean():.0f} % after")
print(f"the source's:     {100 * (plain == once[100:, 4]).float().mean():.0f} % before, {100 * (patched == once[100:, 4]).float().mean():.0f} % after")

# %% [markdown]
# [Generation](../generation.md) has steering, rows of attention for long texts, and large models.
