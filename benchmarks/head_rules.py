"""How far dependencies made from constituency trees agree with Universal Dependencies of the same sentences.

    python benchmarks/head_rules.py --path GUM

GUM is a folder of CoNLL-U files with bracketed trees of the same names beside them. Heads are compared without relations, on the words
whose head both schemes define alike: without punctuation; without words whose UD relation is case, cop, cc, flat, fixed, goeswith, list,
dep, orphan, reparandum, vocative, discourse, parataxis or dislocated; without words that have such a case or copula, or stand under a
predicate with a copula; and without the parts of flat names. JSON on standard output.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from headwise.tasks import Sentence, with_dependencies
from headwise.tasks._sources import folder_files
from headwise.tasks.readers import read_sentences
from parts import said

LOOSE = {
    "case",
    "cop",
    "cc",
    "flat",
    "fixed",
    "goeswith",
    "list",
    "dep",
    "orphan",
    "reparandum",
    "vocative",
    "discourse",
}
LOOSE |= {"parataxis", "dislocated"}


def agreement(sentences: list[Sentence]) -> dict[str, object]:
    """Words with the same head in both schemes: of those that both define alike, by relation, and of all but punctuation."""
    right: Counter[str] = Counter()
    words: Counter[str] = Counter()
    every = alike = 0
    for sentence in sentences:
        assert sentence.heads is not None
        assert sentence.deprels is not None
        relations = [name.split(":")[0] for name in sentence.deprels]
        below: list[set[str]] = [set() for _ in range(len(sentence) + 1)]
        for head, name in zip(sentence.heads, relations, strict=True):
            below[head].add(name)
        made = with_dependencies(sentence).heads or ()
        for i, (ours, theirs) in enumerate(zip(made, sentence.heads, strict=True)):
            if relations[i] == "punct":
                continue
            every += 1
            alike += ours == theirs
            if (
                relations[i] in LOOSE
                or below[i + 1] & {"case", "cop", "flat"}
                or below[theirs] & {"cop", "flat"}
            ):
                continue
            words[relations[i]] += 1
            right[relations[i]] += ours == theirs
    return {
        "sentences": len(sentences),
        "words": every,
        "all": round(alike / every, 3),
        "words_alike": words.total(),
        "alike": round(right.total() / words.total(), 3),
        "by_relation": {name: [round(right[name] / count, 3), count] for name, count in words.most_common()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True)
    path = parser.parse_args().path
    found = {}
    for split, file in folder_files(path).items():
        found[split] = said(
            split, agreement([s for s in read_sentences(file) if s.tree is not None and s.heads is not None])
        )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
