"""Dependencies from the phrases of English treebanks: a table says which child carries a phrase of each of
the Penn Treebank's labels.

Every phrase takes its head word from the child that carries it, and the head words of the other children
depend on it: one root, and no crossing arcs. The table stands in the tradition of Magerman (1995) and Collins
(1999), changed towards the basic Stanford dependencies (de Marneffe et al. 2006):

- the lexical verb carries a verb phrase, and its auxiliaries (modals, "to", forms of have, be, do and get)
  depend on it; a form of be that has no other verb after it carries the phrase itself, and what follows
  depends on it;
- a preposition carries its phrase; the clause carries an SBAR, and the word that introduces it depends on the
  clause's verb;
- the first conjunct of a coordination carries it, and further conjuncts, conjunctions and commas depend on
that
  one, in flat noun phrases too;
- the last noun before any comma carries a noun phrase, and a possessive 's depends on it;
- punctuation depends on the head of the phrase it stands in, and never carries one that holds anything else.

The relation of a word is the label of the largest phrase that it carries, without function tags, or its part
of speech where it carries none. A noun phrase also names the phrase around it if that is a clause, a verb
phrase, a prepositional or another noun phrase: "NP|S" (mostly subjects), "NP|VP" (objects), "NP|PP", "NP|NP".
The relation of punctuation is "punct", that of the root "root".
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from headwise._base.names import shown
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence, Tree, bare_label

PUNCTUATION = {
    ",",
    ":",
    ".",
    "``",
    "''",
    '"',
    "-LRB-",
    "-RRB-",
    "-LSB-",
    "-RSB-",
    "-LCB-",
    "-RCB-",
    "HYPH",
    "NFP",
}
ASIDE = {"EDITED", "PRN", "META", "CODE", "LST", "LS"}  # heads only where a phrase has nothing else
AUXILIARIES = {
    *["be", "am", "are", "is", "was", "were", "been", "being", "'m", "'re", "'s", "m", "re", "s", "ai"],
    *["have", "has", "had", "having", "'ve", "'d", "ve", "d", "do", "does", "did", "doing", "done"],
    *["get", "gets", "got", "getting", "gotten"],
}
# from carrying a phrase; where they exclude every child, the next of these
EXCLUDED = (PUNCTUATION | ASIDE | {"CC", "CONJP"}, PUNCTUATION | ASIDE, PUNCTUATION, set[str]())
SEPARATORS = {"CC", "CONJP", ",", ":"}  # between the conjuncts of a coordination
VERBAL = "VB VBD VBG VBN VBP VBZ"
VERBS = frozenset(VERBAL.split())
NOUNS = "NN NNS NNP NNPS NX NML"
CLAUSES = "S SQ SINV SBARQ"
AROUND = {**dict.fromkeys((*CLAUSES.split(), "SBAR"), "S"), "VP": "VP", "PP": "PP", "NP": "NP"}

# What carries a phrase: one group of labels after another, < the first and > the last child with one of them;
# VERB is the rule for verbs
_NOUN_PHRASE = (
    f"> {NOUNS} ADD GW | < NP | > PRP | > $ | > CD QP | > JJR JJS JJ ADJP VBG VBN | > WHNP | > WP WDT WP$ "
    "| > DT RB EX FW | > S SBAR | >"
)
TABLE: dict[str, str] = {
    **dict.fromkeys(("NP", "NX", "NML", "NAC", "WHNP"), _NOUN_PHRASE),
    "VP": f"VERB | < {VERBAL} | < MD TO | < ADJP NP | < S | <",
    "S": f"< VP | < {CLAUSES} | < {VERBAL} MD | > ADJP | < SBAR UCP | > NP | > PP ADVP | >",
    **dict.fromkeys(("SINV", "SQ"), f"VERB | < {VERBAL} | < MD | < {CLAUSES} | < ADJP NP PP | <"),
    "SBARQ": f"< {CLAUSES} | < VP | < SBAR | < WHNP WHADVP WHPP WHADJP | <",
    "SBAR": f"< {CLAUSES} | < SBAR | < VP FRAG | < WHNP WHADVP WHPP WHADJP | < IN DT | <",
    "PP": "< IN TO VBG VBN RP | < PP | < FW JJ RB ADVP | <",
    "WHPP": "< IN TO | < WHPP | <",
    "ADJP": f"> JJ JJR JJS VBN VBG {NOUNS} | < ADJP | > $ CD QP | > RB RBR RBS ADVP | > IN | >",
    "WHADJP": "> JJ JJR JJS | > WHADJP | > WRB | >",
    "ADVP": f"> RB RBR RBS | < ADVP | > WRB | > JJ JJR JJS {NOUNS} NP | > IN TO RP | > CD DT | >",
    "WHADVP": "> RB RBR JJ | > WHADVP | > WRB | > CC IN | >",
    "QP": f"> $ | > CD | < QP {NOUNS} | > JJ JJR JJS | > RB DT | >",
    "PRT": "< RP IN RB | <",
    "CONJP": "< RB IN CC | <",
    "PRN": f"< {CLAUSES} | < SBAR VP | < NP PP ADJP ADVP | <",
    "RRC": "< VP | < ADJP | < NP | < PP ADVP | <",
    "FRAG": f"< {CLAUSES} VP | < SBAR | < NP ADJP PP ADVP | < WHNP WHADVP | <",
}


def _rules(line: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The side ("<", ">" or "VERB") and the labels of each group of a line of the table."""
    for group in line.split(" | "):
        side, *labels = group.split()
        yield side, frozenset(labels)


