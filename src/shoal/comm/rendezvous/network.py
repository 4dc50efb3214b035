"""The network of this machine: its interfaces, what a name resolves to, and why another machine cannot be reached.

The address of a worker is the one that routes to the master; GLOO_SOCKET_IFNAME counts more. Gloo, NCCL and torch's RPC
get it from here.
"""

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import time
from pathlib import Path

from shoal.errors import JoinError
from shoal.printable import shortened

GLOO_VARIABLE, NCCL_VARIABLE = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
ASK_EVERY_S = 1.0
_SIOCGIFADDR = 0x8915


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches this address.

    >>> is_loopback("127.0.1.1"), is_loopback("10.0.0.1"), is_loopback("fe80::1%eth0")
    (True, False, False)
    """
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def addresses_of(host: str) -> list[str]:
    """The addresses that a name has on this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise no_such_host(host) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def wait_for_name(host: str, limit_s: float) -> None:
    """In a pod of Kubernetes, wait until the name resolves: that of another pod does once it has been placed."""
    deadline = time.monotonic() + limit_s
    while "KUBERNETES_SERVICE_HOST" in os.environ and time.monotonic() < deadline:
        with contextlib.suppress(JoinError):
            addresses_of(host)
            return
        time.sleep(ASK_EVERY_S)


def no_such_host(host: str) -> JoinError:
    """The error for a name that this machine cannot resolve."""
    return JoinError(
        f"cannot resolve master address '{shortened(host)}' on {socket.gethostname()}",
        "Check its spelling, give the address as a number, or add the name to /etc/hosts of every machine.",
    )


def named(host: str) -> str:
    """A host as messages show it: a name with its addresses.

    >>> named("127.0.0.1")
    '127.0.0.1'
    """
    with contextlib.suppress(JoinError):
        addresses = addresses_of(host)
        return host if addresses == [host] else f"{shortened(host)} ({', '.join(addresses)})"
    return shortened(host)


def interfaces() -> dict[str, str]:
    """The addresses of this machine, by interface: the first IPv4 address of each, else the first IPv6 address."""
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                found[name] = socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
    with contextlib.suppress(OSError):  # a system without IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            address = str(ipaddress.IPv6Address(bytes.fromhex(digits)))
            found.setdefault(name, f"{address}%{name}" if address.startswith("fe80") else address)
    return found


def interface_of(address: str) -> str:
    """The network interface that has this address; torch's agents and NCCL are bound to an interface by its name.

    >>> interface_of("127.0.0.1")
    'lo'
    """
    for name, own in interfaces().items():
        if own == address or (is_loopback(own) and is_loopback(address)):
            return name
    raise ConnectionError(f"no network interface of this machine has the address {address}")


def shown_interfaces() -> str:
    """What other machines may reach, as messages show it: `eth0 10.0.0.1, eth1 192.168.7.1`."""
    found = [f"{name} {address}" for name, address in interfaces().items() if not is_loopback(address)]
    return ", ".join(found) or "no interface but loopback"


def own_address(host: str, port: int) -> str:
    """The address of this machine that reaches the master, on which its own connections should listen.

    The interface that GLOO_SOCKET_IFNAME names counts more.

    >>> own_address("localhost", 29517) in ("127.0.0.1", "::1")
    True
    """
    if chosen := os.environ.get(GLOO_VARIABLE):
        return _address_on(chosen)
    with contextlib.suppress(socket.gaierror, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port or 1, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                # Nothing is sent: the system only chooses the route.
                probe.connect(address)
                return probe.getsockname()[0]
    return "127.0.0.1"


def _address_on(names: str) -> str:
    """The address of the first of these interfaces, `eth0,eth1`, that this machine has."""
    known = interfaces()
    for name in names.split(","):
        if name in known:
            return known[name]
    raise JoinError(
        f"{GLOO_VARIABLE} is {shortened(names)}, and this machine has {shown_interfaces()}",
        f"Unset {GLOO_VARIABLE}, and the interface that routes to the master is used.",
    )


def tell_nccl(host: str) -> None:
    """Have NCCL use the interface of this address, unless the user has chosen one."""
    if not is_loopback(host):
        with contextlib.suppress(ConnectionError):
            os.environ.setdefault(NCCL_VARIABLE, f"={interface_of(host)}")


# Why another machine is not reached.


def problem_of(host: str, port: int, limit_s: float) -> OSError | None:
    """What prevents a connection, which is closed at once; None if nothing does."""
    try:
        socket.create_connection((host, port), limit_s).close()
    except OSError as error:
        return error
    return None


def why(error: OSError) -> str:
    """Why a connection was not made, in a few words.

    >>> why(TimeoutError()), why(ConnectionRefusedError(111, "Connection refused"))
    ('nothing answers', 'connection refused')
    """
    if isinstance(error, TimeoutError):
        return "nothing answers"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EINVAL):  # of a route that prohibits or discards it
        return "the routes or the firewall of this machine forbid it"
    return (error.strerror or str(error)).lower()


def way_out(error: OSError, port: str) -> str:
    """How to mend it: the sentence that follows the error."""
    if isinstance(error, ConnectionRefusedError):
        return "Nothing listens there, or a firewall refuses the connection."
    if isinstance(error, TimeoutError):
        return (
            f"A firewall drops the connection, or the machine is off: allow TCP {port} between the machines."
        )
    own = f"{socket.gethostname()} has {shown_interfaces()}"
    return f"{own}: is the address right, and does a firewall allow TCP {port}?"


def free_ports() -> str:
    """The ports that the system hands out, on which workers listen for each other."""
    with contextlib.suppress(OSError, ValueError):
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return f"ports {low} to {high}"
    return "ports 1024 to 65535"
