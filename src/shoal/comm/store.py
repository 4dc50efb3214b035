"""The store where workers meet: who holds it, on which address, and what can go wrong.

Torch's own server would listen on every interface, where any stranger could read and write its keys. So
rank 0 opens the listening socket itself, on the address the workers were told (loopback by default), and
hands it over.
"""

import socket
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from shoal.errors import JoinError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address only; port 0 lets the system choose a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = socket.socket(family, kind, protocol)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(1024)
    except socket.gaierror as error:
        raise JoinError(f"nobody knows the master address '{host}'", "Is it spelled right?") from error
    except OSError as error:
        raise JoinError(
            f"cannot listen on {host}:{port}: {error.strerror}", "Choose another port, or end what uses it."
        ) from error
    return server


def serve(server: socket.socket, timeout_s: float) -> Any:
    """A store on this socket, for whoever started it: rank 0 or a launcher."""
    host, port = server.getsockname()[:2]
    return dist.TCPStore(
        host,
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=server.detach(),
    )


def connect(host: str, port: int, rank: int, timeout_s: float) -> Any:
    """The store that somebody else holds."""
    try:
        socket.getaddrinfo(host, port)
    except socket.gaierror as error:
        raise JoinError(f"nobody knows the master address '{host}'", "Is it spelled right?") from error
    try:
        return dist.TCPStore(
            host, port, is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
        )
    except RuntimeError as error:
        raise JoinError(
            f"rank {rank} found no store at {host}:{port} within {timeout_s:g} s",
            "Rank 0 holds it: was it started, with this address and port?",
        ) from error


def own_address(host: str, port: int) -> str:
    """The address of this machine that reaches the master: where our own connections should listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only chooses the way.
            probe.connect((host, port or 1))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
