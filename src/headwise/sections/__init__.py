"""One description of a result: its section, with title, finding, tables, figures and notes; terminals and notebooks render it here."""

from headwise.sections._section import Chart, Described, Effect, HeadMaps, Section, Table

__all__ = ["Chart", "Described", "Effect", "HeadMaps", "Section", "Table"]
