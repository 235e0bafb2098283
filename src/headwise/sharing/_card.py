"""Model cards: what a saved folder holds, made from the folder alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from headwise.figures import heads_heatmap, panels, write_figure
from headwise.heads import read_config
from headwise.report.folders import sections_of
from headwise.sections import HeadMaps, Section, Table, shown_columns, shown_rows
from headwise.store import manifest
from headwise.tasks import KINDS
from headwise.training import TrainingResult

PICTURE = "figures/heads.png"
MOST = 40  # rows of a table
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


@dataclass(frozen=True)
class Picture:
    """The figure of a card."""

    draw: Callable[[], Any]
    caption: str


@dataclass(frozen=True)
class Contents:
    """What a card says.

    Attributes:
        title: a line.
        base: the model that it began with; empty where that is not known.
        paragraphs: what was done.
        results: lists and tables.
        picture: the figure, if there is one.
        transformers_class: the class with which transformers opens it; empty where headwise alone does.
    """

    title: str
    base: str = ""
    paragraphs: Sequence[str] = ()
    results: Sequence[str] = ()
    picture: Picture | None = None
    transformers_class: str = ""


def card(folder: str | Path, name: str = "") -> Card:
    """The card of a folder that headwise saved: what was done, the head map, scores with intervals, how to
    load it, how to cite.

    Args:
        folder: the folder.
        name: of its repository on the hub, for the lines that load it; default: the folder's own name.

    Raises:
        HeadwiseError: headwise did not save it.
    """
    folder = Path(folder)
    record = manifest.read(folder)
    kind = record["kind"]
    name = name or folder.name
    if kind in CONTENTS:
        contents = CONTENTS[kind](folder, record)
    else:
        title = f"{name.rpartition('/')[2]}: {kind}"
        contents = Contents(title, paragraphs=[f"A {kind} saved by headwise."])
    return _card(contents, record, name)


def _card(contents: Contents, record: Mapping[str, Any], name: str) -> Card:
    front = [
        f"library_name: {'transformers' if contents.transformers_class else 'headwise'}",
        "tags:",
        "- headwise",
        "- attention-heads",
        f"- {record['kind']}",
    ]
    if "/" in contents.base and not contents.base.startswith("/"):
        front.append(f"base_model: {contents.base}")
    blocks = ["\n".join(["---", *front, "---"]), f"# {_text(contents.title)}", *contents.paragraphs]
    files = {}
    if contents.picture is not None:
        caption = contents.picture.caption
        try:
            files[PICTURE] = _png(contents.picture.draw())
            blocks += [f"![{caption}]({PICTURE})", f"*{caption}*"]
        except MissingExtra as error:
            blocks.append(f"(No picture: {error}.)")
    if contents.results:
        blocks += ["## Results", *contents.results]
    blocks += ["## How to load", _loading(contents.transformers_class, name)]
    command = record.get("command")
    if command:
        blocks += ["Made by:", f"```sh\n{command}\n```"]
    blocks += ["## Citation", CITATION.replace("VERSION", str(record["headwise"]))]
    return Card("\n\n".join(blocks) + "\n", files)


def _loading(transformers_class: str, name: str) -> str:
    if not transformers_class:
        return (
            "```python\nimport headwise as hw\n\n"
            f'loaded = hw.from_pretrained("{name}")  # or hw.load(folder)\n```'
        )
    return (
        "It is an ordinary model of transformers:\n\n```python\nfrom transformers import "
        f"{transformers_class}\n\n"
        f'model = {transformers_class}.from_pretrained("{name}")\n```'
    )


def _removed(folder: Path, record: Mapping[str, Any]) -> Contents:
    config = read_config(folder)
    base = record.get("base") or identity(config)[0]
    surgeries = record["surgeries"]
    cuts = [cut["removed"] for cut in surgeries] or config.headwise_removed
    present = _heads_present(config, cuts, ordinary=not surgeries)  # (layers, heads)
    removed = int((present == 0).sum())
    rows = []
    for layer, row in enumerate(present):
        numbers = " ".join(map(str, np.flatnonzero(row == 0)))
        rows.append({"layer": layer, "heads": int(row.sum()), "removed": numbers})
    return Contents(
        title=f"{base} without {removed} of its attention heads",
        base=base,
        paragraphs=[
            f"headwise removed {removed} of the {present.size} attention heads of {_text(base)} "
            f"(`{record['model_class']}`). The smaller model computes what the whole one computes with these "
            "heads silenced, which was checked when it was made."
        ],
        results=[_markdown(pd.DataFrame(rows))],
        picture=_head_map(present, "Heads of every layer; dark: removed"),
        transformers_class="" if surgeries else record["model_class"],
    )


def _heads_present(config: Any, cuts: list[list[list[int]]], *, ordinary: bool) -> np.ndarray[Any, Any]:
    """1 where a head is present, 0 where it was removed, by the numbers of the model before the first cut."""
    first = [layer for layer, _ in cuts[0]]
    before = config.num_attention_heads
    if ordinary:
        for cut in cuts:
            before += sum(layer == first[0] for layer, _ in cut)
    layers = config.num_hidden_layers * (3 if config.is_encoder_decoder else 1)
    present = np.ones((max(layers, max(first) + 1), before))
    for cut in cuts:
        sites = np.flatnonzero(present.any(axis=1))  # layers without heads are not counted
        numbers = [np.flatnonzero(present[site]) for site in sites]
        for site, head in cut:
            present[sites[site], numbers[site][head]] = 0
    return present


def _embedding(folder: Path, record: Mapping[str, Any]) -> Contents:
    config = read_config(folder)
    base = record.get("base") or identity(config)[0]
    heads = record["heads"]
    last_layer, last_head = (max(numbers) for numbers in zip(*heads, strict=True))
    layers, width = (
        max(config.num_hidden_layers, 1 + last_layer),
        max(config.num_attention_heads, 1 + last_head),
    )
    used = np.zeros((layers, width))
    for layer, head in heads:
        used[layer, head] = 1
    names = ", ".join(f"{layer}.{head}" for layer, head in heads)
    return Contents(
        title=f"Sentence vectors from {len(heads)} attention heads",
        base=base,
        paragraphs=[
            f"A head embedding: the outputs of heads {names} (layer.head) of {_text(base)}, "
            f"{record['pooling']} pooling, one after the other. Layers above {last_layer} are not computed. "
            "It is a module of sentence-transformers and a transformer of scikit-learn."
        ],
        picture=_head_map(used, "Heads of every layer; bright: those whose outputs make the vector"),
    )


def _trained(folder: Path, record: Mapping[str, Any]) -> Contents:
    kinds = {}
    for task in record["tasks"]:
        name, kind = (task, "") if isinstance(task, str) else (task["name"], task["kind"])
        kinds[name] = kind
    base = ""
    for file in (folder / "config.json", folder / "encoder" / "config.json"):
        if file.is_file():
            base = str(read_json(file).get("_name_or_path") or "")
    models = MODELS.get(record["kind"], "A model for the tasks.")
    contents = Contents(
        title=f"A model of {len(kinds)} task{'s' * (len(kinds) != 1)}: {', '.join(kinds)}",
        base=base,
        paragraphs=[f"{models} Tasks: {_text(', '.join(kinds))}."],
    )
    if not (folder / "training.json").is_file():
        return contents
    training = TrainingResult.load(folder)
    base = str(training.description.get("model") or base)
    method = _text(training.description["method"])
    rows = [_with_interval(row, kinds.get(row["task"], "")) for row in training.scores.to_dict("records")]
    return replace(
        contents,
        base=base,
        paragraphs=[*contents.paragraphs, f"Trained by the method {method} from {_text(Path(base).name)}."],
        results=[
            _markdown(pd.DataFrame(rows)),
            "Scores in percent. Intervals: 95 %, exact, over examples, where the score is a share of them.",
        ],
        picture=_first_figure(sections_of(folder)[0]),
    )


def _with_interval(row: Mapping[Any, Any], kind: str) -> dict[str, Any]:
    interval, examples = "–", int(row["examples"])
    if row["metric"] == "accuracy" and kind in KINDS and KINDS[kind].one_class and examples >= MIN_EXAMPLES:
        low, high = share_interval(round(row["score"] * examples), examples)
        interval = f"{100 * low:.1f} to {100 * high:.1f}"
    names = {name: row[name] for name in ("task", "split", "metric")}
    return {**names, "score": f"{100 * row['score']:.1f}", "interval": interval, "examples": examples}


def _results(folder: Path, record: Mapping[str, Any]) -> Contents:
    sections = sections_of(folder)
    first = sections[0]
    results = []
    for section in sections:
        results.append("\n".join(f"- {_text(finding)}" for finding in section.findings))
    for table in first.tables:
        results.append(f"**{_text(table.title)}**\n\n{_markdown(table.frame)}")
    return Contents(
        title=first.title,
        base=str(first.settings.get("model", "")),
        paragraphs=[_text(first.methods)],
        results=results,
        picture=_first_figure(first),
    )


MODELS = {
    "multi-task": "One encoder with a decoder for each task.",
    "single-task": "One model for each task.",
}
CONTENTS: dict[str, Callable[[Path, Mapping[str, Any]], Contents]] = {
    "removed-heads": _removed,
    "head-embedding": _embedding,
    **dict.fromkeys(("multi-task", "task-model", "single-task", "embedded-model"), _trained),
    **dict.fromkeys(("scores", "dissociation", "probes", "study"), _results),
}


def _first_figure(section: Section) -> Picture | None:
    """The head maps of a section, or its first chart."""
    figures = sorted(section.figures, key=lambda figure: not isinstance(figure, HeadMaps))
    if not figures:
        return None
    return Picture(figures[0].draw, _text(f"{figures[0].title}. {figures[0].caption}".strip()))


def _head_map(values: Any, caption: str) -> Picture:
    def draw() -> Any:
        figure, axes = panels(size=(4.0, 3.2))
        heads_heatmap(axes.flat[0], values, limits=(0.0, 1.0))
        return figure

    return Picture(draw, caption)


def _png(figure: Any) -> bytes:
    file = BytesIO()
    write_figure(figure, file, dpi=120, format="png")
    return file.getvalue()


def _markdown(frame: pd.DataFrame) -> str:
    """A table of Markdown; long ones are cut."""
    columns = shown_columns(Table("", "", frame))
    lines = [_row([column.heading for column in columns]), "|" + "---|" * len(columns)]
    lines += map(_row, shown_rows(columns)[:MOST])
    if len(frame) > MOST:
        lines.append(f"\n{len(frame) - MOST} further rows are in the files.")
    return "\n".join(lines)


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(value: Any) -> str:
    """Text that Markdown and HTML take as text."""
    return escape(" ".join(str(value).split()), quote=False).replace("|", "\\|")
