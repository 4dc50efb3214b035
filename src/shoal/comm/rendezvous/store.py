"""The store where workers meet: serving it, connecting to it, and asking it from another machine.

Torch's own server would listen on every interface, where any host could read and write its keys. So rank 0 opens the
listening socket itself, on the master address alone (loopback by default), and hands it over.
"""

import contextlib
import errno
import json
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, TypeVar, final

import torch.distributed as dist

from shoal.comm.blocking import BlockingCall, BlockingThread
from shoal.comm.liveness.judge import WARN_AFTER_S, SlowMemberWarning
from shoal.comm.liveness.limits import VARIABLE
from shoal.comm.rendezvous.network import (
    addresses_of,
    is_loopback,
    named,
    no_such_host,
    problem_of,
    shown_interfaces,
    way_out,
    why,
)
from shoal.errors import JoinError, JoinTimeoutError

SETTINGS = (
    f"Set another limit with {VARIABLE}, join(timeout_s=…), --join-timeout or `shoal launch --timeout`."
)
"""The last sentence of every error of a join that takes too long."""

CONNECT_EVERY_S = 0.1
ANSWER_S = 5.0
"""How long a process that listens may take to answer as a store, even at the end of the time limit."""
ATTEMPT_S = 20.0
"""Seconds after which an attempt to connect without an answer is followed by another."""
ONE_ATTEMPT_S = 4.0
"""Seconds that looking for a listener may take: the system has asked three times by then."""
UNREACHED_S = 20.0
"""Seconds after which a machine that nothing reaches is given up; it may have been starting."""

Answer = TypeVar("Answer")


def stored(value: bytes | str, *kinds: Any) -> list[Any]:
    """A list that shoal wrote into the store, with items of these kinds; anything else is an error in one sentence.

    Without a secret, any program that reaches the store can write to it (docs/en/security.md).

    >>> stored(b'["left", "rank 1 has left"]', str, str)
    ['left', 'rank 1 has left']
    >>> stored(b'{"\\x1b[2J', str)
    Traceback (most recent call last):
        ...
    shoal.errors.JoinError: the store where workers meet holds b'{"\\x1b[2J', which shoal did not write
      Another program or another version of shoal uses this address and port: choose another port.
    """
    items = parsed(value)
    if not isinstance(items, list) or len(items) != len(kinds) or not all(map(isinstance, items, kinds)):
        raise foreign(value)
    return items


def stored_number(value: bytes | str) -> int:
    """A number that shoal wrote into the store."""
    number = parsed(value)
    if not isinstance(number, int):
        raise foreign(value)
    return number


def parsed(value: bytes | str) -> Any:
    """The JSON of a value in the store."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise foreign(value) from None


def foreign(value: bytes | str) -> JoinError:
    """The error for a value that shoal did not write."""
    data = value if isinstance(value, bytes) else value.encode(errors="replace")
    shown = f"{data[:60]!r}{f'… ({len(data):,} bytes)' if len(data) > 60 else ''}"
    return JoinError(
        f"the store where workers meet holds {shown}, which shoal did not write",
        "Another program or another version of shoal uses this address and port: choose another port.",
    )


@final
class Distant:
    """A store on another machine, whose answer may never come: torch would wait for it without end.

    A thread asks. Without an answer for `limit_s`, or when the store is gone, this and every later call raise a
    `RuntimeError` at once.
    """

    def __init__(self, store: Any, limit_s: float) -> None:
        self._store, self._limit_s = store, limit_s
        self._thread = BlockingThread("shoal asks the store")
        self._lost: Exception | None = None

    def _ask(self, ask: Callable[[], Answer]) -> Answer:
        if self._lost is not None:
            raise self._lost
        answers: list[Answer] = []
        job = self._thread.add(lambda: answers.append(ask()))
        if not job.finished.wait(self._limit_s):
            self._lost = RuntimeError(f"no answer for {self._limit_s:g} s")
        else:
            self._lost = job.error
        if self._lost is not None:
            raise self._lost
        return answers[0]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of the store, asked by the thread."""
        method = getattr(self._store, name)
        return lambda *arguments: self._ask(lambda: method(*arguments))

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address only; port 0 lets the system choose a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = socket.socket(family, kind, protocol)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(1024)
    except (socket.gaierror, UnicodeError) as error:
        raise no_such_host(host) from error
    except OSError as error:
        is_elsewhere = error.errno == errno.EADDRNOTAVAIL
        raise JoinError(
            f"cannot listen on {_shown(host, port)}: {error.strerror}",
            f"This machine has {shown_interfaces()}: rank 0 runs on the machine of the master address."
            if is_elsewhere
            else "Choose another port, or stop the process that uses it.",
        ) from error
    return server


def serve(server: socket.socket, timeout_s: float) -> Any:
    """A store on this socket, held by this process: rank 0 or a launcher."""
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
    """The store that another process holds, once it is there."""
    deadline = time.monotonic() + timeout_s
    addresses_of(host)
    _wait_for_listener(host, port, rank, timeout_s)
    made: list[Any] = []

    def make() -> None:
        limit = timedelta(seconds=timeout_s)
        made.append(dist.TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False))

    # Torch's own attempt may take longer than its timeout, and prints its stack when it fails. Rarely one never ends,
    # though others are answered: so a new one follows, and the first that is answered counts.
    while not made:
        call = BlockingCall(make)
        threading.Thread(target=call.run, name="shoal connects to the store", daemon=True).start()
        left_s = max(deadline - time.monotonic(), ANSWER_S)
        is_last = left_s <= ATTEMPT_S
        call.finished.wait(min(left_s, ATTEMPT_S))
        if not made and (is_last or call.error is not None):
            raise _no_store(host, port, rank, timeout_s) from call.error
    return made[0]


