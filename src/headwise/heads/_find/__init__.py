"""Finding the heads of a model by watching one small pass."""
