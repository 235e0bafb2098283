"""The decoders of each kind of task."""
