"""Results as tables and one HTML file."""
