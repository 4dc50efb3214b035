"""Checks of settings against each other and against this machine, before anything starts."""
