"""Tags on words and the spans they mean: BIO (IOB2), IOB1 and BIOES."""

from collections.abc import Iterable, Sequence

from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Span

PREFIXES = {"bio": ("B", "I"), "iob1": ("B", "I"), "bioes": ("B", "I", "E", "S")}  # by scheme


def spans_from_tags(tags: Sequence[str], scheme: str = "bio", where: str = "") -> list[Span]:
    """The spans a tag sequence means.

    Args:
        tags: "O", "B-PER", "I-PER", and in BIOES also "E-PER", "S-PER" (L and U are read as E and S).
        scheme: "bio" (IOB2: every span begins with B), "iob1" (B only between adjacent spans of one label),
            "bioes".
        where: put before an error: the file, line and sentence.

    Raises:
        HeadwiseError: a tag that cannot be read, or one that cannot follow the tag before it.
    """
    if scheme not in PREFIXES:
        raise HeadwiseError(f"unknown tag scheme {scheme!r}; expected one of {', '.join(PREFIXES)}")
    spans: list[Span] = []
    start, label = 0, ""  # the open span; no label: none is open

    def problem(message: str) -> HeadwiseError:
        return HeadwiseError(f"{where}: {message}" if where else message)

    def close(end: int) -> None:
        nonlocal label
        if label:
            spans.append(Span(start, end, label))
        label = ""

    for i, tag in enumerate(tags):
        prefix, _, name = tag.partition("-")
        if scheme == "bioes":
            prefix = {"L": "E", "U": "S"}.get(prefix, prefix)
        if tag != "O" and (not name or prefix not in PREFIXES[scheme]):
            raise problem(f"word {i + 1} has the tag {tag!r}, which {scheme} does not know")
        goes_on = prefix in ("I", "E")
        if goes_on and name != label and scheme != "iob1":
            before = tags[i - 1] if i else "the beginning"
            raise problem(f"word {i + 1} has the tag {tag!r}, which cannot follow {before!r} in {scheme}")
        if scheme == "bioes" and not goes_on and label:
            raise problem(f"word {i + 1} has the tag {tag!r} before an E-{label} ended the open span")
        if not (goes_on and name == label):
            close(i)
            start, label = i, name
        if prefix in ("E", "S"):
            close(i + 1)
    if scheme == "bioes" and label:
        raise problem(f"the sentence ends before an E-{label} ended the open span")
    close(len(tags))
    return spans


def tags_from_spans(spans: Iterable[Span], size: int, scheme: str = "bio") -> list[str]:
    """The tags of spans that do not overlap, for a sentence of `size` words; the inverse of
    `spans_from_tags`.

    Raises:
        HeadwiseError: spans overlap or leave the sentence.
    """
    tags = ["O"] * size
    before: Span | None = None
    for span in sorted(spans):
        start, end, label = span
        if not 0 <= start < end <= size:
            raise HeadwiseError(f"span {tuple(span)} is empty or leaves the sentence of {size} words")
        if before is not None and before.end > start:
            raise HeadwiseError(f"spans {tuple(before)} and {tuple(span)} overlap: tags cannot express that")
        adjoins = before is not None and before.end == start and before.label == label
        for i in range(start, end):
            tags[i] = f"I-{label}"
        if scheme != "iob1" or adjoins:
            tags[start] = f"B-{label}"
        if scheme == "bioes":
            prefix = "E" if end - start > 1 else "S"
            tags[end - 1] = f"{prefix}-{label}"
        before = span
    return tags
