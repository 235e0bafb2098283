"""Models with heads silenced, evaluated many at a time; dissociation, overlap, significance."""
