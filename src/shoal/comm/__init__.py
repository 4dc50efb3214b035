"""Groups of workers that communicate, and the algorithms of collectives.

Read `group.py` first (the contract), then `threads/group.py` (the smallest group), then `algorithms.py`. The other
kinds of group: `shared_memory/` for one machine, `over_torch/` for several, `links/` for simulated slow links.
`liveness/` decides when a missing member is dead, stopped, stuck or slow.
"""
