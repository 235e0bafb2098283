"""Words and phrases that know their heads: one structure from which tree, dependencies, entities and roles are all read off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwise.tasks import Predicate, Sentence, Span, Tree

NO_SPACE_BEFORE = {".", ",", "?", "n't", "'s"}


@dataclass(frozen=True, eq=False)
class Word:
    """A word form with its tags."""

    form: str
    lemma: str
    upos: str
    xpos: str
    feats: str = "_"


@dataclass(frozen=True, eq=False)
class Part:
    """A child of a phrase and its relation to the phrase's head, None if it is the head itself.

    `to`: the number of another part, if the relation is to that one's head ("cc" belongs to the conjunct after it).
    """

    child: "Word | Phrase"
    relation: str | None = None
    to: int | None = None


@dataclass(frozen=True, eq=False)
class Phrase:
    """A constituent: its parts, exactly one of them the head; `entity` names the kind of entity it is, if it is one."""

    label: str
    parts: tuple[Part, ...]
    entity: str = ""


@dataclass(frozen=True, eq=False)
class Frame:
    """A predicate with its arguments, by the very phrases that express them."""

    verb: Word
    sense: str
    arguments: tuple[tuple[Phrase | Word, str], ...]


Drawn = tuple[
    Phrase, tuple[Frame, ...], dict[str, str]
]  # a sentence before it is written down: phrase, predicates, labels


def phrase(
    label: str, *parts: "Word | Phrase | tuple[Word | Phrase, str] | Part", entity: str = ""
) -> Phrase:
    """A phrase of parts: (child, relation) for dependents, a bare child for the head."""
    found = [
        part if isinstance(part, Part) else Part(*part) if isinstance(part, tuple) else Part(part)
        for part in parts
    ]
    heads = sum(part.relation is None for part in found)
    if heads != 1:
        raise ValueError(f"a phrase has one head, this {label} has {heads}")
    return Phrase(label, tuple(found), entity)


@dataclass
class _Layout:
    """Where everything ends up when a phrase is written down."""

    words: list[Word] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    entities: list[Span] = field(default_factory=list)

    def visit(self, node: Word | Phrase) -> tuple[Tree, int]:
        """Writes a node down; returns its tree and the place of its head word."""
        start = len(self.words)
        if isinstance(node, Word):
            self.words.append(node)
            self.heads.append(0)
            self.relations.append("root")
            self.spans[id(node)] = (start, start + 1)
            return Tree(node.xpos, (), node.form), start
        done = [self.visit(part.child) for part in node.parts]
        head = next(place for (_, place), part in zip(done, node.parts, strict=True) if part.relation is None)
        for (_, place), part in zip(done, node.parts, strict=True):
            if part.relation is not None:
                self.heads[place] = 1 + (head if part.to is None else done[part.to][1])
                self.relations[place] = part.relation
        self.spans[id(node)] = (start, len(self.words))
        if node.entity:
            self.entities.append(Span(start, len(self.words), node.entity))
        return Tree(node.label, tuple(tree for tree, _ in done)), head


def to_sentence(root: Phrase, frames: Sequence[Frame], labels: Mapping[str, str], name: str = "") -> Sentence:
    """The sentence of a phrase, with every layer; its first letter is made a capital."""
    layout = _Layout()
    tree, _ = layout.visit(root)
    forms = _capitalised([word.form for word in layout.words])
    roles = []
    for frame in frames:
        arguments = sorted(Span(*layout.spans[id(node)], label) for node, label in frame.arguments)
        roles.append(Predicate(layout.spans[id(frame.verb)][0], frame.sense, tuple(arguments)))
    return Sentence(
        words=tuple(forms),
        upos=tuple(word.upos for word in layout.words),
        xpos=tuple(word.xpos for word in layout.words),
        lemmas=tuple(word.lemma for word in layout.words),
        feats=tuple(word.feats for word in layout.words),
        heads=tuple(layout.heads),
        deprels=tuple(layout.relations),
        entities=tuple(sorted(layout.entities)),
        tree=Tree("TOP", (_capital(tree, forms[0]),)),
        roles=tuple(sorted(roles, key=lambda predicate: predicate.index)),
        text=join(forms),
        labels=dict(labels),
        id=name,
    )


def text_of(root: Phrase) -> str:
    """The text of a phrase, as `to_sentence` writes it, without the annotation, which takes longer than all the rest."""
    forms: list[str] = []

    def visit(node: Phrase) -> None:
        for part in node.parts:
            if isinstance(part.child, Word):
                forms.append(part.child.form)
            else:
                visit(part.child)

    visit(root)
    return join(_capitalised(forms))


def _capitalised(forms: list[str]) -> list[str]:
    return [forms[0][0].upper() + forms[0][1:], *forms[1:]]


def _capital(tree: Tree, form: str) -> Tree:
    """The tree with its first word replaced."""
    if not tree.children:
        return Tree(tree.label, (), form)
    return Tree(tree.label, (_capital(tree.children[0], form), *tree.children[1:]))


def join(forms: Sequence[str]) -> str:
    """Words as text: no space before punctuation."""
    return "".join(form if form in NO_SPACE_BEFORE or not i else f" {form}" for i, form in enumerate(forms))
