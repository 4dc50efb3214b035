"""What programs on top of shoal, the labs first of all, import besides the functions of `shoal` itself.

A module for each theme, each with `__all__`. Everything else may move.
"""
