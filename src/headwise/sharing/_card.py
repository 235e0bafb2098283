"""Model cards: what a saved folder holds, made from the folder alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headwise._base.inference import MIN_EXAMPLES, share_interval
from headwise._base.opener import identity
from headwise._base.parsing import read_json
from headwise._base.writing import make_folder, write_bytes
from headwise.errors import MissingExtra
from headwise.heads import read_config
from headwise.report.folders import sections_of
from headwise.sections import HeadMaps, Section, Table, shown_columns, shown_rows
from headwise.store import manifest
from headwise.tasks import KINDS

PICTURE = "figures/heads.png"
MOST = 40  # rows of a table
RESULTS = ("scores", "dissociation", "probes", "study")  # kinds that the report has sections for
CITATION = """```bibtex
@software{headwise,
  title = {headwise: the attention heads of Hugging Face transformers},
  author = {{The headwise authors}},
  version = {VERSION},
  license = {Apache-2.0}
}
```"""


@dataclass
class Card:
    """A model card.

    Attributes:
        text: of README.md, with YAML in front.
        files: what it shows, {path beside it: bytes}.
    """

    text: str
    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, folder: str | Path) -> Path:
        """Writes README.md and what it shows into a folder; gives README.md."""
        target = make_folder(folder)
        for name, content in self.files.items():
            make_folder((target / name).parent)
            write_bytes(target / name, content)
        write_bytes(target / "README.md", self.text.encode())
        return target / "README.md"


def card(folder: str | Path, name: str = "") -> Card:
    """The card of a folder that headwise saved: what was done, the head map, scores with intervals, how to load it, how to cite.

    Args:
        folder: the folder.
        name: of its repository on the hub, for the lines that load it; default: the folder's own name.

    Raises:
        HeadwiseError: headwise did not save it.
    """
    place = Path(folder)
    record = manifest.read(place)
    kind = record["kind"]
    shown = Shown(place, record, name or place.name)
    if kind == "removed-heads":
        _removed(shown)
    elif kind == "head-embedding":
        _embedding(shown)
    elif kind in ("multi-task", "task-model", "single-task", "embedded-model"):
        _trained(shown)
    elif kind in RESULTS:
        _results(shown, sections_of(place))
    else:
        shown.done.append(f"A {kind} saved by headwise.")
    return shown.card()


@dataclass
class Shown:
    """The parts of a card, as they are gathered."""

    folder: Path
    record: Mapping[str, Any]
    name: str
    title: str = ""
    base: str = ""
    done: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    plain: str = ""  # the class with which transformers opens it
    draw: Callable[[], Any] | None = None
    caption: str = ""

    def card(self) -> Card:
        """All of it as text and files."""
        files, notes = {}, []
        if self.draw is not None:
            try:
                files[PICTURE] = _png(self.draw())
            except MissingExtra as error:
                notes.append(f"(No picture: {error}.)")
        picture = [f"![{self.caption}]({PICTURE})", f"*{self.caption}*"] if files else notes
        library = "transformers" if self.plain else "headwise"
        front = [
            "---",
            f"library_name: {library}",
            "tags:",
            "- headwise",
            "- attention-heads",
            f"- {self.record['kind']}",
        ]
        front += [f"base_model: {self.base}"] * ("/" in self.base and not self.base.startswith("/")) + ["---"]
        title = self.title or f"{self.name.rpartition('/')[2]}: {self.record['kind']}"
        made = self.record.get("command")
        parts = ["\n".join(front), f"# {_text(title)}", *self.done, *picture]
        if self.results:
            parts += ["## Results", *self.results]
        parts += ["## How to load", self._loading()]
        if made:
            parts += ["Made by:", f"```sh\n{made}\n```"]
        parts += ["## Citation", CITATION.replace("VERSION", str(self.record["headwise"]))]
        return Card("\n\n".join(parts) + "\n", files)

    def _loading(self) -> str:
        ours = f'import headwise as hw\n\nloaded = hw.from_pretrained("{self.name}")  # or hw.load(folder)'
        if not self.plain:
            return f"```python\n{ours}\n```"
        theirs = (
            f'from transformers import {self.plain}\n\nmodel = {self.plain}.from_pretrained("{self.name}")'
        )
        return f"It is an ordinary model of transformers:\n\n```python\n{theirs}\n```"


def _removed(shown: Shown) -> None:
    config = read_config(shown.folder)
    shown.base = shown.record.get("base") or identity(config)[0]
    surgeries = shown.record["surgeries"]
    cuts = [cut["removed"] for cut in surgeries] or config.headwise_removed
    left = _heads_left(config, cuts, ordinary=not surgeries)  # (layers, heads)
    gone = int(np.isfinite(left).sum() - np.nansum(left))
    kind = shown.record["model_class"]
    shown.title = f"{shown.base} without {gone} of its attention heads"
    shown.plain = "" if surgeries else kind
    shown.done.append(
        f"headwise removed {gone} of the {int(np.isfinite(left).sum())} attention heads of {_text(shown.base)} (`{kind}`). "
        "The smaller model computes what the whole one computes with these heads silenced, which was checked when it was made."
    )
    rows = [
        {"layer": i, "heads": int(np.nansum(row)), "removed": " ".join(map(str, np.flatnonzero(row == 0)))}
        for i, row in enumerate(left)
    ]
    shown.results.append(_markdown(pd.DataFrame(rows)))
    _draw(shown, left, "Heads of every layer; dark: removed")


def _heads_left(config: Any, cuts: list[list[list[int]]], *, ordinary: bool) -> np.ndarray[Any, Any]:
    """1 where a head is left, 0 where it was removed, by the numbers of the model before the first cut."""
    first = [layer for layer, _ in cuts[0]]
    before = config.num_attention_heads
    if ordinary:
        before += sum(sum(layer == first[0] for layer, _ in cut) for cut in cuts)
    layers = config.num_hidden_layers * (3 if config.is_encoder_decoder else 1)
    left = np.ones((max(layers, max(first) + 1), before))
    for cut in cuts:
        sites = [row for row in range(len(left)) if left[row].any()]  # layers without heads are not counted
        alive = [np.flatnonzero(left[row]) for row in sites]
        for site, head in cut:
            left[sites[site], alive[site][head]] = 0
    return left


def _embedding(shown: Shown) -> None:
    config = read_config(shown.folder)
    shown.base = shown.record.get("base") or identity(config)[0]
    heads = shown.record["heads"]
    layers = max(config.num_hidden_layers, 1 + max(layer for layer, _ in heads))
    chosen = np.zeros((layers, max(config.num_attention_heads, 1 + max(head for _, head in heads))))
    for layer, head in heads:
        chosen[layer, head] = 1
    shown.title = f"Sentence vectors from {len(heads)} attention heads"
    named = ", ".join(f"{layer}.{head}" for layer, head in heads)
    shown.done.append(
        f"A head embedding: the outputs of heads {named} (layer.head) of {_text(shown.base)}, "
        f"{shown.record['pooling']} pooling, one after the other. "
        f"Layers above {max(layer for layer, _ in heads)} are not computed. It is a module of sentence-transformers and a transformer of "
        "scikit-learn."
    )
    _draw(shown, chosen, "Heads of every layer; bright: those whose outputs make the vector")


def _trained(shown: Shown) -> None:
    tasks = shown.record["tasks"]
    names = [task if isinstance(task, str) else task["name"] for task in tasks]
    configs = [shown.folder / "encoder" / "config.json", shown.folder / "config.json"]
    if config := next((read_json(file) for file in configs if file.is_file()), None):
        shown.base = str(config.get("_name_or_path") or "")
    shown.title = f"A model of {len(names)} task{'s' * (len(names) != 1)}: {', '.join(names)}"
    one = {
        "multi-task": "One encoder with a decoder for each task.",
        "single-task": "One model for each task.",
    }
    shown.done.append(
        one.get(shown.record["kind"], "A model for the tasks.") + f" Tasks: {_text(', '.join(names))}."
    )
    if not (shown.folder / "training.json").is_file():
        return
    from headwise.training import TrainingResult

    trained = TrainingResult.load(shown.folder)
    shown.base = str(trained.description.get("model") or shown.base)
    shown.done.append(
        f"Trained by the method {_text(trained.description['method'])} from {_text(Path(shown.base).name)}."
    )
    kinds = {task["name"]: task["kind"] for task in tasks if not isinstance(task, str)}
    rows = [_with_interval(row, kinds.get(row["task"], "")) for row in trained.scores.to_dict("records")]
    shown.results.append(_markdown(pd.DataFrame(rows)))
    shown.results.append(
        "Scores in percent. Intervals: 95 %, exact, over examples, where the score is a share of them."
    )
    sections = sections_of(shown.folder)
    _first_figure(shown, sections[0])


def _with_interval(row: Mapping[Any, Any], kind: str) -> dict[str, Any]:
    between, examples = "–", int(row["examples"])
    if row["metric"] == "accuracy" and kind in KINDS and KINDS[kind].one_class and examples >= MIN_EXAMPLES:
        low, high = share_interval(round(row["score"] * examples), examples)
        between = f"{100 * low:.1f} to {100 * high:.1f}"
    values = {name: row[name] for name in ("task", "split", "metric")}
    return {**values, "score": f"{100 * row['score']:.1f}", "interval": between, "examples": examples}


def _results(shown: Shown, sections: list[Section]) -> None:
    first = sections[0]
    shown.title = first.title
    shown.base = str(first.settings.get("model", ""))
    shown.done.append(_text(first.methods))
    for section in sections:
        shown.results.append("\n".join(f"- {_text(finding)}" for finding in section.findings))
    for table in first.tables:
        shown.results.append(f"**{_text(table.title)}**\n\n{_markdown(table.frame)}")
    _first_figure(shown, first)


def _first_figure(shown: Shown, section: Section) -> None:
    """The head maps of a section, or its first chart."""
    drawn = sorted(section.figures, key=lambda figure: not isinstance(figure, HeadMaps))
    if drawn:
        shown.draw, shown.caption = drawn[0].draw, _text(f"{drawn[0].title}. {drawn[0].caption}".strip())


def _draw(shown: Shown, values: Any, caption: str) -> None:
    def draw() -> Any:
        from headwise.figures import heads_heatmap, panels

        figure, axes = panels(size=(4.0, 3.2))
        heads_heatmap(axes.flat[0], values, limits=(0.0, 1.0))
        return figure

    shown.draw, shown.caption = draw, caption


def _png(figure: Any) -> bytes:
    from headwise.figures import write_figure

    file = BytesIO()
    write_figure(figure, file, dpi=120, format="png")
    return file.getvalue()


def _markdown(frame: pd.DataFrame) -> str:
    """A table of Markdown; long ones are cut."""
    shown = shown_columns(Table("", "", frame))
    lines = ["| " + " | ".join(_text(column.heading) for column in shown) + " |", "|" + "---|" * len(shown)]
    lines += ["| " + " | ".join(map(_text, cells)) + " |" for cells in shown_rows(shown)[:MOST]]
    if len(frame) > MOST:
        lines.append(f"\n{len(frame) - MOST} further rows are in the files.")
    return "\n".join(lines)


def _text(value: Any) -> str:
    """Text that Markdown and HTML take as text."""
    return escape(" ".join(str(value).split()), quote=False).replace("|", "\\|")
