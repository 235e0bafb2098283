"""One description of a result: its section, with title, finding, tables, figures and notes; terminals and
notebooks render it here."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.sections._cells import Table as Table
    from headwise.sections._section import (
        Chart as Chart,
        Described,
        Effect,
        HeadMaps as HeadMaps,
        Section as Section,
    )

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.sections._cells import shown_columns, shown_rows
    from headwise.sections._judged import held_out_note, intact_note, judged_by

__getattr__, __all__ = lazily(__name__)
