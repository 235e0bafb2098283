"""What a model is asked: text, labels, metric, and where examples come from."""
