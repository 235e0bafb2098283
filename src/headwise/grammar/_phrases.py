"""Words and phrases that know their heads: one structure from which tree, dependencies, entities and roles
are all read off.
"""

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
class Child:
    """A child of a phrase and its relation to the phrase's head, None if it is the head itself.

    `to`: the number of a sibling, if the relation is to that one's head ("cc" belongs to the conjunct after
    it).
    """

    node: "Word | Phrase"
    relation: str | None = None
    to: int | None = None


@dataclass(frozen=True, eq=False)
class Phrase:
    """A constituent: its children, exactly one of them the head; `entity` names its kind if it is an
    entity.
    """

    label: str
    children: tuple[Child, ...]
    entity: str = ""


@dataclass(frozen=True, eq=False)
class Frame:
    """A predicate with its arguments, by the very phrases that express them."""

    verb: Word
    sense: str
    arguments: tuple[tuple[Phrase | Word, str], ...]


# a sentence before it is written down: phrase, predicates, labels
Drawn = tuple[Phrase, tuple[Frame, ...], dict[str, str]]


def phrase(label: str, *nodes: Word | Phrase | tuple[Word | Phrase, str]) -> Phrase:
    """A phrase of (child, relation) for dependents, and a bare child for the head."""
    children = tuple(Child(*node) if isinstance(node, tuple) else Child(node) for node in nodes)
    heads = sum(child.relation is None for child in children)
    if heads != 1:
        raise ValueError(f"a phrase has one head, this {label} has {heads}")
    return Phrase(label, children)


@dataclass
class _Layout:
    """Where everything ends up when a phrase is written down."""

    words: list[Word] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    entities: list[Span] = field(default_factory=list)

    def visit(self, node: Word | Phrase) -> tuple[Tree, int]:
        """Writes a node down; returns its tree and the number of its head word."""
        start = len(self.words)
        if isinstance(node, Word):
            self.words.append(node)
            self.heads.append(0)
            self.relations.append("root")
            self.spans[id(node)] = (start, start + 1)
            return Tree(node.xpos, (), node.form), start
        trees, head_words = zip(*(self.visit(child.node) for child in node.children), strict=True)
        relations = [child.relation for child in node.children]
        head = relations.index(None)
        for child, word in zip(node.children, head_words, strict=True):
            if child.relation is not None:
                governor = head if child.to is None else child.to
                self.heads[word] = 1 + head_words[governor]
                self.relations[word] = child.relation
        self.spans[id(node)] = (start, len(self.words))
        if node.entity:
            self.entities.append(Span(start, len(self.words), node.entity))
        return Tree(node.label, trees), head_words[head]


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
    """The text of a phrase, as `to_sentence` writes it, without the annotation, which takes much longer."""
    forms: list[str] = []

    def visit(node: Phrase) -> None:
        for child in node.children:
            if isinstance(child.node, Word):
                forms.append(child.node.form)
            else:
                visit(child.node)

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
    spaced = (form if form in NO_SPACE_BEFORE else f" {form}" for form in forms)
    return "".join(spaced).lstrip(" ")
