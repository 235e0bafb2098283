"""Readers and writers of annotated sentences."""