RULES = {label: list(_rules(line)) for label, line in TABLE.items()}


def with_dependencies(sentence: Sentence) -> Sentence:
    """The sentence with `heads` and `deprels` made from its constituency tree, by the rules that the page on
    structured tasks describes.

    Raises:
        HeadwiseError: it has no tree, or one over other words.
    """
    where = sentence.source or str(sentence)
    if sentence.tree is None:
        raise HeadwiseError(f"{shown(where)} has no constituency tree to make dependencies of")
    if sentence.tree.words() != sentence.words:
        raise HeadwiseError(
            f"{shown(where)}: its tree has the words {shown(sentence.tree.words())}, not those of the "
            "sentence"
        )
    heads, relations = dependencies(sentence.tree)
    return replace(sentence, heads=heads, deprels=relations)


def dependencies(tree: Tree) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The head of every word (0: the root, k: the k-th word counted from 1) and its relation; the tree must
    hold no traces.
    """
    leaves = list(tree.leaves())
    heads, relations = [0] * len(leaves), ["root"] * len(leaves)
    numbers = iter(range(len(leaves)))

    def head_word(node: Tree) -> int:
        if not node.children:
            return next(numbers)
        words = [head_word(child) for child in node.children]
        head = words[head_child(node)]
        for child, word in zip(node.children, words, strict=True):
            if word == head:
                continue
            heads[word] = head + 1
            if bare_label(leaves[word].label) in PUNCTUATION:
                relations[word] = "punct"
            else:
                relations[word] = relation(bare_label(child.label), bare_label(node.label))
        return head

    head_word(tree)
    return tuple(heads), tuple(relations)


def relation(phrase: str, around: str) -> str:
    """What a phrase (or part of speech) is to the phrase around it."""
    if phrase == "NP" and around in AROUND:
        return f"NP|{AROUND[around]}"
    return phrase


def head_child(node: Tree) -> int:
    """Which child of a phrase carries it."""
    labels = [bare_label(child.label) for child in node.children]
    candidates: list[int] = []
    for excluded in EXCLUDED:
        candidates = candidates or [i for i, label in enumerate(labels) if label not in excluded]
    conjuncts = list(accumulate(label in SEPARATORS for label in labels))  # each child's, by number
    for side, carriers in RULES.get(bare_label(node.label), [("<", frozenset[str]())]):
        end = -1 if side == ">" else 0
        if not carriers and side != "VERB":  # any child
            return candidates[end]
        if side == "VERB":  # a verb that is no auxiliary, else the verb phrase under the auxiliaries
            verbs = [
                i for i in candidates if labels[i] in VERBS and _plain(node.children[i]) not in AUXILIARIES
            ]
            phrases = [i for i in candidates if labels[i] == "VP"]
            fitting = sorted(verbs + phrases, key=lambda i: (conjuncts[i], i in phrases))
        else:
            fitting = [i for i in candidates if labels[i] in carriers]
        if fitting:
            first_conjunct = [i for i in fitting if conjuncts[i] == conjuncts[fitting[0]]]
            return first_conjunct[end]
    raise AssertionError("every rule ends with any child")


def _plain(leaf: Tree) -> str:
    return str(leaf.word).lower().replace("’", "'")
