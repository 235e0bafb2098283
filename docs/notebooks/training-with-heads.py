# %% [markdown]
# # Training with heads
#
# Important-head training (IAT, Li et al. 2023) trains all tasks together at first; in the last part of training each task updates only
# the heads that matter to it. This notebook shows the building block, a training step that leaves all other heads untouched, and then
# compares IAT with plain multi-task training.
#
# The sentences are synthetic and the model is small: one seed shows how it works, not which method is better. Runs in about a minute on two
# cores.

# %%
# %pip install -q "../..[demo,figures]"

# %% [markdown]
# ## A step that moves only some heads
#
# A zero gradient is not enough: Adam's momentum and weight decay also move weights without a gradient. `training_only` keeps the other
# heads, and the optimizer's state for them, bit-identical.

# %%
import torch
from transformers import AutoModel, AutoTokenizer

import headwise as hw

model = AutoModel.from_pretrained(hw.heads.default_model(), dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(hw.heads.default_model())
heads = hw.Heads(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
batch = tokenizer(["One head learns.", "The others stay as they are."], padding=True, return_tensors="pt")

query = model.encoder.layer[2].attention.self.query.weight
before = query.detach().clone()
with heads.training_only(hw.HeadSet([(2, 5)]), optimizer):
    model(**batch).last_hidden_state.pow(2).mean().backward()
    optimizer.step()
moved = (query != before).view(12, 32, -1).any(dim=2).any(dim=1)  # per head: 12 heads of 32 rows each
print("heads of layer 2 whose query weights moved:", moved.nonzero().flatten().tolist())

# %% [markdown]
# ## IAT and plain multi-task training
#
# `alpha` is the fraction of heads that a task may update, `delta` the fraction of training, at the end, during which that applies.

# %%
import pandas as pd

from headwise import grammar

tasks = grammar.tasks(["tense", "sentiment"], size=128, held_out=100)
rows = []
for method, options in {"multi-task": {}, "iat": {"alpha": 0.3, "delta": 0.4}}.items():
    trained = hw.train("demo", tasks, method=method, epochs=2, learning_rate=3e-4, max_length=32, quiet=True, **options)
    rows.append({"method": method, **trained.table()["score"].drop("average")})
pd.DataFrame(rows).set_index("method").round(1)

# %% [markdown]
# ## Which heads each task updated
#
# The trained model remembers the heads that IAT chose.

# %%
chosen = trained.heads  # of the last training, IAT
print(chosen["tense"])
print("overlap:", round(chosen["tense"].overlap(chosen["sentiment"]), 2))

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained")
for axis, (name, head_set) in zip(axes, chosen.items()):
    axis.imshow(head_set.to_mask((6, 12)), cmap="Blues", origin="lower", vmin=0, vmax=1.4)
    axis.set(title=f"updated by {name}", xlabel="head", ylabel="layer", xticks=range(12), yticks=range(6))

# %% [markdown]
# More seeds, more methods and a table with means and standard deviations take one command:
#
#     headwise train --model demo --tasks grammar:tense grammar:sentiment --method multi-task iat --seeds 5 --out runs/iat
#
# [Training](../training.md) lists the methods, and [results](../results/important-heads.md) compares them with the paper.
