"""Marks for many folders: weights, a table, a page for each student."""
