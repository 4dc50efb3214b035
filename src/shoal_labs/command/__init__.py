"""`shoal lab`."""
