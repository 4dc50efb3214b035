"""Tensor parallelism: the workers of a group divide single layers among them, and compute each layer together."""
