"""End the process at Ctrl-C, before anything was started or written; needs nothing else of shoal."""

import os
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """A handler of SIGINT."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)
