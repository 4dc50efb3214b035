"""The process that serves the page of `shoal train --watch`: the launcher starts it and tells it the run folder.

A process of its own, with low priority, takes no time from the thread that trains. It ends with the launcher.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.watch.address import listener, new_token, url_of

END = b"\n"
"""The line that ends the process; the secret and the run folder have lines of their own before it."""
NICE = 5
WAIT_S = 10.0


@contextmanager
def watched(lang: str = "en") -> Generator[tuple[str, Callable[[Path], None]]]:
    """Within this context a process serves a page: its URL, and what to call with the run folder once it is there."""
    listening, token = listener(), new_token()
    url = url_of(listening, token)
    words = ["-P", "-m", "shoal.watch.child", str(listening.fileno()), lang]
    with listening:
        process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, pass_fds=[listening.fileno()]
        )
    assert process.stdin is not None
    _write(process, token.encode() + b"\n")  # other users can read the words of a command

    def tell(folder: Path) -> None:
        _write(process, os.fsencode(folder.resolve()) + b"\n")

    try:
        yield url, tell
    finally:
        _write(process, END)
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _write(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):  # the page is gone; the run goes on
        process.stdin.write(line)
        process.stdin.flush()


def main(descriptor: int, lang: str) -> None:
    """Serve until the launcher says that it is enough, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C lets the run save; the page shows that
    os.nice(NICE)
    token = sys.stdin.buffer.readline().rstrip(b"\n").decode()
    folder = sys.stdin.buffer.readline().rstrip(b"\n")
    if not folder:
        return
    from shoal.watch.page import LivePage
    from shoal.watch.server import serving

    page = LivePage(Path(os.fsdecode(folder)), None, lang)
    with serving(page, socket.socket(fileno=descriptor), token):
        sys.stdin.buffer.readline()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
