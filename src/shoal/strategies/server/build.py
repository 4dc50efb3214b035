"""Builds what a rank of a run with parameter servers does."""

from shoal.config.sections.server import ServerConfig
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.server.hogwild import Hogwild
from shoal.strategies.server.mapped.server import MappedServer
from shoal.strategies.server.mapped.shard import updates_in_place
from shoal.strategies.server.server import ServerRank
from shoal.strategies.server.worker import ServerWorker
from shoal.strategies.strategy import Strategy


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
