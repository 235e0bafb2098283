# %% [markdown]
# # What each head knows, and head embeddings
#
# A probe is a small classifier that reads one head's output. If it can tell whether the subject is singular or plural, that head's output
# holds the number. We fit a probe to every head and every layer at once, then use the best heads as a sentence embedding (Jo and Myaeng 2020).
#
# The sentences are synthetic and few, so the numbers show how it works; [results](../results/probing.md) has those on SentEval. Runs in
# about a minute on two cores.

# %%
# %pip install -q "../..[demo,figures,embeddings]"

# %%
import headwise as hw
from headwise.probing import grammar_tasks

tasks = grammar_tasks(1200, ["SubjNumber", "BigramShift"])
probes = hw.probe("demo", tasks, examples=200, quiet=True)
probes.table()[["majority", "best head", "last", "best", "top"]].round(3)

# %% [markdown]
# Training data fit the probes, validation chooses the penalty, the best layer and the top heads, and the scores are on test. Compare each
# score with the majority class, and with the same probes on shuffled labels (the difference is the selectivity):

# %%
gain = probes.selectivity.max(dim=["layer", "head"])
print({str(task): round(float(gain.sel(task=task)), 2) for task in gain["task"].values})

# %% [markdown]
# ## One map per task
#
# In this small run some heads know the subject's number; BigramShift stays near chance in every head.

# %%
probes.heatmap()

# %%
probes.profile(3, 7).round(3)

# %% [markdown]
# ## Head embeddings
#
# The outputs of the twelve heads best at one task, side by side, are a vector as wide as a hidden state. Only the layers up to the highest
# chosen head are computed.

# %%
heads = probes.top(12, "SubjNumber")
embedding = hw.HeadEmbedding(hw.heads.default_model(), heads)
sentences = ["The dog barks.", "The dogs bark.", "A child sleeps.", "The children sleep."]
vectors = embedding.encode(sentences)
print(heads)
print(vectors.shape, "from", embedding.layers, "of 6 layers")

# %% [markdown]
# It is a sentence-transformers module, so it works wherever those do. Here the same logistic regression reads the head embedding and the
# model's mean-pooled sentence vector:

# %%
import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

number = next(task for task in tasks if task.name == "SubjNumber")
texts = {split: [text[0] for text, _ in number.split(split)] for split in ("train", "test")}
labels = {split: np.array([label for _, label in number.split(split)]) for split in ("train", "test")}
encoders = {
    "head embedding": SentenceTransformer(modules=[embedding], device="cpu"),
    "mean of the last layer": SentenceTransformer(hw.heads.default_model(), device="cpu"),
}
for name, encoder in encoders.items():
    x = {split: encoder.encode(texts[split], show_progress_bar=False) for split in texts}
    fitted = LogisticRegression(max_iter=2000).fit(x["train"], labels["train"])
    print(f"{name}: {100 * fitted.score(x['test'], labels['test']):.1f} % of {len(labels['test'])} test sentences")

# %% [markdown]
# [Probing](../probing.md) explains what is measured and the controls; [head embeddings](../head-embeddings.md) has saving and fine-tuning.
