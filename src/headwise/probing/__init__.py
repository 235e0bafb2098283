"""What head outputs know: probes, and embeddings built from chosen heads."""
