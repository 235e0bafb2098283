"""`headwise demo`: what headwise does, on two small models, in two minutes and without the network."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise._base.least import EXPLAINED
from headwise.cli.common import Json, Out, emit, own_bars, print_table

SENTENCES = (
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("The stock market fell sharply today.", "Share prices dropped a lot."),
    ("A cat sleeps on the sofa.", "The engine needs a new belt."),
)


def demo(
    out: Out = Path("runs/demo"),
    size: Annotated[int | None, typer.Option(min=16, help="Training examples per task; default: as in the tested demo.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Training epochs; default: as in the tested demo.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the text, the training and the random tokens.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Only show the model's layers and one lesion; takes seconds.")] = False,
    as_json: Json = False,
) -> None:
    """Two findings and a report in about two minutes on two cores: the heads a language model copies with, and the heads each task needs.

    headwise demo --out runs/demo
    """
    own_bars()
    if quick:
        anatomy_and_lesion(as_json)
        return
    from headwise.figures._blocks import between
    from headwise.report import write_report
    from headwise.studies._demo import FRACTION, run_demo

    asked = {name: value for name, value in (("size", size), ("epochs", epochs)) if value is not None}
    found = run_demo(out, seed=seed, say=lambda text: typer.echo(text, err=True), **asked)
    report = write_report(found["folders"], out / "report.html", title="headwise demo (synthetic text)")
    tables = {name: found[name].reset_index() for name in ("scores", "performance", "pairs")}
    titles = {
        "scores": f"{len(found['scores']) - 1} tasks, one model (synthetic text): scores in percent",
        "performance": f"Each task (column) with the top {100 * FRACTION:g} % of heads of a task silenced (row), in percent; "
        + found["dissociation"].random_note,
        "pairs": "Pairs of tasks (synthetic text): dissociation in percent, with 95 % intervals over examples; verdicts on point estimates",
    }
    if found["copying"]:
        tables = {"copying": found["copying"].summary, **tables}
        heads = ", ".join(f"{layer}.{head}" for layer, head in found["copying"].heads)
        titles["copying"] = f"{found['copying'].model}: repeated tokens predicted, in percent; its induction heads are {heads}"
    low, high, why = found["dissociation"].analysis.d_bounds()
    written = {"report": str(report), "figures": [str(file) for file in found["figures"]]}
    records = {name: table.to_dict("records") for name, table in tables.items()}
    if emit({**records, "d": found["d"], "d_interval": None if why else [low, high], "d_interval_note": why, **written}, as_json):
        return
    for name, table in tables.items():
        shown = table.drop(columns=[c for c in ("index", "p", "p_fdr", "note") if c in table]).round(1)
        print_table(titles[name], [str(c) for c in shown.columns], shown.to_numpy().tolist())
    typer.echo(
        f"D of all tasks is {100 * found['d']:.1f} %{between(100 * low, 100 * high) or f' (no interval: {why})'}: how much more a task loses "
        f"without its own heads than without another task's\n{EXPLAINED}\nreport: {report}\nfigures: {out / 'figures'}"
    )


def anatomy_and_lesion(as_json: bool) -> None:
    """The anatomy of the embedded MiniLM, and what a lesion does to how it compares sentences."""
    from headwise._base.places import EMBEDDED, model_label
    from headwise.cli.inspect import show
    from headwise.heads._find.anatomy import anatomy
    from headwise.heads._heads import Heads
    from headwise.models import open_model

    heads = Heads(open_model(EMBEDDED, need="heads"))
    found = {**anatomy(heads), "model": model_label(EMBEDDED)}
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
    from headwise.heads._headset import HeadSet

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

    from headwise._base.opener import open_tokenizer
    from headwise._base.places import default_model

    tokenizer = open_tokenizer(default_model())
    batch = tokenizer([text for pair in SENTENCES for text in pair], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = heads.model(**batch).last_hidden_state  # (sentences, tokens, dim)
    real = batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((states * real).sum(1) / real.sum(1), dim=-1)  # mean of real tokens
    return [float(vectors[2 * i] @ vectors[2 * i + 1]) for i in range(len(SENTENCES))]
