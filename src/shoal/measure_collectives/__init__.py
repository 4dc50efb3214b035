"""Measures collectives, for `shoal bench`: how fast groups and algorithms are, and whether their results are right."""
