"""Workers that talk to each other: groups, and the algorithms that collectives are made of.

Read `group.py` first (the contract), then `threads.py` (the smallest group), then `algorithms.py`. Three groups have
rooms of their own: `shared_memory/` on one machine, `over_torch/` on many, `links/` for links that are slow on purpose.
"""
