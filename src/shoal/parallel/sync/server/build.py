"""Builds what a rank of a run with parameter servers does."""

from shoal.config.sections.server import ServerConfig
from shoal.parallel.strategy import Strategy
from shoal.parallel.sync.server.hogwild import Hogwild
from shoal.parallel.sync.server.mapped.server import MappedServer
from shoal.parallel.sync.server.mapped.shard import updates_in_place
from shoal.parallel.sync.server.server import ServerRank
from shoal.parallel.sync.server.worker import ServerWorker
from shoal.parallel.sync.sync import SyncParts


def server_sync(parts: SyncParts, config: ServerConfig) -> Strategy:
    """A worker that trains or, for the last ranks of the world, a server."""
    if config.mode == "hogwild":
        return Hogwild(parts, config)
    world = parts.world or parts.group
    is_server = world.rank >= world.size - config.num_servers
    in_place = updates_in_place(parts, config, world)
    if is_server:
        return (MappedServer if in_place else ServerRank)(parts, config, world)
    return ServerWorker(parts, config, world, in_place)
