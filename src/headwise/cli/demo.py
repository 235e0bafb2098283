"""`headwise demo`: what headwise does, on the embedded model, in a few seconds and without the network."""

from typing import Annotated, Any

import typer

from headwise.cli.common import emit, print_table

SENTENCES = (
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("The stock market fell sharply today.", "Share prices dropped a lot."),
    ("A cat sleeps on the sofa.", "The engine needs a new belt."),
)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("demo")(demo)


def demo(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Shows the anatomy of the embedded MiniLM, and what a lesion does to how it compares sentences."""
    from headwise.cli.inspect import show
    from headwise.heads.anatomy import anatomy
    from headwise.heads.heads import Heads
    from headwise.heads.opening import EMBEDDED, open_model

    heads = Heads(open_model(EMBEDDED))
    found = {**anatomy(heads), "model": "MiniLM (embedded)"}
    lesion = lesion_table(heads)
    if emit({"anatomy": found, "lesion": lesion}, as_json):
        return
    show(found)
    rows = [(row["pair"], row["intact"], *row["silenced"]) for row in lesion["pairs"]]
    names = [f"layer {layer} silenced" for layer in lesion["layers"]]
    print_table(
        "Cosine of two sentences, with all heads of one layer silenced",
        ("sentences", "intact", *names),
        rows,
        "no weights changed",
    )


def lesion_table(heads: Any) -> dict[str, Any]:
    """How alike the model finds pairs of sentences, intact and with each layer's heads silenced in turn."""
    from headwise.heads.headset import HeadSet

    layers = list(range(len(heads.sites)))
    intact = _cosines(heads)
    silenced = []
    for layer in layers:
        with heads.silenced(HeadSet((layer, head) for head in range(heads.sites[layer].n_heads))):
            silenced.append(_cosines(heads))
    pairs = [
        {"pair": " / ".join(pair), "intact": intact[i], "silenced": [values[i] for values in silenced]}
        for i, pair in enumerate(SENTENCES)
    ]
    return {"layers": layers, "pairs": pairs}


def _cosines(heads: Any) -> list[float]:
    import torch
    from transformers import AutoTokenizer

    from headwise.heads.embedded import default_model

    tokenizer = AutoTokenizer.from_pretrained(default_model())
    batch = tokenizer([text for pair in SENTENCES for text in pair], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = heads.model(**batch).last_hidden_state  # (sentences, tokens, dim)
    real = batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((states * real).sum(1) / real.sum(1), dim=-1)  # mean of real tokens
    return [float(vectors[2 * i] @ vectors[2 * i + 1]) for i in range(len(SENTENCES))]
