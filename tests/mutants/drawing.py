"""Mutants: one small change each, of the kind a tired engineer makes, anywhere in the source; drawn at random with a seed.

A mutant replaces the text of one node of the syntax tree. Texts that people read (docstrings, messages of errors, help of settings),
annotations, imports and the looks of charts are left alone: a change there changes no result.
"""

import ast
import copy
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOM_OF_SINGLE_FILES = "_base"  # settings.py, errors.py and the package's own __init__
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.MatMult: ast.Mult,
}
OPPOSITES = {
    "min": "max",
    "max": "min",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
    "mean": "sum",
    "sum": "mean",
    "amin": "amax",
    "amax": "amin",
    "nanmean": "nansum",
    "minimum": "maximum",
    "maximum": "minimum",
}  # functions of tensors, arrays and tables; the built-in ones of plain numbers too
ALIKE_BUILT_IN = {"min", "max", "any", "all"}
TRANSPOSES = {"T", "mT", "transpose", "permute", "swapaxes", "t"}
SPOKEN = {
    "help",
    "description",
    "title",
    "message",
    "prompt",
    "epilog",
    "caption",
    "doc",
}  # keywords whose text people read
LOOKS = {
    *(
        "alpha",
        "color",
        "colors",
        "c",
        "cmap",
        "edgecolor",
        "facecolor",
        "ec",
        "fc",
        "marker",
        "markersize",
        "ms",
        "hatch",
        "s",
    ),
    *(
        "linewidth",
        "linestyle",
        "lw",
        "ls",
        "zorder",
        "fontsize",
        "size",
        "weight",
        "fontweight",
        "rotation",
        "rotation_mode",
    ),
    *(
        "ha",
        "va",
        "horizontalalignment",
        "verticalalignment",
        "pad",
        "labelpad",
        "w_pad",
        "h_pad",
        "wspace",
        "hspace",
        "figsize",
    ),
    *(
        "dpi",
        "bbox_to_anchor",
        "bbox_inches",
        "loc",
        "ncols",
        "ncol",
        "frameon",
        "borderaxespad",
        "handlelength",
        "columnspacing",
    ),
    *(
        "layout",
        "constrained_layout",
        "length",
        "width",
        "style",
        "justify",
        "padding",
        "no_wrap",
        "overflow",
        "min_width",
        "max_width",
    ),
    *(
        "capsize",
        "elinewidth",
        "fraction_of_axis",
        "shrink",
        "aspect",
        "xytext",
        "textcoords",
        "arrowprops",
        "clip_on",
        "box",
    ),
}  # keywords that change how a chart or a terminal's table looks, and no number in it
UNSEEN = {
    "batch_size",  # results do not depend on it, which tests of their own show
    "description",
    "quiet",
    "indent",
    "encoding",
    "stacklevel",
    "flush",
    "non_blocking",
    "pin_memory",
    "transient",
    "console",
}  # keywords of which no result depends, or that no test on this machine can see
SPEAKING = {"print", "echo", "log", "warn", "warning", "info", "debug"}  # calls that only say something


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        room: the package below headwise it stands in.
        file: the source file, below src/headwise.
        line: where the change begins; start, end: which bytes of the file it replaces.
        operator: the kind of change.
        new: the text in place of the bytes.
        function: the qualified name of the innermost function or class around it, "" at module level.
        runs_on_import: whether it stands outside of all functions.
    """

    room: str
    file: str
    line: int
    start: int
    end: int
    operator: str
    new: str
    function: str
    runs_on_import: bool

    def planted(self, text: str) -> str:
        """The changed text of the file."""
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def shown(self, text: str) -> tuple[str, str]:
        """The lines that change: before and after, without what stands around them."""
        before, after = text.splitlines(), self.planted(text).splitlines()
        while before and after and before[0] == after[0]:
            before, after = before[1:], after[1:]
        while before and after and before[-1] == after[-1]:
            before, after = before[:-1], after[:-1]
        return " ".join(" ".join(before).split()), " ".join(" ".join(after).split())


def room(file: str) -> str:
    """The room of a source file below src/headwise."""
    return file.partition("/")[0] if "/" in file else ROOM_OF_SINGLE_FILES


def mutants(file: str, text: str) -> list[Mutant]:
    """All mutants of a file; a few are no Python, or the same program in other words (`is_another_program`)."""
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.mutants


def is_another_program(mutant: Mutant, text: str) -> bool:
    """Whether the changed text is Python, and not the same program in other words."""
    try:
        return ast.dump(ast.parse(mutant.planted(text))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def draw(source: Path, rooms: list[str], number: int, seed: int) -> list[Mutant]:
    """Draws mutants of every room at random: `number` lines of it, without replacement, and one mutant of each.

    Lines are drawn rather than mutants, so that one long expression is not drawn as often as ten short ones.
    """
    by_room: dict[str, dict[tuple[str, int], list[Mutant]]] = {name: {} for name in rooms}
    for path in sorted((source / "headwise").rglob("*.py")):
        file = path.relative_to(source / "headwise").as_posix()
        if room(file) not in by_room:
            continue
        for mutant in mutants(file, path.read_text(encoding="utf-8")):
            by_room[mutant.room].setdefault((file, mutant.line), []).append(mutant)
    drawn = []
    for name, lines in by_room.items():
        generator = random.Random(f"{seed} {name}")
        order = generator.sample(sorted(lines), len(lines))
        candidates = (generator.choice(lines[line]) for line in order)
        programs = (
            m
            for m in candidates
            if is_another_program(m, (source / "headwise" / m.file).read_text(encoding="utf-8"))
        )
        drawn += itertools.islice(programs, number)
    return drawn


class _Finder(ast.NodeVisitor):
    """Walks over a file and notes every mutant."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.data = text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[str] = []
        self.functions = 0  # how many are around the node
        self.mutants: list[Mutant] = []

    def visit(self, node: ast.AST) -> None:
        """Notes the mutants of a node, then those inside it that are not text for people."""
        for operator, new in _changes(node):
            self._note(node, operator, new)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            named = not isinstance(node, ast.Module)
            inner = not isinstance(node, ast.Module | ast.ClassDef)
            self.scope += [node.name] if named else []
            self.functions += inner
            self._note_removals(node.body)
            for child in _children(node):
                self.visit(child)
            self.scope = self.scope[:-1] if named else self.scope
            self.functions -= inner
            return
        if isinstance(node, ast.If | ast.While) and ast.unparse(node.test) != "TYPE_CHECKING":
            self._note(node.test, "branches swapped", f"not ({ast.unparse(node.test)})")
        for name in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.stmt) and isinstance(block := getattr(node, name, None), list):
                self._note_removals(block)
        for child in _children(node):
            self.visit(child)

    def _note_removals(self, block: list[ast.stmt]) -> None:
        """Every statement of a block that does something may be missing."""
        for statement in block:
            if _does_something(statement) or (
                isinstance(statement, ast.If) and not statement.orelse and self.functions
            ):
                self._note(statement, "statement removed", "pass")

    def _note(self, node: ast.AST, operator: str, new: str) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        mutant = Mutant(
            room(self.file),
            self.file,
            node.lineno,  # type: ignore[attr-defined]
            start,
            end,
            operator,
            new if isinstance(node, ast.stmt) else f"({new})" if _needs_brackets(node) else new,
            ".".join(self.scope),
            not self.functions,
        )
        self.mutants.append(mutant)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside one that decide results: no annotations, docstrings, messages, imports."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.JoinedStr | ast.Assert):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
    ):
        return
    if isinstance(node, ast.Call) and _speaks(node):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment", "type_params", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and not _counts(node, child):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if isinstance(child, ast.AST):
                yield child


