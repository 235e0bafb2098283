"""Tables as CSV that no spreadsheet takes for formulas, and back: what is read is what was written."""

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# A spreadsheet computes a cell that begins like this. One that was marked already gets another mark, so that
# each can be taken off.
FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MARK = "'"


def csv_text(frame: "pd.DataFrame", header: bool = True) -> str:
    """A table as CSV without its index. Text that a spreadsheet would compute (=, +, -, @, tab or new line
    first) begins with an apostrophe; numbers stay numbers."""
    import pandas as pd

    marked = frame.copy(deep=False)
    for index, kind in enumerate(frame.dtypes):
        if not (pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind)):
            marked.isetitem(index, frame.iloc[:, index].astype(object).map(_marked).array)
    marked.columns = pd.Index([_marked(name) for name in frame.columns])
    text = str(marked.to_csv(index=False, header=header, lineterminator="\n"))
    if "\r" in text:  # which Python writes without quotation marks, and everybody reads as the end of a row
        text = str(
            marked.to_csv(index=False, header=header, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        )
    return text


def read_csv(path: str | Path) -> "pd.DataFrame":
    """A table that `csv_text` wrote. An empty cell is missing; "NA" and "null" are words."""
    import pandas as pd

    exact: Any = {}
    if int(pd.__version__.partition(".")[0]) < 3:  # from then on all numbers are read exactly
        exact = {"float_precision": "round_trip"}
    return unmarked(pd.read_csv(path, keep_default_na=False, na_values=[""], **exact))


def unmarked(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table that was read from such CSV, without the apostrophes."""
    import pandas as pd

    plain = frame.rename(columns=_unmarked)
    for index, kind in enumerate(plain.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            plain.isetitem(index, plain.iloc[:, index].map(_unmarked).array)
    return plain


def _marked(value: Any) -> Any:
    if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value):
        return MARK + value
    return value


def _unmarked(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(MARK) and FORMULA.match(value):
        return value[1:]
    return value
