"""Whether a member that keeps the others waiting is dead, stopped, stuck or merely slow. Read `judge.py` first."""
