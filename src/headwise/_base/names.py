"""Names that people and files give, where they become file names: checked once, so that nothing leaves the
folder a user names."""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

# said of a text that is not `writable`
HALF = "holds half of a character (a lone surrogate), which no encoding can write"
COMMANDS = {
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
}  # categories of characters: control, format, half of one, ends of lines and paragraphs
# characters of a name: a file system takes 255 bytes, and a character may need four of them
LONGEST = 100


def check_name(name: Any, what: str = "a task") -> str:
    """The name itself, if it may also name a file.

    Raises:
        HeadwiseError: it is not text, empty, too long, begins with a dot, or holds a slash, a line break or
            another character that cannot be shown.
    """
    wrong = ""
    if not isinstance(name, str):
        wrong = "it must be text"
    elif not name.strip():
        wrong = "it must not be empty"
    elif len(name) > LONGEST:
        wrong = f"it has {len(name)} characters, and at most {LONGEST} are allowed"
    elif "/" in name or "\\" in name or name.startswith("."):
        wrong = (
            "it is also used as a file name, so it must not contain a slash or backslash or begin with a dot"
        )
    elif not name.isprintable():
        wrong = "it must not contain line breaks or other unprintable characters"
    if wrong:
        raise HeadwiseError(f"{shown(name)} cannot be the name of {what}: {wrong}")
    return str(name)


def file_name(text: str) -> str:
    """Any text as a file name: letters, digits, - and _ stay, as do dots after the first character; anything
    else becomes a -."""
    letters = [letter if letter.isalnum() or letter in "-_." else "-" for letter in text[:LONGEST]]
    if not letters or letters[0] == ".":
        letters[:1] = "-"
    return "".join(letters)


def inside(folder: Path, name: Any) -> Path:
    """The file `name` of `folder`, where a file that was read gave the name; it may lie in a folder within.

    Raises:
        HeadwiseError: the name is not text or leads out of the folder.
    """
    steps = name.split("/") if isinstance(name, str) else [""]
    if any(step in ("", ".", "..") or "\0" in step or "\\" in step for step in steps):
        raise HeadwiseError(
            f"{folder} names the file {shown(name)}, which does not lie in it: the folder is damaged, or was "
            "tampered with"
        )
    return folder.joinpath(*steps)


def writable(text: str) -> bool:
    """Whether some encoding can write the text: JSON may hold halves of characters (lone surrogates), which
    tokenizers cannot take."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def shown(value: Any) -> str:
    """A value as messages show it: on one line, and cut where it is long."""
    try:
        printable = not isinstance(value, str) or value.isprintable()
        text = repr(value) if printable else ascii(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return cut(text)


def as_fraction(value: float) -> str:
    """What a fraction must be, for a message about `value`; a number that looks like percent is said as a
    fraction too."""
    if 1 < value <= 100:
        return f"a fraction is between 0 and 1 ({value:g} % is {value / 100:g})"
    return "a fraction is between 0 and 1"


def cut(text: str) -> str:
    """The beginning of a long text, and how long it is."""
    if len(text) <= 80:
        return text
    return f"{text[:60]}… ({len(text)} characters)"


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Names in a row as messages list them, the first ones where there are many; each cut where it is
    long."""
    shortened = [cut(str(name)) for name in names]
    line = ", ".join(shortened[:most])
    if len(shortened) > most:
        line += f" and {len(shortened) - most} more"
    return line


def spelling(name: str) -> str:
    """A name apart from case, spaces, underscores, characters that are not seen and the form in which
    characters are encoded."""
    letters = unicodedata.normalize("NFKC", name).replace("_", " ")
    visible = "".join(letter for letter in letters if unicodedata.category(letter) != "Cf")
    return " ".join(visible.split()).casefold()


def legible(text: str, most: int = 2000) -> str:
    """A text from anywhere as it may be stored and shown: characters that would command a terminal as
    escapes, the middle of a long one left out. Lines stay lines."""
    if len(text) > most:
        start, end = text[: most // 2], text[len(text) - most // 2 :]
        text = f"{start} … ({len(text) - most} characters left out) … {end}"
    commands = {letter for letter in set(text) - {"\n", "\t"} if unicodedata.category(letter) in COMMANDS}
    return text.translate({ord(letter): ascii(letter)[1:-1] for letter in commands})


def one_spelling(name: Any, allowed: Sequence[Any]) -> Any:
    """A data type or precision as an option spells it: what one calls "bf16" is "bfloat16" elsewhere, and
    "no" mixed precision float32."""
    for names in ({"no", "float32", "fp32"}, {"bf16", "bfloat16"}, {"fp16", "float16"}):
        if isinstance(name, str) and name in names and name not in allowed:
            return next((spelling for spelling in allowed if spelling in names), name)
    return name
