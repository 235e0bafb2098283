"""Arrays and tables as plots; knows results, never models."""
