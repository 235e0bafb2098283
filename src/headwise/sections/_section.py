"""What is said of a result: one title, one finding, figures, tables and notes. Knows neither pages nor
files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwise import figures
from headwise.sections._cells import Table
from headwise.sections._notebook import html
from headwise.sections._terminal import text

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Chart:
    """A figure that `draw` makes: the same on the page and in a paper."""

    name: str
    title: str
    draw: "Callable[[], Figure]"
    caption: str = ""


@dataclass(frozen=True)
class Effect:
    """What a lesion leaves of a task, in percent, with its interval (NaN where there is none)."""

    lesion: str
    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclass(frozen=True)
class HeadMaps:
    """One value per task and head, to be explored: (task, layer, head), NaN where a layer has no such head.

    `chosen` marks each task's selected heads, (layer, head) pairs; `measure` says what the values are.
    `effects` are shown beside each task's map, and `effect` says what they are percent of.
    """

    name: str
    title: str
    measure: str
    values: "xr.DataArray"
    chosen: Mapping[str, Iterable[Sequence[int]]] = field(default_factory=dict)
    caption: str = ""
    effects: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    effect: str = ""

    def draw(self) -> "Figure":
        """The maps for a paper; the page has its own, which answer to the mouse."""
        values = self.values.transpose("task", "layer", "head")
        return figures.heatmaps(
            values, chosen=self.chosen, legend=self.measure, effects=self.effects, effect=self.effect
        )


@dataclass(frozen=True, repr=False)
class Section:
    """The description of one result, which a terminal, a page, a paper and a notebook render.

    Attributes:
        title: a line.
        findings: plain sentences with numbers and intervals. The first one is the finding; the others say it
            task by task.
        blocks: figures and tables in order; a figure that comes first is shown with the finding.
        methods: how it was done, for the methods paragraph.
        settings, provenance: as tables at the end; of a study's section the report fills them in.
        reproduce: the command or call that makes it again; the report fills it in.
        notes: what a reader must know before trusting the numbers.
        values: further values for machines (`--json`), which nobody reads.
    """

    title: str
    findings: Sequence[str]
    blocks: Sequence[Table | Chart | HeadMaps]
    methods: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    reproduce: str = ""
    notes: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finding(self) -> str:
        """The first of the findings; empty where there is none."""
        return next(iter(self.findings), "")

    @property
    def tables(self) -> list[Table]:
        """The tables among the blocks."""
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Chart | HeadMaps]:
        """The figures among the blocks."""
        return [block for block in self.blocks if not isinstance(block, Table)]

    def called(self, name: str) -> "Section":
        """The same, with a name in its title: that of the folder it is in, say."""
        return replace(self, title=f"{self.title}: {name}")

    def to_dict(self) -> dict[str, Any]:
        """What machines read: the tables with all their digits, and the further values."""
        return {
            "title": self.title,
            "findings": list(self.findings),
            "notes": list(self.notes),
            "tables": {table.name: table.frame.to_dict("records") for table in self.tables},
            "settings": dict(self.settings),
            **self.values,
        }

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)


class Described:
    """A result that is described by its section: so it prints, and so a notebook shows it."""

    __slots__ = ()

    def section(self) -> Section:
        """Title, finding, tables, figures and notes of this result."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.section())

    def _repr_html_(self) -> str:
        return self.section()._repr_html_()
