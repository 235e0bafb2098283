"""Gating, silencing and recording heads while a model runs."""
