"""Codecs: pure functions that encode a gradient in fewer bytes, and decode it again."""
