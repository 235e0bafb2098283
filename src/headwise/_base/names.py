"""Names that people and files give, where they become file names: checked once, so that nothing leaves the folder a user names."""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

HALF = "holds half of a character (a lone surrogate), which no encoding can write"  # said of a text that is not `writable`
COMMANDS = {
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
}  # categories of characters: control, format, half of one, ends of lines and paragraphs
LONGEST = 100  # characters of a name: a file system takes 255 bytes, and a character may need four of them with a suffix after


def check_name(name: Any, what: str = "a task") -> str:
    """The name itself, if it may also name a file.

    Raises:
        HeadwiseError: it is not text, empty, too long, begins with a dot, or holds a slash, a line break or another character that
            cannot be shown.
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
    """Any text as a file name: letters, digits, - and _ stay, as do dots after the first character; anything else becomes a -."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in text)[:LONGEST]
    return kept if kept and not kept.startswith(".") else f"-{kept[1:]}"


def inside(folder: Path, name: Any) -> Path:
    """The file `name` of `folder`, where a file that was read gave the name; it may lie in a folder within.

    Raises:
        HeadwiseError: the name is not text or leads out of the folder.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts):
        raise HeadwiseError(
            f"{folder} names the file {shown(name)}, which does not lie in it: the folder is damaged, or was tampered with"
        )
    return folder.joinpath(*parts)


def writable(text: str) -> bool:
    """Whether some encoding can write the text: JSON may hold halves of characters (lone surrogates), which tokenizers cannot take."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def shown(value: Any) -> str:
    """A value as messages show it: on one line, and cut where it is long."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return cut(text)


def as_fraction(value: float) -> str:
    """What a fraction must be, for a message about `value`; a number that looks like percent is said as a fraction too."""
    return "a fraction is between 0 and 1" + (
        f" ({value:g} % is {value / 100:g})" if 1 < value <= 100 else ""
    )


def cut(text: str) -> str:
    """The beginning of a long text, and how long it is."""
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Names in a row as messages list them, the first ones where there are many; each cut where it is long."""
    every = [cut(str(name)) for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def spelling(name: str) -> str:
    """A name apart from case, spaces, underscores, characters that are not seen and the form in which characters are encoded."""
    seen = "".join(
        letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf"
    )
    return " ".join(seen.replace("_", " ").split()).casefold()


def legible(text: str, most: int = 2000) -> str:
    """A text from anywhere as it may be stored and shown: characters that would command a terminal as escapes, the middle of a long one left
    out. Lines stay lines."""
    if len(text) > most:
        text = f"{text[: most // 2]} … ({len(text) - most} characters left out) … {text[len(text) - most // 2 :]}"
    return "".join(
        letter if unicodedata.category(letter) not in COMMANDS or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )


def one_spelling(given: Any, allowed: Sequence[Any]) -> Any:
    """A data type or precision as an option spells it: what one calls "bf16" is "bfloat16" elsewhere, and "no" mixed precision float32."""
    for names in ({"no", "float32", "fp32"}, {"bf16", "bfloat16"}, {"fp16", "float16"}):
        if isinstance(given, str) and given in names and given not in allowed:
            return next((name for name in allowed if name in names), given)
    return given
