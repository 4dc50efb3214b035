"""Evaluation: a split in batches, and which epoch has been the best."""
