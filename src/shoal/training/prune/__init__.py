"""Pruning and training: the network that a run starts with, masks that change while it trains, and what is written."""
