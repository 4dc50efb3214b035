"""Where the live page is: a socket on the loopback interface, and a secret in the URL. Loads nothing heavy."""

import secrets
import socket

from shoal.errors import ConfigError

HOST = "127.0.0.1"


def listener(port: int = 0) -> socket.socket:
    """A socket on the loopback interface; port 0 is any free one."""
    try:
        return socket.create_server((HOST, port), backlog=256)
    except OSError as error:
        hint = "Choose another --port, or leave it out for any free one."
        raise ConfigError(f"cannot listen on {HOST}:{port}: {error.strerror}", hint) from None


def new_token() -> str:
    """A secret for a URL."""
    return secrets.token_urlsafe(16)


def url_of(listening: socket.socket, token: str) -> str:
    """The URL of the page."""
    return f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