def _does_something(statement: ast.stmt) -> bool:
    """Whether a statement calls something that does more than say, changes something, or leaves a loop."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and not _speaks(statement.value)
    return isinstance(statement, ast.AugAssign | ast.Delete | ast.Break | ast.Continue) or _sets_state(
        statement
    )


def _sets_state(statement: ast.stmt) -> bool:
    """Whether a statement sets an attribute or an item; without a plain name, the next line fails by itself."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)


def _speaks(call: ast.Call) -> bool:
    """Whether a call makes an error or only says something."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return function in SPEAKING or function.endswith(("Error", "Warning", "Exception"))


def _counts(call: ast.AST, keyword: ast.keyword) -> bool:
    """Whether a keyword may decide a result. `zip(strict=True)` is a guard: where lengths differ, something else is wrong already."""
    guard = keyword.arg == "strict" and isinstance(call, ast.Call) and getattr(call.func, "id", "") == "zip"
    return not guard and keyword.arg not in SPOKEN | LOOKS | UNSEEN


def _needs_brackets(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.UnaryOp)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The changes of one node itself: the kind of change and the node's new text."""
    for kind, change in CHANGES.items():
        if isinstance(node, kind):
            yield from change(node)


def _changed(node: ast.AST, **fields: object) -> str:
    """The text of a copy of the node with other fields."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def _comparison(node: ast.Compare) -> Iterator[tuple[str, str]]:
    for index, operator in enumerate(node.ops):
        if type(operator) in COMPARISONS:
            operators = [*node.ops[:index], COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
            yield "comparison", _changed(node, ops=operators)


def _arithmetic(node: ast.BinOp) -> Iterator[tuple[str, str]]:
    texts = (ast.Constant, ast.JoinedStr)
    spoken = any(
        isinstance(x, texts) and not isinstance(getattr(x, "value", None), int | float)
        for x in (node.left, node.right)
    )
    if type(node.op) in ARITHMETIC and not spoken:
        yield "arithmetic", _changed(node, op=ARITHMETIC[type(node.op)]())


def _logic(node: ast.BoolOp) -> Iterator[tuple[str, str]]:
    yield "and/or", _changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _sign(node: ast.UnaryOp) -> Iterator[tuple[str, str]]:
    if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield "sign or not dropped", ast.unparse(node.operand)


def _constant(node: ast.Constant) -> Iterator[tuple[str, str]]:
    if isinstance(node.value, bool):
        yield "constant", repr(not node.value)
    elif isinstance(node.value, int):
        yield "constant", f"({node.value + 1})"
        yield "constant", f"({node.value - 1})"
    elif isinstance(node.value, float):
        yield "constant", f"({node.value / 2 or 1.0!r})"


def _call(node: ast.Call) -> Iterator[tuple[str, str]]:
    if _speaks(node):
        return
    for index, keyword in enumerate(node.keywords):
        if keyword.arg and _counts(node, keyword):
            yield (
                "keyword dropped",
                _changed(node, keywords=[*node.keywords[:index], *node.keywords[index + 1 :]]),
            )
    if len(node.args) >= 2 and _could_be_mixed_up(*node.args[:2]):
        yield "arguments swapped", _changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
    if isinstance(node.func, ast.Attribute):
        if node.func.attr in TRANSPOSES:
            yield "transpose dropped", ast.unparse(node.func.value)
        if node.func.attr in OPPOSITES:
            yield (
                "function",
                _changed(node, func=ast.Attribute(node.func.value, OPPOSITES[node.func.attr], ast.Load())),
            )
        if node.func.attr in (
            "abs",
            "clamp",
            "detach",
            "clone",
            "copy",
            "sort",
            "strip",
            "lower",
            "nan_to_num",
            "double",
            "float",
        ):
            yield "call dropped", ast.unparse(node.func.value)
    elif isinstance(node.func, ast.Name):
        if node.func.id in ALIKE_BUILT_IN:
            yield "function", _changed(node, func=ast.Name(OPPOSITES[node.func.id], ast.Load()))
        if node.func.id in ("sorted", "abs", "reversed", "set", "round") and node.args:
            yield "call dropped", ast.unparse(node.args[0])


def _could_be_mixed_up(first: ast.expr, second: ast.expr) -> bool:
    """Whether two arguments are of the same form; others fail at once when they are swapped."""
    named = isinstance(first, ast.Name | ast.Attribute) and isinstance(second, ast.Name | ast.Attribute)
    return named or (type(first) is type(second) and not isinstance(first, ast.Starred | ast.Constant))


def _attribute(node: ast.Attribute) -> Iterator[tuple[str, str]]:
    if node.attr in ("T", "mT") and isinstance(node.ctx, ast.Load):
        yield "transpose dropped", ast.unparse(node.value)


def _condition(node: ast.IfExp) -> Iterator[tuple[str, str]]:
    yield "branches swapped", _changed(node, body=node.orelse, orelse=node.body)


def _return(node: ast.Return) -> Iterator[tuple[str, str]]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "early return", "return None"


def _slice(node: ast.Slice) -> Iterator[tuple[str, str]]:
    if node.lower is not None or node.upper is not None:
        yield "slice", ":"


CHANGES: dict[type[ast.AST], Callable[..., Iterator[tuple[str, str]]]] = {
    ast.Compare: _comparison,
    ast.BinOp: _arithmetic,
    ast.BoolOp: _logic,
    ast.UnaryOp: _sign,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.Attribute: _attribute,
    ast.IfExp: _condition,
    ast.Return: _return,
    ast.Slice: _slice,
}
