"""Strategies: how a batch becomes an update. `single` is the reference that every other one must equal."""
