"""What the loop does not know by name: `hook.py` has the moments of a run at which hooks act."""
