"""Shoal: distributed deep learning on PyTorch that is complete, readable, true and fast.

Importing `shoal` is cheap and loads no torch; its rooms (`shoal.optim`, `shoal.data`, …) do when they need it.
"""

__version__ = "0.1.0"
