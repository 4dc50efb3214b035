"""`shoal doctor`."""
