"""What a treebank says about a sentence: depth, top constituents, tense, numbers, coordinated clauses.

Each reading uses dependencies and features (CoNLL-U) where the sentence has them, in any language, and Penn
Treebank brackets and tags otherwise. None means that the sentence has no such property, or that its
annotation does not tell.
"""

from dataclasses import dataclass
from typing import TypeVar

from headwise.tasks import Sentence, Tree, bare_label

T = TypeVar("T")
WRAPPERS = {"ROOT", "TOP", "VROOT", ""}
CLAUSES = {"S", "SINV", "SQ", "SBARQ"}
PAST, PRESENT = "Past", "Pres"
TENSES = {
    "Past": PAST,
    "Imp": PAST,
    "Pqp": PAST,
    "Pres": PRESENT,
}  # UD: imperfect and pluperfect are past tenses
TAGS = {"VBD": PAST, "VBZ": PRESENT, "VBP": PRESENT}
NUMBERS = {"NN": "Sing", "NNS": "Plur"}


@dataclass(frozen=True)
class Reading:
    """A label and the word form that carries it: forms are kept apart between splits, so that none can be
    memorised."""

    label: str
    form: str


def length(sentence: Sentence, bins: tuple[tuple[int, int], ...]) -> str | None:
    """The bin the number of words falls into, as its number."""
    for number, (low, high) in enumerate(bins):
        if low <= len(sentence) <= high:
            return str(number)
    return None


def depth(sentence: Sentence) -> int | None:
    """Phrases above the deepest word (the bare root node aside); without a tree, arcs from the root to the
    word farthest from it."""
    if sentence.tree is not None:
        return _phrases(without_wrapper(sentence.tree))
    if sentence.heads is None:
        return None
    deepest = 0
    for word in range(len(sentence)):
        steps, head = 0, sentence.heads[word]
        while head != 0 and steps < len(sentence):
            steps, head = steps + 1, sentence.heads[head - 1]
        deepest = max(deepest, steps)
    return deepest


def top_constituents(sentence: Sentence) -> str | None:
    """Labels of the constituents right below the top clause, left to right: "ADVP NP VP ."; function tags are
    dropped.

    Without a tree: the relations of the root's dependents in order, with "root" in its place; subtypes are
    dropped.
    """
    if sentence.tree is not None:
        top = without_wrapper(sentence.tree)
        if bare_label(top.label) not in CLAUSES:
            return None
        return " ".join(bare_label(child.label) for child in top.children)
    root = root_of(sentence)
    if root is None or sentence.deprels is None:
        return None
    members = sorted([root, *children(sentence, root)])
    return " ".join("root" if word == root else relation(sentence, word) for word in members)


def tense(sentence: Sentence) -> Reading | None:
    """Past or present of the main clause's verb, where that verb itself is finite (auxiliaries would be the
    same few forms)."""
    if sentence.heads is not None and sentence.feats is not None:
        root = root_of(sentence)
        if root is None or sentence.upos is None or sentence.upos[root] != "VERB":
            return None
        label = TENSES.get(sentence.feature(root, "Tense") or "")
        finite = sentence.feature(root, "VerbForm") in (None, "Fin")
        return Reading(label, sentence.words[root].lower()) if label and finite else None
    verb = _main_verb(sentence)
    if verb is None or bare_label(verb.label) not in TAGS:
        return None
    return Reading(TAGS[bare_label(verb.label)], str(verb.word).lower())


def subject_number(sentence: Sentence) -> Reading | None:
    """Number of the main clause's subject, if it is one common noun."""
    if sentence.heads is not None and sentence.feats is not None:
        return _noun(sentence, ("nsubj",))
    clause = _main_clause(sentence)
    if clause is None or not _labelled(clause, "VP"):
        return None
    labels = [bare_label(child.label) for child in clause.children]
    subjects = [child for child in clause.children[: labels.index("VP")] if bare_label(child.label) == "NP"]
    return _head_noun(_single(subjects))


def object_number(sentence: Sentence) -> Reading | None:
    """Number of the main verb's direct object, if it is one common noun."""
    if sentence.heads is not None and sentence.feats is not None:
        return _noun(sentence, ("obj", "dobj"))
    phrase = _verb_phrase(sentence)
    if phrase is None:
        return None
    objects = [child for child in _labelled(phrase, "NP") if "-TMP" not in child.label]
    return _head_noun(_single(objects))


def coordinated(sentence: Sentence) -> tuple[int, int] | None:
    """Two coordinated main clauses, each with its own subject: (place of the conjunction, end of the second
    clause).

    The first clause is words[:conjunction], perhaps with a comma at its end; the second words[conjunction +
    1:end]; what follows is final punctuation. None unless both clauses are whole stretches.
    """
    last = len(sentence)
    while last > 0 and not any(char.isalnum() for char in sentence.words[last - 1]):
        last -= 1
    if sentence.heads is not None and sentence.deprels is not None:
        return _coordinated_words(sentence, last)
    return _coordinated_phrases(sentence, last)


