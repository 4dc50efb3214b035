"""Strategies: how workers compute an update from a batch. `single` is the reference for all others."""
