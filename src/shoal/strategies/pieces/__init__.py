"""Pieces: which part of a tensor a worker holds, in which memory, and how the state is saved and loaded."""
