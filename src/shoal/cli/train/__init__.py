"""`shoal train`."""
