"""What a worker tells its launcher, also when that does not listen."""

import os

from shoal.launch.messages import PipeObserver, Teller
from shoal.train.progress import Progress


def test_steps_are_not_told_to_a_launcher_that_does_not_listen():
    read_end, write_end = os.pipe()
    seconds = iter(range(100_000))
    observer = PipeObserver(Teller(write_end), lambda: float(next(seconds)))
    for _ in range(2000):  # far more than a pipe holds; nobody reads
        observer.stepped(Progress(), 0.5)
    told = os.read(read_end, 1 << 20)
    assert told.startswith(b'{"kind": "stepped"')
    assert told.endswith(b"}\n")
    observer.stepped(Progress(), 0.25)
    assert b"0.25" in os.read(read_end, 1 << 20)
    os.close(read_end)
    os.close(write_end)
