"""Buckets: the gradients of many parameters in a few flat tensors, filled by backward, sent when they are full."""
