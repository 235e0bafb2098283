"""The grammar's sentences: every layer consistent with every other, and labels read back from the trees by other means."""

from collections import Counter

import pytest

from headwise import grammar
from headwise.errors import HeadwiseError
from headwise.grammar import _inflection as inflection, _sentences as sentences, _sentiment as sentiment
from headwise.grammar._lexicon import SPLITS, load
from headwise.grammar._making import draw
from headwise.grammar._phrases import text_of, to_sentence
from headwise.grammar._source import Source
from headwise.tasks import Sentence
from headwise.tasks.readers.blocks import check_heads, check_roles, check_spans

UPOS = {
    "NN": "NOUN",
    "NNS": "NOUN",
    "NNP": "PROPN",
    "JJ": "ADJ",
    "CD": "NUM",
    "DT": "DET",
    "IN": "ADP",
    "CC": "CCONJ",
    "WP": "PRON",
    "WDT": "PRON",
    "WRB": "SCONJ",
    ",": "PUNCT",
    ".": "PUNCT",
}
BANK = [sentence for split in SPLITS for sentence in grammar.treebank(250, seed=11, split=split)]


def children(sentence: Sentence, word: int, *relations: str) -> list[int]:
    assert sentence.heads is not None
    assert sentence.deprels is not None
    return [
        i for i, head in enumerate(sentence.heads) if head == word + 1 and sentence.deprels[i] in relations
    ]


def subtree(sentence: Sentence, word: int) -> list[int]:
    assert sentence.heads is not None
    found = [word]
    for i in found:
        found += [j for j, head in enumerate(sentence.heads) if head == i + 1]
    return sorted(found)


def root(sentence: Sentence) -> int:
    assert sentence.heads is not None
    return sentence.heads.index(0)


def finite(sentence: Sentence, verb: int) -> int:
    """The word that carries a clause's tense."""
    return (children(sentence, verb, "aux", "aux:pass", "cop") or [verb])[0]


def test_trees_yield_the_words_and_tags() -> None:
    for sentence in BANK:
        assert sentence.tree is not None
        assert sentence.tree.words() == sentence.words
        assert tuple(leaf.label for leaf in sentence.tree.leaves()) == sentence.xpos
        assert sentence.tree.label == "TOP"
        assert sentence.words[0][0].isupper()
        assert sentence.words[-1] in ".?"


def test_dependencies_are_projective_trees_that_agree_with_constituents() -> None:
    for sentence in BANK:
        assert sentence.heads is not None
        assert sentence.tree is not None
        check_heads(sentence.heads, str(sentence))
        for word in range(len(sentence)):
            span = subtree(sentence, word)
            assert span == list(range(span[0], span[-1] + 1)), f"{sentence} is not projective at {word}"
        for start, end, _ in sentence.tree.spans():  # every phrase has one way out
            out = [i for i in range(start, end) if not start <= sentence.heads[i] - 1 < end]
            assert len(out) == 1


def test_tags_agree_with_each_other_and_with_the_lexicon() -> None:
    lexicon = load()
    kinds: dict[str, set[str]] = {}
    forms: dict[str, set[str]] = {}
    for entry in lexicon.entries:
        kinds.setdefault(entry.lemma, set()).add(entry.kind)
        forms.setdefault(entry.lemma, set()).update((entry.lemma, entry.plural, entry.past, entry.participle))
    for sentence in BANK:
        assert sentence.upos is not None
        assert sentence.xpos is not None
        assert sentence.lemmas is not None
        for i, (word, upos, xpos, lemma) in enumerate(
            zip(sentence.words, sentence.upos, sentence.xpos, sentence.lemmas, strict=True)
        ):
            if xpos in UPOS and word.lower() not in ("because", "while", "although"):
                assert upos == UPOS[xpos], (word, upos, xpos)
            if upos == "NOUN":
                assert kinds[lemma] & {"person", "thing", "place"}
                assert word.lower() in {form.lower() for form in forms[lemma]}
                assert sentence.feature(i, "Number") == ("Plur" if xpos == "NNS" else "Sing")
            elif upos == "VERB":
                assert "verb" in kinds[lemma]
                regular = {inflection.third_person(lemma), inflection.gerund(lemma)}
                assert word.lower() in forms[lemma] | regular
            elif upos == "PROPN":
                assert kinds[lemma] & {"name", "time"}
            if word in ("a", "an", "A", "An"):
                assert word.lower() == inflection.article(sentence.words[i + 1])


