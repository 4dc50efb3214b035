"""The secret of a run: where a worker finds it, how a launcher hands it over, and the tags made with it.

All that workers write into a store or send on a socket of ours carries a tag that only holders of the secret can make.

- Our launcher draws a secret for every run and hands it to its processes through an inherited pipe: it is on no command
  line and in no environment. Threads need none.
- Workers started by hand, by torchrun or on several machines read it from the file that SHOAL_SECRET_FILE names, or
  from the variable SHOAL_SECRET.
- Without a secret the same tags are made with an empty one: they detect damage and replays, not strangers.

docs/en/security.md describes what follows from that.
"""

import contextlib
import hmac
import ipaddress
import os
import secrets
import shlex
import stat
import warnings
from collections.abc import Generator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import final

from shoal.errors import ConfigError
from shoal.files import open_file

FILE_VARIABLE, VARIABLE = "SHOAL_SECRET_FILE", "SHOAL_SECRET"
SETTINGS = f"Give every rank the same {FILE_VARIABLE} or {VARIABLE}."
"""The last sentence of every error that another secret may have caused."""

LEAST_BYTES, MOST_BYTES = 16, 4096
TAG_BYTES = 16

_handed_over: bytes | None = None
"""The secret that the launcher of this process has handed over. Forked children also have it."""


class UnauthenticatedStoreWarning(UserWarning):
    """Workers of several machines meet without a secret."""


@final
class TagKey:
    """Makes and checks tags with one key.

    A tag is a keyed BLAKE2b, the fastest message authentication code of the standard library.

    >>> key = TagKey.of(b"a secret of sixteen bytes or more")
    >>> key.fits(key.tag(b"step 7"), b"step 7"), key.fits(key.tag(b"step 7"), b"step 8")
    (True, False)
    >>> key.fits(key.bound("another run").tag(b"step 7"), b"step 7")
    False
    """

    def __init__(self, key: bytes) -> None:
        self._key, self._begun = key, blake2b(key=key, digest_size=TAG_BYTES)

    @classmethod
    def of(cls, secret: bytes) -> "TagKey":
        """The key that a secret of any length gives."""
        return cls(blake2b(secret, digest_size=32, person=b"shoal secret").digest())

    def bound(self, *purpose: str) -> "TagKey":
        """A key for one purpose: its tags fit nothing else."""
        return TagKey(blake2b("\0".join(purpose).encode(), key=self._key, digest_size=32).digest())

    def tag(self, data: bytes) -> bytes:
        """The tag of a message."""
        mac = self._begun.copy()
        mac.update(data)
        return mac.digest()

    def fits(self, tag: bytes, data: bytes) -> bool:
        """Whether this is the tag of that message. Compares in constant time."""
        return hmac.compare_digest(tag, self.tag(data))


# Where a worker finds the secret.


def run_secret(environment: Mapping[str, str] = os.environ) -> bytes:
    """The secret of this worker's run: the launcher's, else from the file or the variable; empty without any.

    >>> run_secret({"SHOAL_SECRET": "correct horse battery staple"})
    b'correct horse battery staple'
    >>> run_secret({})
    b''
    """
    if _handed_over is not None:
        return _handed_over
    path, text = environment.get(FILE_VARIABLE, ""), environment.get(VARIABLE, "")
    if path and text:
        raise ConfigError(f"both {FILE_VARIABLE} and {VARIABLE} are set", "Unset one of them.")
    if path:
        return _checked(_content(Path(path)), f"{FILE_VARIABLE}={path} holds")
    return _checked(os.fsencode(text).strip(), f"{VARIABLE} holds") if text else b""


def _content(path: Path) -> bytes:
    """A file that only its owner, this user or root, can read or write."""
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(
                    f"{FILE_VARIABLE}={path} can be used by other users (mode {stat.S_IMODE(status.st_mode):o})",
                    f"chmod 600 {shlex.quote(str(path))}",
                )
            if status.st_uid not in (os.geteuid(), 0):
                raise ConfigError(
                    f"{FILE_VARIABLE}={path} belongs to another user (number {status.st_uid})",
                    "Use a file of your own.",
                )
            return file.read(MOST_BYTES + 1).strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read {FILE_VARIABLE}={path}: {error.strerror}",
            f"Make it on one machine, and copy it to all: (umask 077; openssl rand -hex 32 > {shlex.quote(str(path))})",
        ) from error


def _checked(secret: bytes, where: str) -> bytes:
    if not LEAST_BYTES <= len(secret) <= MOST_BYTES:
        size = "more" if len(secret) > MOST_BYTES else str(len(secret))
        raise ConfigError(
            f"{where} {size} bytes; a secret has {LEAST_BYTES} to {MOST_BYTES}", "openssl rand -hex 32"
        )
    return secret


# How a launcher hands it over.


def new_secret() -> bytes:
    """A secret for one run."""
    return secrets.token_bytes(32)


@contextlib.contextmanager
def inheritable(secret: bytes) -> Generator[int]:
    """A descriptor for a process that is started inside; the process calls `receive` with its number."""
    read_end, write_end = os.pipe()
    try:
        with open(write_end, "wb") as file:
            file.write(secret)
        yield read_end
    finally:
        os.close(read_end)


def receive(descriptor: int) -> None:
    """Take the secret from the launcher. Processes that this one starts do not inherit the descriptor."""
    global _handed_over
    with open(descriptor, "rb") as file:
        _handed_over = file.read(MOST_BYTES)


def without_secret(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for workers that get their secret through a descriptor: a secret for other runs is not in it."""
    return {name: value for name, value in environment.items() if name != VARIABLE}


def warn_without_secret(host: str) -> None:
    """Warn if workers meet at an address that other machines reach, without a secret."""
    if not run_secret() and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        warnings.warn(
            f"the workers meet at {host} without a secret: everyone who reaches this address can forge their "
            f"messages. Name a file with a secret in {FILE_VARIABLE} on every machine "
            f"(umask 077; openssl rand -hex 32 > FILE), or set {VARIABLE}.",
            UnauthenticatedStoreWarning,
            stacklevel=5,  # the program's line, through shoal.join
        )
