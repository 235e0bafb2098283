"""`headwise demo`: what headwise does, on two small models, in two minutes and without the network."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

import headwise as hw
from headwise import models, report, studies
from headwise._base.opener import open_tokenizer
from headwise._base.places import EMBEDDED, default_model
from headwise.cli.common import Json, Out, emit
from headwise.sections import Section, Table

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
    """Two findings and a report in about two minutes on two cores: the heads a language model copies with,
    and the heads each task needs.

    headwise demo --out runs/demo
    """
    if quick:
        show_sections(quick_sections(), as_json)
        return
    sizes = {name: value for name, value in (("size", size), ("epochs", epochs)) if value is not None}
    results = studies.run_demo(out, seed=seed, say=lambda text: typer.echo(text, err=True), **sizes)
    page = report.write_report(
        results["folders"], out / "report.html", title="headwise demo (synthetic text)"
    )
    findings = [name for name in ("copying", "dissociation", "training") if results[name] is not None]
    files = {"report": str(page), "figures": [str(file) for file in results["figures"]]}
    show_sections({name: results[name].section() for name in findings}, as_json, **files)
    if not as_json:
        typer.echo(f"report: {page}\nfigures: {out / 'figures'}")


def show_sections(sections: Mapping[str, Section], as_json: bool, **files: Any) -> None:
    """Prints sections one after the other; in JSON by their names, with the files that were written."""
    if not emit({**{name: section.to_dict() for name, section in sections.items()}, **files}, as_json):
        for section in sections.values():
            typer.echo(f"{section}\n")


def quick_sections() -> dict[str, Section]:
    """The anatomy of the embedded MiniLM, and what a lesion does to how it compares sentences."""
    heads = hw.Heads(models.open_model(EMBEDDED, need="heads"))
    return {"anatomy": heads.section(), "lesion": lesion_section(heads)}


def lesion_section(heads: "hw.Heads") -> Section:
    """How alike the model finds pairs of sentences, intact and with each layer's heads silenced in turn."""
    import pandas as pd

    cosines = {"intact": _cosines(heads)}
    for layer, site in enumerate(heads.sites):
        with heads.silenced(hw.HeadSet((layer, head) for head in range(site.n_heads))):
            cosines[f"layer {layer} silenced"] = _cosines(heads)
    table = pd.DataFrame({"sentences": [" / ".join(pair) for pair in SENTENCES], **cosines})
    finding = (
        f"Intact, the model gives two sentences of one meaning a cosine of {cosines['intact'][0]:.2f}, two "
        f"unrelated ones {cosines['intact'][-1]:.2f}."
    )
    cosine_table = Table("cosines", "Cosine of two sentences", table, "No weights changed.")
    return Section("One layer's heads silenced", [finding], [cosine_table])


def _cosines(heads: "hw.Heads") -> list[float]:
    import torch

    tokenizer = open_tokenizer(default_model())
    batch = tokenizer(list(chain.from_iterable(SENTENCES)), padding=True, return_tensors="pt")
    with torch.no_grad():
        states = heads.model(**batch).last_hidden_state  # (sentences, tokens, dim)
    real = batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize(
        (states * real).sum(1) / real.sum(1), dim=-1
    )  # mean of real tokens
    return [float(vectors[2 * i] @ vectors[2 * i + 1]) for i in range(len(SENTENCES))]
