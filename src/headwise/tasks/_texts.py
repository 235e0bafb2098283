"""Texts kept as bytes, end to end: a million of them take the space of their letters, and from some size on
lie in a file.

A list of a million tuples of strings takes several times as much memory as the file it was read from.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from headwise._base.writing import room_in

Text = tuple[str, ...]
FEW = 10_000  # up to this many texts stay as they are


class Texts(Sequence[Text]):
    """Tuples of one or two strings, read like a list of them.

    Args:
        columns: for each position in the tuple the bytes of all strings and where each begins (n + 1
            numbers).
        numbers: of the texts that belong, in order; None: all. Subsets share the bytes.
    """

    def __init__(
        self,
        columns: Sequence[tuple[NDArray[np.uint8], NDArray[np.int64]]],
        numbers: NDArray[np.int64] | None = None,
    ):
        self._columns = columns
        self._numbers = numbers

    def __len__(self) -> int:
        if self._numbers is not None:
            return len(self._numbers)
        _, begins = self._columns[0]
        return len(begins) - 1

    @overload
    def __getitem__(self, index: int) -> Text: ...
    @overload
    def __getitem__(self, index: slice) -> list[Text]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if self._numbers is not None:
            number = int(self._numbers[number])
        return tuple(
            letters[begins[number] : begins[number + 1]].tobytes().decode("utf-8", "surrogatepass")
            for letters, begins in self._columns
        )

    def __iter__(self) -> Iterator[Text]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Texts | list):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def take(self, numbers: NDArray[np.int64]) -> "Texts":
        """The texts with these numbers, in that order."""
        return Texts(self._columns, numbers if self._numbers is None else self._numbers[numbers])


def keep_texts(texts: Iterable[Text], count: int) -> Sequence[Text]:
    """`count` texts: as a list where they are few, else as `Texts` in files without a name, which go with the
    process.

    Raises:
        NoSpace: the folder for temporary files has no room for them.
    """
    if count <= FEW:
        return list(texts)
    files: list[Any] = []
    begins: list[NDArray[np.int64]] = []
    with room_in(tempfile.gettempdir()):
        for number, text in enumerate(texts):
            if not files:
                # a map of a file lasts as long as the texts do
                files = [tempfile.TemporaryFile() for _ in text]  # noqa: SIM115
                begins = [np.zeros(count + 1, np.int64) for _ in text]
            for string, file, begin in zip(text, files, begins, strict=True):
                raw = string.encode("utf-8", "surrogatepass")
                begin[number + 1] = begin[number] + len(raw)
                file.write(raw)
        for file in files:
            file.flush()
    # plain views: slicing a memmap itself takes several times as long
    letters = [np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray) for file in files]
    return Texts(list(zip(letters, begins, strict=True)))