def test_subjects_agree_with_their_verbs() -> None:
    seen: Counter[str] = Counter()
    for sentence in BANK:
        assert sentence.xpos is not None
        for verb in range(len(sentence)):
            for subject in children(sentence, verb, "nsubj", "nsubj:pass"):
                carrier = finite(sentence, verb)
                form, tag = sentence.words[carrier].lower(), sentence.xpos[carrier]
                plural = sentence.xpos[subject] == "NNS"
                if sentence.xpos[subject] in (
                    "WP",
                    "WDT",
                ):  # the pronoun takes its number from the noun the clause is about
                    assert sentence.heads is not None
                    plural = sentence.xpos[sentence.heads[verb] - 1] == "NNS"
                if tag in ("VBZ", "VBP"):
                    assert (tag == "VBP") == plural, str(sentence)
                if form in ("was", "were"):
                    assert (form == "were") == plural, str(sentence)
                seen[tag] += 1
    assert {"VBD", "VBZ", "VBP"} <= set(seen)


def test_roles_and_entities_agree_with_the_dependencies() -> None:
    for sentence in BANK:
        assert sentence.roles is not None
        assert sentence.entities is not None
        assert sentence.upos is not None
        check_roles(sentence.roles, len(sentence), str(sentence))
        check_spans(sentence.entities, len(sentence), str(sentence))
        verbs = [i for i, tag in enumerate(sentence.upos) if tag == "VERB"]
        assert set(verbs) <= {predicate.index for predicate in sentence.roles}
        for predicate in sentence.roles:
            if sentence.upos[predicate.index] != "VERB":
                continue
            found = {label: list(range(start, end)) for start, end, label in predicate.arguments}
            for relation, role in (
                ("nsubj", "ARG0"),
                ("nsubj:pass", "ARG1"),
                ("obj", "ARG1"),
                ("iobj", "ARG2"),
            ):
                for child in children(sentence, predicate.index, relation):
                    relative = sentence.words[child] in ("who", "that")
                    assert found[f"R-{role}" if relative else role] == subtree(sentence, child), str(sentence)
            negated = [i for i in children(sentence, predicate.index, "advmod") if sentence.words[i] == "not"]
            assert found.get("ARGM-NEG", []) == negated
        for start, end, label in sentence.entities:
            assert label in ("PER", "ORG", "LOC")
            assert set(sentence.upos[start:end]) == {"PROPN"}


def test_tense_number_and_topic_can_be_read_off_the_main_clause() -> None:
    topics = {entry.lemma: entry.topic for entry in load().entries if entry.kind in ("person", "thing")}
    for sentence in BANK:
        assert sentence.xpos is not None
        assert sentence.lemmas is not None
        verb = root(sentence)
        tense = "past" if sentence.xpos[finite(sentence, verb)] == "VBD" else "present"
        assert sentence.labels["tense"] == tense, str(sentence)
        (subject,) = children(sentence, verb, "nsubj", "nsubj:pass")
        number = "plural" if sentence.xpos[subject] == "NNS" else "singular"
        assert sentence.labels["subject_number"] == number
        objects = children(sentence, verb, "obj")
        if "object_number" in sentence.labels and sentence.labels["object_number"] != "none":
            assert sentence.labels["object_number"] == (
                "plural" if sentence.xpos[objects[0]] == "NNS" else "singular"
            )
            assert {topics[sentence.lemmas[i]] for i in (subject, *objects)} == {sentence.labels["topic"]}


def polarity(sentence: Sentence, head: int) -> int:
    """+1 or -1: that of the word, turned around by "not" and "nobody"."""
    assert sentence.lemmas is not None
    sign = 0
    for entry in load().entries:
        if entry.lemma == sentence.lemmas[head] and entry.topic in ("positive", "negative"):
            sign = 1 if entry.topic == "positive" else -1
    turns = [i for i in children(sentence, head, "advmod") if sentence.words[i] == "not"]
    turns += [i for i in children(sentence, head, "nsubj") if sentence.words[i].lower() == "nobody"]
    return sign * (-1) ** len(turns)


def test_sentiment_is_that_of_the_main_clause_after_negation() -> None:
    forms: Counter[str] = Counter()
    disagree = 0
    for split in SPLITS:
        source = Source("s", split)
        for i in range(200):
            label = ("negative", "positive")[i % 2]
            sentence = to_sentence(*sentiment.draw(source, label))
            head = root(sentence)
            conjunct = children(sentence, head, "conj")
            found = polarity(sentence, conjunct[0] if conjunct else head)
            assert found == (1 if label == "positive" else -1), str(sentence)
            forms[sentence.labels["template"]] += 1
            words = [w for w in range(len(sentence)) if polarity(sentence, w)]
            disagree += (
                len({polarity(sentence, w) for w in words}) > 1
                or "not" in sentence.words
                or "obody" in sentence.text
            )
    assert set(forms) == set(sentiment.FORMS)
    assert disagree > 300  # more than half have a word that points the other way, or a negation


