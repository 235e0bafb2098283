"""`headwise demo`: what headwise does, on two small models, in two minutes and without the network."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise._base.places import EMBEDDED
from headwise.cli.common import Json, Out, emit, own_bars

SENTENCES = (
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("The stock market fell sharply today.", "Share prices dropped a lot."),
    ("A cat sleeps on the sofa.", "The engine needs a new belt."),
)


def demo(
    out: Out = Path("runs/demo"),
    size: Annotated[
        int | None, typer.Option(min=16, help="Training examples per task; default: as in the tested demo.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Training epochs; default: as in the tested demo.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the text, the training and the random tokens.")
    ] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only show the model's layers and one lesion; takes seconds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Two findings and a report in about two minutes on two cores: the heads a language model copies with, and the heads each task needs.

    headwise demo --out runs/demo
    """
    own_bars()
    if quick:
        anatomy_and_lesion(as_json)
        return
    from headwise.report import write_report
    from headwise.studies import run_demo

    asked = {name: value for name, value in (("size", size), ("epochs", epochs)) if value is not None}
    found = run_demo(out, seed=seed, say=lambda text: typer.echo(text, err=True), **asked)
    report = write_report(found["folders"], out / "report.html", title="headwise demo (synthetic text)")
    results = {
        name: found[name] for name in ("copying", "dissociation", "training") if found[name] is not None
    }
    sections = {name: result.section() for name, result in results.items()}
    written = {"report": str(report), "figures": [str(file) for file in found["figures"]]}
    if emit({**{name: section.to_dict() for name, section in sections.items()}, **written}, as_json):
        return
    for section in sections.values():
        typer.echo(f"{section}\n")
    typer.echo(f"report: {report}\nfigures: {out / 'figures'}")


def anatomy_and_lesion(as_json: bool) -> None:
    """The anatomy of the embedded MiniLM, and what a lesion does to how it compares sentences."""
    from headwise.heads import Heads
    from headwise.models import open_model

    heads = Heads(open_model(EMBEDDED, need="heads"))
    sections = {"anatomy": heads.section(), "lesion": lesion_section(heads)}
    if not emit({name: section.to_dict() for name, section in sections.items()}, as_json):
        for section in sections.values():
            typer.echo(f"{section}\n")


def lesion_section(heads: Any) -> Any:
    """How alike the model finds pairs of sentences, intact and with each layer's heads silenced in turn."""
    import pandas as pd

    from headwise.heads import HeadSet
    from headwise.sections import Section, Table

    cosines = {"intact": _cosines(heads)}
    for layer, site in enumerate(heads.sites):
        with heads.silenced(HeadSet((layer, head) for head in range(site.n_heads))):
            cosines[f"layer {layer} silenced"] = _cosines(heads)
    table = pd.DataFrame({"sentences": [" / ".join(pair) for pair in SENTENCES], **cosines})
    alike = cosines["intact"][0]
    finding = f"Intact, the model gives two sentences of one meaning a cosine of {alike:.2f}, two unrelated ones {cosines['intact'][-1]:.2f}."
    return Section(
        "One layer's heads silenced",
        [finding],
        [Table("cosines", "Cosine of two sentences", table, "No weights changed.")],
    )


def _cosines(heads: Any) -> list[float]:
    import torch

    from headwise._base.opener import open_tokenizer
    from headwise._base.places import default_model

    tokenizer = open_tokenizer(default_model())
    batch = tokenizer([text for pair in SENTENCES for text in pair], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = heads.model(**batch).last_hidden_state  # (sentences, tokens, dim)
    real = batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize(
        (states * real).sum(1) / real.sum(1), dim=-1
    )  # mean of real tokens
    return [float(vectors[2 * i] @ vectors[2 * i + 1]) for i in range(len(SENTENCES))]
