"""The papers' experiments and the recipe models, each a short text over the rooms below."""
