# %% [markdown]
# # Which heads does a task need?
#
# We train a small encoder on two tasks, score every head for each task, and silence the best heads of one task at a time. If the tasks need
# different heads, each task suffers most from its own lesion.
#
# The model is the MiniLM embedded in the extra `demo` (6 layers × 12 heads); the sentences are generated, so they are synthetic. The settings
# are those of `headwise demo`, chosen on seeds 100 to 104; here are seeds 0, 1 and 2, all of them shown. The notebook takes about three
# minutes on two cores.

# %%
# %pip install -q "../..[demo,figures]"

# %% [markdown]
# Run the line above once, from a clone of the repository (headwise is not on PyPI yet).

# %%
import headwise as hw
from headwise import grammar

names = ["topic", "sentiment"]
tasks = grammar.tasks(names, size=320, held_out=200, shared_words=True, seed=0)
for task in tasks:
    text, label = next(iter(task.split("train")))
    print(f"{task.name}: {text[0]!r} is {task.classes[label]!r}")

# %% [markdown]
# ## Train, then score
#
# `hw.train` adds a decoder per task and trains everything together. `hw.score` measures how strongly each task's loss reacts to each head's
# gate (Eq. 4 of Li et al. 2023), on training data.

# %%
how = dict(epochs=3, batch_size=16, learning_rate=1e-4, decoder_learning_rate=1e-3, clip=1.0, pooling="cls", max_length=48)
trained = hw.train("demo", tasks, method="multi-task", **how, seed=0, quiet=True)
trained.table()

# %%
scores = hw.score(trained.model, tasks, quiet=True)

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
for axis, name in zip(axes, names):
    shown = axis.imshow(scores.sel(task=name), cmap="cividis", origin="lower")
    axis.set(title=name, xlabel="head", ylabel="layer", xticks=range(12), yticks=range(6))
    for layer, head in hw.top_heads(scores.sel(task=name), fraction=0.2):
        axis.text(head, layer, "✕", ha="center", va="center", color="tab:red")
    figure.colorbar(shown, ax=axis, shrink=0.6, label="importance")

# %% [markdown]
# Crosses mark each task's top 20 % of heads, 14 of 72.
#
# ## Silence them
#
# Inside `silenced`, every forward pass runs without these heads. Nothing in the model changes.

# %%
heads = hw.Heads(trained.model.encoder)
chosen = {name: hw.top_heads(scores.sel(task=name), fraction=0.2) for name in names}
for name, lesion in chosen.items():
    with heads.silenced(lesion):
        found = {task.name: hw.evaluate(trained.model, task, quiet=True).score for task in tasks}
    print(f"without the heads of {name:9}", {task: round(100 * score, 1) for task, score in found.items()})

# %% [markdown]
# ## The whole experiment
#
# `hw.dissociate` does this for all tasks, adds random head sets of the same size and bootstrap intervals over held-out examples, and
# computes the dissociation score D: how much more a task loses by its own lesion than by another task's.

# %%
result = hw.dissociate(trained.model, tasks, fraction=0.2, scores=scores, random_draws=5, quiet=True)
result.table().round(1)

# %%
result.table("pairs").round(2).T

# %%
result.plot("relative")

# %% [markdown]
# Read a row as a lesion (`topic†`: the heads of topic silenced) and a column as a task.
#
# ## Other seeds
#
# D has an interval over the held-out examples of one model. Another seed is another model, and other sentences: the same settings again,
# twice.

# %%
found = {0: result}
for seed in (1, 2):
    others = grammar.tasks(names, size=320, held_out=200, shared_words=True, seed=seed)
    model = hw.train("demo", others, method="multi-task", **how, seed=seed, quiet=True).model
    found[seed] = hw.dissociate(model, others, fraction=0.2, random_draws=0, seed=seed, quiet=True)
for seed, one in found.items():
    row = one.table("pairs").iloc[0]
    print(f"seed {seed}: D = {row['D']:.1f} % ({row['D_low']:.1f} to {row['D_high']:.1f}), {row['verdict']}")

# %% [markdown]
# Three models are shown one by one, since three are too few for an interval over seeds. [Dissociation](../dissociation.md) explains every
# column, and the test of D.
