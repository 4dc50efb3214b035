"""What the tests of the parameter server share: a world of workers and servers on threads."""

from dataclasses import replace

from strategy_cases import STEPS, on_threads, one_machines, rate, share_of, state_of

from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.guard import Guard
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.server import server_sync
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.strategy import Pause, Serving

NO_PROGRESS = {}


def strategy_of(world, config, copy, exchange=None, on_nonfinite="stop"):
    """What `train.build` makes for a rank of the world: a worker or a server."""
    workers = world.size - config.num_servers
    exchange = exchange or AllReduce()
    peers = world
    if config.num_servers:
        peers = world.split(range(workers) if world.rank < workers else range(workers, world.size))
    guard = Guard(peers, exchange, on_nonfinite)
    return server_sync(SyncParts(copy.layout, copy.update, peers, exchange, guard, world), config)


def history_of(strategy, shares, parts=1, steps=STEPS, first=0, events=None):
    """All pieces after every step, with their places, and the losses; a server has no losses."""
    history = []
    for step in range(first, steps):
        loss = None
        if strategy.serves:
            strategy.serve(Serving(record=lambda event: None if events is None else events.append(event)))
        else:
            loss = strategy.step(share_of(strategy, step, shares, parts), rate(step)).loss.item()
            strategy.consolidate()
            strategy.pause(Pause(NO_PROGRESS, is_end=step == steps - 1))
        # The memory of a codec is a worker's own.
        places = {
            piece.name: piece.place
            for piece in one_machines(strategy.pieces())
            if "exchange." not in piece.name
        }
        state = {name: tensor for name, tensor in state_of(strategy).items() if name in places}
        history.append((state, loss, places))
    return history


def members(copy, config, shares, exchange=lambda: None, **options):
    """The histories of all ranks; `copy(rank)` makes a rank's copy of the model, `exchange()` its exchange."""
    workers = len(shares)

    def work(world):
        return history_of(strategy_of(world, config, copy(world.rank), exchange()), shares, **options)

    histories = on_threads(workers + config.num_servers, work)
    # A server reports no loss: for the comparison it has the first worker's.
    return [
        [
            (pieces, histories[0][step][1], places) if loss is None else (pieces, loss, places)
            for step, (pieces, loss, places) in enumerate(history)
        ]
        for history in histories
    ]


def bsp(**options):
    return replace(ServerConfig(), **options)
