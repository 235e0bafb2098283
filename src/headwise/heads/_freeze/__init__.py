"""Training only some heads."""
