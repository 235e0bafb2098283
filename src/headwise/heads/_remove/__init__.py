"""Removing heads for good."""
