"""A worker's side of the messages: one request to all servers at a time, and their replies."""

from collections.abc import Mapping, Sequence
from typing import final

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.events.spans import MAPPED, PULLED
from shoal.strategies.server.push_codec import PushEncoder
from shoal.strategies.server.shards import FlatCopy
from shoal.strategies.server.wire import (
    REPLY_BYTES,
    Kind,
    Reply,
    Request,
    decoded,
    empty_header,
    pause_servers,
    send_all,
)


@final
class ServerClient:
    """Sends requests of a worker to the servers, which have the last ranks of the `world`; takes their weights."""

    def __init__(self, world: Group, servers: int, params: Mapping[str, Tensor]) -> None:
        self._world, self._num_servers = world, servers
        self.flat = FlatCopy(params, servers, world)
        self.gradients = self.flat.flat_gradients
        """The gradients of the next push. A caller may change them in place."""
        self.replies: list[Reply] = []
        """The last reply of each server; the first server's decides about turns and stopping."""
        self.encoder: PushEncoder | None = None
        """Encodes pushes; None: they are sent as they are."""
        self._sequence = 0
        self._versions = [0] * servers

    @property
    def servers(self) -> range:
        """The ranks of the servers now: the last of the world."""
        return range(self._world.size - self._num_servers, self._world.size)

    def take_gradients(self) -> list[str]:
        """Push this worker's gradients with the next request; the names of parameters without one, where it has −0."""
        return self.flat.take_gradients()

    def ask(self, request: Request, gradients: bool = False) -> Reply:
        """Send a request, with the flat gradients if asked to, and wait for all replies; the first server's.

        The parameters then are the weights that came with the replies.
        """
        if request.kind in (Kind.PULL, Kind.PUSH):
            self._sequence += 1
        world, flat, servers = self._world, self.flat, self.servers
        pushed: Sequence[Sequence[Tensor]] = [()] * len(servers)
        if gradients and self.encoder is not None:
            pushed = [(message,) for message in self.encoder.encode(flat.gradients, request.training_step)]
        elif gradients and not flat.is_mapped:
            pushed = flat.gradients
        works: list[Work] = []
        for index, server in enumerate(servers):
            own = request._replace(sequence=self._sequence, version=self._versions[index])
            works += send_all(world, server, own, pushed[index])
        headers = [empty_header(Reply) for _ in servers]
        works += [
            world.recv(tensor, server)
            for server, header, weights in zip(servers, headers, flat.weights, strict=True)
            for tensor in (header, *(() if flat.is_mapped else weights))
            if tensor.numel()
        ]
        for work in works:
            work.wait()
        # The replies with their weights; or, in mapped memory, the bytes that the servers read and write.
        world.note_transfer(PULLED, len(servers) * REPLY_BYTES + (0 if flat.is_mapped else flat.num_bytes))
        if flat.is_mapped:
            world.note_transfer(MAPPED, flat.num_bytes * (1 + (gradients and self.encoder is None)))
        self.replies = [decoded(Reply, header) for header in headers]
        self._versions = [reply.version for reply in self.replies]
        if request.kind == Kind.HELLO:
            self._sequence = self.replies[0].sequence
        flat.set_weights()
        return self.replies[0]

    def pause(self, text: str) -> None:
        """End the serving of all servers, and give them a text. All workers call it, when none asks any more."""
        pause_servers(self._world, self.servers, text)
