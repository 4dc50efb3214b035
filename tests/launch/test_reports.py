"""What a worker reports to its launcher, also when that does not read."""

import os

from shoal.launch.reports import Reporter, ReportingObserver
from shoal.training.progress import Progress


def test_steps_are_not_reported_to_a_launcher_that_does_not_read():
    read_end, write_end = os.pipe()
    seconds = iter(range(100_000))
    observer = ReportingObserver(Reporter(write_end), lambda: float(next(seconds)))
    for _ in range(2000):  # far more than a pipe holds; nothing reads
        observer.stepped(Progress(), 0.5)
    sent = os.read(read_end, 1 << 20)
    assert sent.startswith(b'{"kind": "stepped"')
    assert sent.endswith(b"}\n")
    observer.stepped(Progress(), 0.25)
    assert b"0.25" in os.read(read_end, 1 << 20)
    os.close(read_end)
    os.close(write_end)
