"""Results as tables and one HTML file."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.report.folders import read as read
    from headwise.report.writing import write_figures, write_report as write_report

__getattr__, __all__ = lazily(__name__)
