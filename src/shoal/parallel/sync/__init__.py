"""Syncs: how copies of a model, each with its own share of the batch, agree on one update."""