@pytest.mark.parametrize("name", ["topic", "tense", "subject_number", "object_number", "sentiment"])
def test_wishes_are_granted_in_text_and_annotation_alike(name: str) -> None:
    source = Source(3, "train")
    for label in grammar.task(name, 32, held_out=16).classes:
        for _ in range(10):
            root, frames, labels = draw(name, source, label)
            assert labels[name] == label
            assert text_of(root) == to_sentence(root, frames, labels).text


def test_splits_share_no_word_and_no_template() -> None:
    open_class: dict[str, set[str]] = {}
    templates: dict[str, set[str]] = {}
    kinds = {entry.lemma for entry in load().find("kind")} | {entry.lemma for entry in load().find("time")}
    for split in SPLITS:
        lemmas: set[str] = set()
        for name in ("topic", "tense", "object_number", "sentiment"):
            source = Source(f"{name}/0", split)
            classes = {
                "topic": load().topics,
                "sentiment": ("negative", "positive"),
                "tense": ("past", "present"),
            }
            for i in range(150):
                options = classes.get(name, ("singular", "plural"))
                made = to_sentence(*draw(name, source, options[i % len(options)]))
                assert made.upos is not None
                assert made.lemmas is not None
                content = ("NOUN", "VERB", "PROPN", "ADJ")
                lemmas |= {
                    lemma for lemma, tag in zip(made.lemmas, made.upos, strict=True) if tag in content
                } - kinds
                if name != "sentiment":
                    templates.setdefault(split, set()).add(made.labels["template"])
        for sentence in grammar.treebank(150, seed=0, split=split):
            assert sentence.upos is not None
            assert sentence.lemmas is not None
            lemmas |= {
                lemma
                for lemma, tag in zip(sentence.lemmas, sentence.upos, strict=True)
                if tag in ("NOUN", "VERB", "PROPN")
            } - kinds
        open_class[split] = lemmas - {"many", "several", "be", "have", "do", "nobody", "everybody"}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not open_class[one] & open_class[other]
        assert not templates[one] & templates[other]
    assert len(open_class["train"]) > 300


def test_every_section_of_the_lexicon_has_words_for_every_split() -> None:
    lexicon = load()
    sections = Counter((e.kind, e.topic, e.category, e.split) for e in lexicon.entries if e.split >= 0)
    for kind, topic, category in {key[:3] for key in sections}:
        for split in range(3):
            assert sections[kind, topic, category, split] >= 1, (kind, topic, category, split)
    assert len(lexicon.topics) >= 4
    assert len({entry.lemma for entry in lexicon.entries}) > 700
    split_of: dict[str, int] = {}
    for entry in lexicon.entries:  # a word in two sections, or a pair of synonyms, stays in one split
        for lemma in filter(None, (entry.lemma, entry.synonym)):
            assert split_of.setdefault(lemma, entry.split) == entry.split, lemma
    with pytest.raises(HeadwiseError, match="no thing 'unicorn'"):
        lexicon.named("thing", "unicorn")


def test_hypernyms_climb_and_hyponyms_descend() -> None:
    lexicon = load()
    assert [e.lemma for e in lexicon.hypernyms(lexicon.named("thing", "trout"))] == ["fish", "animal"]
    assert [e.lemma for e in lexicon.hypernyms(lexicon.named("kind", "fish"))] == ["animal"]
    below = {e.lemma for e in lexicon.hyponyms("thing", "animal", None)}
    assert {"trout", "owl", "moth"} <= below
    assert "rose" not in below


@pytest.mark.parametrize(
    ("word", "plural", "past", "gerund"),
    [
        ("bake", "bakes", "baked", "baking"),
        ("carry", "carries", "carried", "carrying"),
        ("hum", "hums", "hummed", "humming"),
    ],
)
def test_inflection_by_rule(word: str, plural: str, past: str, gerund: str) -> None:
    assert (inflection.third_person(word), inflection.past(word), inflection.gerund(word)) == (
        plural,
        past,
        gerund,
    )


def test_articles_and_plurals() -> None:
    assert [
        inflection.article(word) for word in ("owl", "unusual", "x-ray", "ukulele", "tuba", "herbalist")
    ] == [
        "an",
        "an",
        "an",
        "a",
        "a",
        "a",
    ]
    assert [inflection.plural(word) for word in ("box", "daisy", "tray", "wasp", "bench")] == [
        "boxes",
        "daisies",
        "trays",
        "wasps",
        "benches",
    ]


def test_templates_are_all_used() -> None:
    source = Source(0, "train")
    seen = {sentences.choose(source) for _ in range(1500)}
    for place, options in enumerate(
        (
            sentences.STRUCTURES,
            sentences.VOICES,
            sentences.ASPECTS,
            sentences.SUBJECTS,
            sentences.OBJECTS,
            sentences.ADJUNCTS,
        )
    ):
        assert {template[place] for template in seen} == set(options)