def _coordinated_words(sentence: Sentence, last: int) -> tuple[int, int] | None:
    root = root_of(sentence)
    if root is None:
        return None
    second = [word for word in children(sentence, root) if relation(sentence, word) == "conj"]
    if len(second) != 1 or not all(_has_subject(sentence, word) for word in (root, second[0])):
        return None
    marks = [word for word in children(sentence, second[0]) if relation(sentence, word) == "cc"]
    if len(marks) != 1 or marks[0] < 2:
        return None
    conjunction = marks[0]
    clause = subtree(sentence, second[0])
    # the conjunction and the comma before it hang on the second clause; nothing else of it may stand before
    if any(word < conjunction and sentence.words[word] not in (",", ";") for word in clause):
        return None
    if last <= conjunction + 2 or not clause >= set(range(conjunction + 1, last)):
        return None
    return conjunction, last


def _coordinated_phrases(sentence: Sentence, last: int) -> tuple[int, int] | None:
    if sentence.tree is None:
        return None
    phrases = list(without_wrapper(sentence.tree).children)
    labels = [bare_label(phrase.label) for phrase in phrases]
    core = [i for i, label in enumerate(labels) if label in CLAUSES or label == "CC"]
    if [labels[i] for i in core] != ["S", "CC", "S"]:
        return None
    first, middle, second = core
    if not _subject_and_verb(phrases[first]) or not _subject_and_verb(phrases[second]):
        return None
    sizes = [len(phrase.words()) for phrase in phrases]
    conjunction = sum(sizes[:middle])
    covering = first == 0 and second == middle + 1 and sum(sizes[: second + 1]) == last
    return (conjunction, last) if covering and last > conjunction + 2 else None


def root_of(sentence: Sentence) -> int | None:
    """The word that is the root of the dependency tree; None unless there is exactly one."""
    if sentence.heads is None:
        return None
    roots = [word for word, head in enumerate(sentence.heads) if head == 0]
    return _single(roots)


def children(sentence: Sentence, word: int) -> list[int]:
    """The dependents of a word, left to right."""
    assert sentence.heads is not None
    return [dependent for dependent, head in enumerate(sentence.heads) if head == word + 1]


def subtree(sentence: Sentence, word: int) -> set[int]:
    """A word and all that depends on it."""
    words, waiting = set(), [word]
    while waiting:
        dependent = waiting.pop()
        words.add(dependent)
        waiting += children(sentence, dependent)
    return words


def relation(sentence: Sentence, word: int) -> str:
    """A word's relation without its subtype: "nsubj:pass" -> "nsubj"."""
    assert sentence.deprels is not None
    return sentence.deprels[word].split(":")[0]


def without_wrapper(tree: Tree) -> Tree:
    """The first node below ROOT or TOP that is not a wrapper of one child."""
    while tree.label in WRAPPERS and len(tree.children) == 1:
        tree = tree.children[0]
    return tree


def _phrases(tree: Tree) -> int:
    if not tree.children:
        return 0
    return 1 + max(map(_phrases, tree.children))


def _single(members: list[T]) -> T | None:
    """The member of a list that has one."""
    return members[0] if len(members) == 1 else None


def _labelled(phrase: Tree, label: str) -> list[Tree]:
    return [child for child in phrase.children if bare_label(child.label) == label]


def _has_subject(sentence: Sentence, word: int) -> bool:
    return any(relation(sentence, child) in ("nsubj", "csubj") for child in children(sentence, word))


def _noun(sentence: Sentence, relations: tuple[str, ...]) -> Reading | None:
    root = root_of(sentence)
    if root is None or sentence.upos is None or sentence.deprels is None:
        return None
    nouns = [word for word in children(sentence, root) if relation(sentence, word) in relations]
    if len(nouns) != 1 or sentence.upos[nouns[0]] != "NOUN":
        return None
    if any(relation(sentence, child) == "conj" for child in children(sentence, nouns[0])):
        return None  # "the dog and the cat": plural without a plural form
    label = sentence.feature(nouns[0], "Number")
    if label not in ("Sing", "Plur"):
        return None
    return Reading(label, sentence.words[nouns[0]].lower())


def _main_clause(sentence: Sentence) -> Tree | None:
    if sentence.tree is None:
        return None
    top = without_wrapper(sentence.tree)
    return top if bare_label(top.label) == "S" else None


def _verb_phrase(sentence: Sentence) -> Tree | None:
    """The main clause's verb phrase; auxiliaries are stepped over."""
    clause = _main_clause(sentence)
    if clause is None:
        return None
    phrase, phrases = None, _labelled(clause, "VP")
    while len(phrases) == 1:
        phrase = phrases[0]
        phrases = _labelled(phrase, "VP")
    return None if phrases else phrase


def _main_verb(sentence: Sentence) -> Tree | None:
    clause = _main_clause(sentence)
    phrase = _single(_labelled(clause, "VP")) if clause is not None else None
    if phrase is None or _labelled(phrase, "VP"):
        return None
    verbs = [child for child in phrase.children if child.word is not None and child.label.startswith("VB")]
    return _single(verbs)


def _head_noun(phrase: Tree | None) -> Reading | None:
    """The last noun among a noun phrase's own words; of a phrase made of phrases, that of the first."""
    if phrase is None or _labelled(phrase, "CC"):
        return None
    nouns = [child for child in phrase.children if child.word is not None and child.label.startswith("NN")]
    if nouns:
        label = NUMBERS.get(nouns[-1].label)
        return Reading(label, str(nouns[-1].word).lower()) if label else None
    phrases = _labelled(phrase, "NP")
    return _head_noun(phrases[0] if phrases else None)


def _subject_and_verb(clause: Tree) -> bool:
    return bool(_labelled(clause, "NP") and _labelled(clause, "VP"))
