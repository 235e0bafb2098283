"""How alike two tasks are, from vectors and predictions."""
