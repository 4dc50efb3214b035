"""What the members of a world of processes run in the tests of `--reduction invariant`."""

import os
from pathlib import Path

from shoal.config.read import read
from shoal.events.folder import RunFolder
from shoal.training import worker


def bits_of_runs(group, runs, folder):
    """The weights' fingerprint and the loss of each run, given by its flags; without a group, on one machine."""
    found = []
    for number, flags in enumerate(runs):
        name = f"{group.kind}{group.size}-{number}" if group is not None else f"one-{os.getpid()}-{number}"
        workers = ["--workers", str(group.size)] if group is not None else []
        words = [*flags.split(), *workers, "--runs-dir", folder, "--name", name]
        result = worker.run(read(None, words), group=group)
        found.append((result.weights_sha256, result.final_loss))
    return found


def bits_of_resumed(group, flags, folder):
    """The same of a run that other workers began."""
    config = read(None, [*flags.split(), "--workers", str(group.size)])
    result = worker.run(config, group=group, resumed=RunFolder(Path(folder)))
    return result.weights_sha256, result.final_loss
