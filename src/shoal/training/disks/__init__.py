"""Runs whose workers do not share a disk: every disk has a run folder, and parts are copied between them."""
