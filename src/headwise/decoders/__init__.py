"""What sits on the encoder for each kind of task."""
