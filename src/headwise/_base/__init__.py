"""What every room stands on: names, places, files, progress, statistics. Not for users."""
