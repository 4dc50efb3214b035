"""A process that gets 5 % of one processor, and proof that it got no more.

By a control group of the system's, where we may make one. Elsewhere by stopping and continuing the process in turn,
which is what tools like cpulimit do: 95 ms of every 100 it is stopped.
"""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

SHARE = 0.05
PERIOD_S = 0.1
ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def throttled(pid):
    """Keep the process at its share; gives a function that says for how many periods it was held back so far."""
    folder = _make_group()
    if folder is None:
        with _by_turns(pid) as periods:
            yield periods
        return
    try:
        (folder / "cgroup.procs").write_text(str(pid))
        yield lambda: _throttled_periods(folder)
    finally:
        _give_back(folder)


def _make_group():
    """A control group with the quota, by the first or the second version of the system's interface; or None."""
    name = f"shoal-test-{os.getpid()}-{threading.get_ident()}"
    period, quota = round(1e6 * PERIOD_S), round(1e6 * PERIOD_S * SHARE)
    for root, settings in (
        (ROOT / "cpu", {"cpu.cfs_period_us": f"{period}", "cpu.cfs_quota_us": f"{quota}"}),
        (ROOT, {"cpu.max": f"{quota} {period}"}),
    ):
        folder = root / name
        try:
            folder.mkdir()
        except OSError:
            continue
        if all((folder / file).exists() for file in (*settings, "cpu.stat")):
            for file, value in settings.items():
                (folder / file).write_text(value)
            return folder
        folder.rmdir()
    return None


def _throttled_periods(folder):
    entries = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(entries["nr_throttled"])


def _give_back(folder):
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (folder.parent / "cgroup.procs").write_text(pid)
    deadline = time.monotonic() + 5
    while True:  # a process that has just ended still counts for a moment
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def _by_turns(pid):
    over, periods = threading.Event(), []

    def turn():
        while not over.is_set():
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PERIOD_S * (1 - SHARE))
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                return
            time.sleep(PERIOD_S * SHARE)
            periods.append(1)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield lambda: len(periods)
    finally:
        over.set()
        thread.join()