def _wait_for_listener(host: str, port: int, rank: int, timeout_s: float) -> None:
    """Return as soon as a process listens at this address.

    A machine that refuses is there, and rank 0 may still come; one that is not reached soon will not be.
    """
    started, warned, unreached_since = time.monotonic(), False, None
    problem: OSError = TimeoutError()
    while (waited_s := time.monotonic() - started) < timeout_s:
        found = problem_of(host, port, min(timeout_s - waited_s, ONE_ATTEMPT_S))
        if found is None:
            return
        problem, now = found, time.monotonic()
        if isinstance(problem, ConnectionRefusedError):
            unreached_since = None
        else:
            unreached_since = unreached_since or started
            if now - unreached_since > UNREACHED_S:
                break
        if now - started > WARN_AFTER_S and not warned:
            warned = True
            warnings.warn(
                f"rank {rank} has found no store at {_shown(host, port)} for {now - started:.0f} s: "
                f"{_explained(host, port, problem)} It waits, at most {timeout_s:g} s. {SETTINGS}",
                SlowMemberWarning,
                stacklevel=6,  # the program's line, through shoal.join
            )
        time.sleep(CONNECT_EVERY_S)
    raise _no_store(host, port, rank, min(timeout_s, time.monotonic() - started), problem)


def _shown(host: str, port: int) -> str:
    name, _, addresses = named(host).partition(" ")
    return f"{name}:{port} {addresses}".rstrip()


def _explained(host: str, port: int, problem: OSError) -> str:
    """Why no store is found, and what to do."""
    if not isinstance(problem, ConnectionRefusedError):
        return f"{why(problem)}. {way_out(problem, f'port {port}')}"
    if any(map(is_loopback, addresses_of(host))):
        elsewhere = (
            "that is this machine itself: if rank 0 runs on another, give the address of that machine."
        )
        return f"{why(problem)}. Rank 0 holds it, and {elsewhere}"
    loopback = "if this name is 127.0.1.1 in /etc/hosts of its own machine, as on Debian, correct that."
    return f"{why(problem)}. Rank 0 holds it: was it started with this port? And {loopback}"


def _no_store(
    host: str, port: int, rank: int, waited_s: float, problem: OSError | None = None
) -> JoinTimeoutError:
    hint = f"Rank 0 holds it: check that it was started with this address and port. {SETTINGS}"
    if problem is not None:
        hint = _explained(host, port, problem)
        # Where the machine is not reached, waiting longer does not help.
        hint = hint[0].upper() + hint[1:] + f" {SETTINGS}" * isinstance(problem, ConnectionRefusedError)
    return JoinTimeoutError(
        f"rank {rank} found no store at {_shown(host, port)} within {waited_s:.3g} s", hint
    )


def check_master(host: str, size: int, local_size: str) -> None:
    """Refuse a name of the master that no other machine reaches, unless all workers are on this one.

    `local_size` is the number of workers here, if the launcher tells it. 127.0.0.1 and localhost say that all are here,
    also where several launchers share one machine; another name says the opposite, though /etc/hosts may make it
    127.0.1.1, as on Debian.
    """
    addresses = addresses_of(host)
    is_clear = local_size == str(size) or host in ("localhost", *addresses)
    if is_clear or not all(map(is_loopback, addresses)):
        return
    here = f"only {local_size} of {size} workers are on it" if local_size else "others may run elsewhere"
    raise JoinError(
        f"the master address {named(host)} is reached from this machine alone, and {here}",
        f"Give all workers an address of rank 0's machine (this one has {shown_interfaces()}), or correct the name "
        "in /etc/hosts; 127.0.0.1 if all workers are on one machine.",
    )


@contextlib.contextmanager
def answers_within(limit_s: float, rank: int, host: str, port: int) -> Generator[None]:
    """Within this context the store at this address must answer: torch waits without end for a stopped one.

    If the work inside has not ended after `limit_s` and the time for an answer, the connection is broken, so that the
    call that waits for it fails.
    """
    given_up = threading.Event()

    def give_up() -> None:
        given_up.set()
        _hang_up(host, port)

    timer = threading.Timer(limit_s + ANSWER_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not given_up.is_set():
            raise
        raise JoinTimeoutError(
            f"rank {rank} has had no answer from the store at {host}:{port} for {limit_s:g} s",
            f"Rank 0 or the launcher holds it: is that stopped? {SETTINGS}",
        ) from error
    finally:
        timer.cancel()


def _hang_up(host: str, port: int) -> None:
    """Break this process's connections to an address."""
    addresses = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                peer = connection.getpeername()
                if peer[1] == port and peer[0].removeprefix("::ffff:") in addresses:
                    connection.shutdown(socket.SHUT_RDWR)
