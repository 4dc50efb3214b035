"""Bits that do not depend on the number of workers: a few steps of each run with `--reduction invariant`.

The workers of a run make them after it, in a run folder inside its own, so that the times of a comparison come from
ordinary runs alone. `variants.py` trains them; this reads them.
"""

from pathlib import Path

from shoal.events.folder import RunFolder

FOLDER = "invariant"
"""The name of the run folder inside another run's folder."""
STEPS = 20
FAILED = "failed"


def invariant_sha256(folder: Path) -> str | None:
    """The fingerprint of the weights after a run's invariant steps; None if it made none, FAILED if they failed."""
    own = RunFolder(folder / FOLDER)
    if not own.path.is_dir():
        return None
    return own.finished_result().get("weights_sha256") or FAILED
