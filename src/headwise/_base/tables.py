"""Tables as CSV that no spreadsheet takes for formulas, and back: what is read is what was written."""

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# A spreadsheet computes a cell that begins like this. One that was marked already gets another mark, so that each can be taken off.
FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MARK = "'"


def csv_text(frame: "pd.DataFrame", header: bool = True) -> str:
    """A table as CSV without its index. Text that a spreadsheet would compute (=, +, -, @, tab or new line first) begins with an
    apostrophe; numbers stay numbers."""
    import pandas as pd

    marked = frame.copy(deep=False)
    for place, kind in enumerate(frame.dtypes):
        if not (pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind)):
            marked.isetitem(place, frame.iloc[:, place].astype(object).map(_marked).array)
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

    exact: Any = (
        {} if int(pd.__version__.partition(".")[0]) > 2 else {"float_precision": "round_trip"}
    )  # since pandas 3 all are
    return unmarked(pd.read_csv(path, keep_default_na=False, na_values=[""], **exact))


def unmarked(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table that was read from such CSV, without the apostrophes."""
    import pandas as pd

    found = frame.rename(columns=_unmarked)
    for place, kind in enumerate(found.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            found.isetitem(place, found.iloc[:, place].map(_unmarked).array)
    return found


def _marked(value: Any) -> Any:
    return (
        MARK + value
        if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
        else value
    )


def _unmarked(value: Any) -> Any:
    return value[1:] if isinstance(value, str) and value.startswith(MARK) and FORMULA.match(value) else value
