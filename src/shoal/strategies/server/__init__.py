"""The parameter server.

A step by messages (the default, `bsp`), from `ServerWorker.step` to the update: `worker.py` computes the gradients of
its share and pushes them; `messages.py` sends headers, and tensors that lie in the flat ranges of `shards.py`;
`answer_requests` in `updates.py` receives them, asks `ledger.py` which push counts, and updates the server's shard.

A step by mapped memory (`ssp`, `asp` on one machine): `worker.py`, then `mapped.py`, where the worker itself asks
`ledger.py` and updates the weights. `server.py` says which transport runs when, and makes the strategy of each rank.

Read only for their case: `turns.py` (`asp`: a worker takes the next free share), `push_codec.py` (compressed pushes),
`survivors.py` (`on_lost continue`), `hogwild.py`, `library.py` (`shoal.ParameterServer`), `settings.py`.
"""
