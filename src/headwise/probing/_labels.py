"""What a treebank says about a sentence: depth, top constituents, tense, numbers, coordinated clauses.

Each reading uses dependencies and features (CoNLL-U) where the sentence has them, in any language, and Penn Treebank brackets and tags
otherwise. None means that the sentence has no such property, or that its annotation does not tell.
"""

from dataclasses import dataclass

from headwise.tasks import Sentence, Tree, bare_label

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
    """A label and the word form that carries it: forms are kept apart between splits, so that none can be memorised."""

    label: str
    form: str


def length(sentence: Sentence, bins: tuple[tuple[int, int], ...]) -> str | None:
    """The bin the number of words falls into, as its number."""
    return next((str(i) for i, (low, high) in enumerate(bins) if low <= len(sentence) <= high), None)


def depth(sentence: Sentence) -> int | None:
    """Phrases above the deepest word (the bare root node aside); without a tree, arcs from the root to the word farthest from it."""
    if sentence.tree is not None:
        return _phrases(without_wrapper(sentence.tree))
    if sentence.heads is None:
        return None
    deepest = 0
    for word in range(len(sentence)):
        steps, at = 0, word
        while sentence.heads[at] != 0 and steps < len(sentence):
            steps, at = steps + 1, sentence.heads[at] - 1
        deepest = max(deepest, steps)
    return deepest


def top_constituents(sentence: Sentence) -> str | None:
    """Labels of the constituents right below the top clause, left to right: "ADVP NP VP ."; function tags are dropped.

    Without a tree: the relations of the root's dependents in order, with "root" in its place; subtypes are dropped.
    """
    if sentence.tree is not None:
        top = without_wrapper(sentence.tree)
        return (
            " ".join(bare_label(child.label) for child in top.children)
            if bare_label(top.label) in CLAUSES
            else None
        )
    root = root_of(sentence)
    if root is None or sentence.deprels is None:
        return None
    members = sorted([root, *children(sentence, root)])
    return " ".join("root" if word == root else relation(sentence, word) for word in members)


def tense(sentence: Sentence) -> Reading | None:
    """Past or present of the main clause's verb, where that verb itself is finite (auxiliaries would be the same few forms)."""
    if sentence.heads is not None and sentence.feats is not None:
        root = root_of(sentence)
        if root is None or sentence.upos is None or sentence.upos[root] != "VERB":
            return None
        label = TENSES.get(sentence.feature(root, "Tense") or "")
        finite = sentence.feature(root, "VerbForm") in (None, "Fin")
        return Reading(label, sentence.words[root].lower()) if label and finite else None
    verb = _main_verb(sentence)
    return (
        Reading(TAGS[bare_label(verb.label)], str(verb.word).lower())
        if verb is not None and bare_label(verb.label) in TAGS
        else None
    )


def subject_number(sentence: Sentence) -> Reading | None:
    """Number of the main clause's subject, if it is one common noun."""
    if sentence.heads is not None and sentence.feats is not None:
        return _noun(sentence, ("nsubj",))
    clause = _main_clause(sentence)
    if clause is None:
        return None
    places = [i for i, child in enumerate(clause.children) if bare_label(child.label) == "VP"]
    before = (
        [child for child in clause.children[: places[0]] if bare_label(child.label) == "NP"] if places else []
    )
    return _head_noun(before[-1]) if len(before) == 1 else None


def object_number(sentence: Sentence) -> Reading | None:
    """Number of the main verb's direct object, if it is one common noun."""
    if sentence.heads is not None and sentence.feats is not None:
        return _noun(sentence, ("obj", "dobj"))
    phrase = _verb_phrase(sentence)
    if phrase is None:
        return None
    objects = [
        child for child in phrase.children if bare_label(child.label) == "NP" and "-TMP" not in child.label
    ]
    return _head_noun(objects[0]) if len(objects) == 1 else None


