"""The grammar's words: read from `lexicon.txt`, with their forms, meanings, and the split each belongs to."""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import cycle

from headwise.errors import HeadwiseError
from headwise.grammar import _inflection as inflection

SPLITS = ("train", "validation", "test")
PATTERN = (0, 0, 1, 0, 2, 0, 0, 1, 0, 2)  # the split of each word of a section, over and over


@dataclass(frozen=True)
class Entry:
    """A word of the lexicon. Nouns use `plural`; verbs `past` and `participle`.

    Attributes:
        lemma: the word itself.
        kind: "person", "thing", "verb", "adjective", "name", "place", "time", "adverb" or "kind" (a category
            word).
        topic: "sports", ...; "any" for words of no topic. For adjectives, names and adverbs their sort.
        category: of nouns: the category word, "-" for none. Of verbs: what the object is ("thing", "person",
            "place", "gift", ...).
        split: 0 train, 1 validation, 2 test, -1 common to all.
        synonym: the lemma of another entry that means the same, or "".
    """

    lemma: str
    kind: str
    topic: str
    category: str
    split: int
    plural: str = ""
    past: str = ""
    participle: str = ""
    synonym: str = ""

    @property
    def sort(self) -> str:
        """Of nouns: "person" or "thing", by which adjectives and verbs go with them."""
        return "person" if self.kind == "person" else "thing"

    @property
    def meaning(self) -> str:
        """One name for the word and its synonym."""
        return min(self.lemma, self.synonym or self.lemma)


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Entries by (kind, topic, category), and the category each category word belongs to."""

    entries: tuple[Entry, ...]
    above: dict[str, str]

    def find(
        self, kind: str, topic: str | None = None, category: str | None = None, split: int | None = None
    ) -> tuple[Entry, ...]:
        """The entries that fit; None fits all. Words common to all splits always fit a split."""
        return _find(self, kind, topic, category, split)

    def named(self, kind: str, lemma: str) -> Entry:
        """The entry of a lemma."""
        if (kind, lemma) not in self._by_name:
            raise HeadwiseError(f"the grammar has no {kind} {lemma!r}")
        return self._by_name[kind, lemma]

    def synonym(self, entry: Entry) -> Entry:
        """The entry that means the same, or the entry itself where there is none."""
        fitting = self.find(entry.kind, entry.topic, entry.category)
        return next((word for word in fitting if word.lemma == entry.synonym), entry)

    def hypernyms(self, entry: Entry) -> tuple[Entry, ...]:
        """The category words above a noun, nearest first: trout -> fish, animal."""
        words = []
        category = entry.category
        while category in self.above:
            words.append(self.named("kind", category))
            category = self.above[category]
        return tuple(words)

    def hyponyms(self, kind: str, category: str, split: int | None) -> tuple[Entry, ...]:
        """The nouns of a kind below a category word, on whatever level: animal -> trout, wasp, ..."""
        return _hyponyms(self, kind, category, split)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics that have people and things of their own, sorted."""
        return tuple(sorted({entry.topic for entry in self.entries if entry.kind == "person"}))

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Entry]:
        return {(entry.kind, entry.lemma): entry for entry in reversed(self.entries)}


@cache
def _hyponyms(lexicon: Lexicon, kind: str, category: str, split: int | None) -> tuple[Entry, ...]:
    if category not in lexicon.above:
        return ()
    word = lexicon.named("kind", category)
    return tuple(noun for noun in lexicon.find(kind, split=split) if word in lexicon.hypernyms(noun))


@cache
def _find(
    lexicon: Lexicon, kind: str, topic: str | None, category: str | None, split: int | None
) -> tuple[Entry, ...]:
    return tuple(
        entry
        for entry in lexicon.entries
        if entry.kind == kind
        and topic in (None, entry.topic)
        and category in (None, entry.category)
        and (split is None or entry.split in (split, -1))
    )


@cache
def load() -> Lexicon:
    """The lexicon of the package."""
    entries: list[Entry] = []
    above: dict[str, str] = {}
    split_of: dict[str, int] = {}  # a word of two sections has one split
    header, pattern = ["", "", ""], cycle(PATTERN)
    for line in files("headwise.grammar").joinpath("lexicon.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("["):
            header, pattern = [*line.strip("[]").split(), "-", "-"][:3], cycle(PATTERN)
            continue
        for cell in line.split():
            if header[0] == "kinds":
                word, _, category = cell.partition("<")
                entry = _entry(word, ["kind", "any", category or "-"], -1, "")
                above[entry.lemma] = entry.category
                entries.append(entry)
                continue
            words = cell.split("=")  # a word, or two that mean the same
            lemmas = [word.split("/")[0] for word in words]
            splits = [split_of[lemma] for lemma in lemmas if lemma in split_of]
            split = splits[0] if splits else next(pattern)
            split_of |= dict.fromkeys(lemmas, split)
            synonyms = reversed(lemmas) if len(lemmas) == 2 else [""]
            for word, synonym in zip(words, synonyms, strict=True):
                entries.append(_entry(word, header, split, synonym))
    return Lexicon(tuple(entries), above)


def _entry(word: str, header: list[str], split: int, synonym: str) -> Entry:
    kind, topic, category = header
    if kind == "time":
        split = -1  # weekdays and months are a closed class
    lemma, *forms = word.split("/")
    if kind == "verb":
        past, participle = forms or (inflection.past(lemma),) * 2
        return Entry(lemma, kind, topic, category, split, past=past, participle=participle, synonym=synonym)
    (plural,) = forms or (inflection.plural(lemma),)
    return Entry(lemma, kind, topic, category, split, plural=plural, synonym=synonym)
