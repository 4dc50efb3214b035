"""Groups of workers that communicate, and the algorithms of collectives.

Read `group.py` first (the contract), then `threads.py` (the smallest group), then `algorithms.py`. Three kinds of group
have folders of their own: `shared_memory/` for one machine, `over_torch/` for several, `links/` for simulated slow
links. `liveness/` decides when a missing member is dead, stopped, stuck or slow.
"""
