"""English word forms by rule; the lexicon lists what no rule gives."""

VOWELS = "aeiou"
# final consonants that double: stop verbs of one stressed syllable, and a few longer ones
DOUBLING = {
    "strum",
    "hum",
    "lob",
    "chat",
    "nap",
    "ship",
    "stir",
    "trim",
    "debug",
    "regret",
    "reformat",
    "wrap",
    "grab",
    "drop",
    "stop",
}
IRREGULAR = {"swim", "run", "forget", "get", "sit", "put", "cut"}  # double before "ing" alone


def plural(noun: str) -> str:
    """ "box" -> "boxes", "daisy" -> "daisies"."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def third_person(verb: str) -> str:
    """ "carry" -> "carries"."""
    if verb.endswith("o"):
        return verb + "es"
    return plural(verb)


def past(verb: str) -> str:
    """The regular past, which is the participle too: "carry" -> "carried", "hum" -> "hummed"."""
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in VOWELS:
        return verb[:-1] + "ied"
    if verb in DOUBLING:
        return verb + verb[-1] + "ed"
    return verb + "ed"


def gerund(verb: str) -> str:
    """ "bake" -> "baking", "swing" -> "swinging"."""
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        return verb[:-1] + "ing"
    if verb in DOUBLING | IRREGULAR:
        return verb + verb[-1] + "ing"
    return verb + "ing"


def article(word: str) -> str:
    """ "a" or "an" before a word, by its sound as far as spelling shows it."""
    lower = word.lower()
    if lower.startswith(("uni", "use", "usu", "uk", "eu", "one")):
        return "a"
    if lower.startswith((*VOWELS, "hour", "honest", "heir", "x-")):
        return "an"
    return "a"
