"""A group through memory that all its members see. Read `group.py` first, then `rounds.py` and `arena.py`."""
