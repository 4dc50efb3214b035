"""Opens a page in the user's browser, where there is a display."""

import os
import sys
from pathlib import Path

from shoal.cli import text


def open_page(page: Path) -> None:
    """Open a page that was just written; without a display, say where it is instead."""
    open_address(page.resolve().as_uri())


def open_address(address: str) -> None:
    """Open a URL; without a display, say so.

    A browser of the terminal would take the screen, so on Linux a display is required.
    """
    import webbrowser

    has_display = sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    try:
        is_open = has_display and webbrowser.open(address)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        text.warn(f"note: there is no browser to open here; the page is {address}")