def coordinated(sentence: Sentence) -> tuple[int, int] | None:
    """Two coordinated main clauses, each with its own subject: (place of the conjunction, end of the second clause).

    The first clause is words[:conjunction], perhaps with a comma at its end; the second words[conjunction + 1:end]; what follows is final
    punctuation. None unless both clauses are whole stretches.
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
    inside = subtree(sentence, second[0])
    if len(marks) != 1 or marks[0] < 2:
        return None
    place = marks[0]
    clause = {word for word in inside if word > place}
    # the conjunction and the comma before it hang on the second clause; nothing else of it may stand before
    leftover = {word for word in inside if word < place and sentence.words[word] not in (",", ";")}
    return (
        (place, last) if not leftover and clause >= set(range(place + 1, last)) and last > place + 2 else None
    )


def _coordinated_phrases(sentence: Sentence, last: int) -> tuple[int, int] | None:
    if sentence.tree is None:
        return None
    parts = list(without_wrapper(sentence.tree).children)
    labels = [bare_label(part.label) for part in parts]
    core = [i for i, label in enumerate(labels) if label in CLAUSES or label == "CC"]
    if [labels[i] for i in core] != ["S", "CC", "S"] or any(
        not _subject_and_verb(parts[i]) for i in (core[0], core[2])
    ):
        return None
    sizes = [len(part.words()) for part in parts]
    place = sum(sizes[: core[1]])
    whole = core[0] == 0 and core[2] == core[1] + 1 and sum(sizes[: core[2] + 1]) == last
    return (place, last) if whole and last > place + 2 else None


def root_of(sentence: Sentence) -> int | None:
    """The word that is the root of the dependency tree; None unless there is exactly one."""
    if sentence.heads is None:
        return None
    roots = [word for word, head in enumerate(sentence.heads) if head == 0]
    return roots[0] if len(roots) == 1 else None


def children(sentence: Sentence, word: int) -> list[int]:
    """The dependents of a word, left to right."""
    assert sentence.heads is not None
    return [other for other, head in enumerate(sentence.heads) if head == word + 1]


def subtree(sentence: Sentence, word: int) -> set[int]:
    """A word and all that depends on it."""
    found, waiting = set(), [word]
    while waiting:
        at = waiting.pop()
        found.add(at)
        waiting += children(sentence, at)
    return found


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
    return 1 + max(_phrases(child) for child in tree.children) if tree.children else 0


def _has_subject(sentence: Sentence, word: int) -> bool:
    return any(relation(sentence, child) in ("nsubj", "csubj") for child in children(sentence, word))


def _noun(sentence: Sentence, relations: tuple[str, ...]) -> Reading | None:
    root = root_of(sentence)
    if root is None or sentence.upos is None or sentence.deprels is None:
        return None
    found = [word for word in children(sentence, root) if relation(sentence, word) in relations]
    if len(found) != 1 or sentence.upos[found[0]] != "NOUN":
        return None
    if any(relation(sentence, child) == "conj" for child in children(sentence, found[0])):
        return None  # "the dog and the cat": plural without a plural form
    label = sentence.feature(found[0], "Number")
    return Reading(label, sentence.words[found[0]].lower()) if label in ("Sing", "Plur") else None


def _main_clause(sentence: Sentence) -> Tree | None:
    if sentence.tree is None:
        return None
    top = without_wrapper(sentence.tree)
    return top if bare_label(top.label) == "S" else None


def _verb_phrase(sentence: Sentence) -> Tree | None:
    """The main clause's verb phrase; auxiliaries are stepped over."""
    clause = _main_clause(sentence)
    phrases = (
        [child for child in clause.children if bare_label(child.label) == "VP"] if clause is not None else []
    )
    if len(phrases) != 1:
        return None
    phrase = phrases[0]
    while (inner := [child for child in phrase.children if bare_label(child.label) == "VP"]) and len(
        inner
    ) == 1:
        phrase = inner[0]
    return None if inner else phrase


def _main_verb(sentence: Sentence) -> Tree | None:
    clause = _main_clause(sentence)
    phrases = (
        [child for child in clause.children if bare_label(child.label) == "VP"] if clause is not None else []
    )
    if len(phrases) != 1 or any(bare_label(child.label) == "VP" for child in phrases[0].children):
        return None
    verbs = [
        child for child in phrases[0].children if child.word is not None and child.label.startswith("VB")
    ]
    return verbs[0] if len(verbs) == 1 else None


def _head_noun(phrase: Tree) -> Reading | None:
    """The last noun among a noun phrase's own words; of a phrase made of phrases, that of the first."""
    if any(bare_label(child.label) == "CC" for child in phrase.children):
        return None
    nouns = [child for child in phrase.children if child.word is not None and child.label.startswith("NN")]
    if nouns:
        label = NUMBERS.get(nouns[-1].label)
        return Reading(label, str(nouns[-1].word).lower()) if label else None
    inner = [child for child in phrase.children if bare_label(child.label) == "NP"]
    return _head_noun(inner[0]) if inner else None


def _subject_and_verb(clause: Tree) -> bool:
    labels = [bare_label(child.label) for child in clause.children]
    return "NP" in labels and "VP" in labels
