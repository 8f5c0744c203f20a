"""Read-only pages over the store."""
