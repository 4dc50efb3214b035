"""`shoal watch`: a run while it trains, as a page or on the terminal."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.cli import text
from shoal.cli.browser import open_address
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.sections.values import Port
from shoal.errors import ConfigError


@dataclass(frozen=True)
class WatchFlags(Flags):
    """How the run is shown."""

    beside: Path | None = None
    """An earlier run, whose curves are drawn beside."""
    terminal: bool = False
    """Show it here instead of as a page, until the run is over."""
    open: bool = False
    """Open the page in a browser."""
    lang: Literal["en", "zh"] = "en"
    """Language of the page."""
    port: Port | None = None
    """Port of the page on this machine (default any free one)."""


def run(given: Given[WatchFlags]) -> int:
    """Show a run while it trains, or after it: curves, workers, timeline, slow workers, the log.

    RUN is a run folder; without it, the newest one in runs/. The page is served to this machine alone, under the secret
    address that is printed, until Ctrl-C. It only reads the run folder, so training is not slowed.

        shoal watch                               the newest run, as a page
        shoal watch runs/NAME --beside runs/OLD   with an earlier run
        shoal watch --terminal                    a table on the terminal
    """
    from shoal.watch.follow import newest_run

    flags = given.flags
    folder = Path(given.words[0]) if given.words else newest_run(Path("runs"))
    if flags.terminal:
        from shoal.watch.terminal import show

        unused = ["--open"] * flags.open + ["--port"] * (flags.port is not None)
        if unused:
            raise ConfigError(
                f"{unused[0]} has no effect with --terminal, which serves no page", "Leave one out."
            )
        show(folder, flags.beside, flags.lang, sys.stdout)
        return 0
    from shoal.watch.address import listener, new_token, url_of
    from shoal.watch.page import LivePage
    from shoal.watch.server import serving

    page = LivePage(folder, flags.beside, flags.lang)
    listening, token = listener(flags.port or 0), new_token()
    url = url_of(listening, token)
    with serving(page, listening, token):
        text.show(url)
        text.show(f"{folder}, until Ctrl-C")
        if flags.open:
            open_address(url)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


COMMAND = Command("watch", run, WatchFlags, words="[RUN]")
"""`shoal watch [RUN]`."""
