"""Workers that talk to each other: groups, and the algorithms that collectives are made of.

Read `group.py` first (the contract), then `threads.py` (the smallest group), then `algorithms.py`.
"""
