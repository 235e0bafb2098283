"""The heads of a model: find them, gate them, record them, freeze them, remove them."""
