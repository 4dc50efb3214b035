"""A machine whose disk was lost gets the settings of the run from the others, before the workers join."""

import json
from pathlib import Path

from shoal.comm.join import WorkerAddress, own_place, texts_before_joining
from shoal.comm.liveness.limits import limit_of
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder, write_whole
from shoal.files import read_text


def restore_settings(
    folder: Path, place: WorkerAddress | None = None, timeout_s: float | None = None
) -> None:
    """Write the settings of the run that is resumed into a `folder` that is empty or not there.

    All workers call it, if there are several; each has what the first of them has that is not lost. Checkpoints and
    events follow when the workers have joined.
    """
    place = place or own_place()
    if place is None or place.size == 1:
        return
    run = RunFolder(folder)
    try:
        # Before the meeting: another worker of this machine writes after it.
        is_lost = not folder.exists() or not any(folder.iterdir())
        kept = {path.name: read_text(path) for path in (run.config, run.description) if path.exists()}
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
    facts = {"--resume": "given"}  # as in `facts_of`
    texts = texts_before_joining(place, json.dumps(kept), limit_of(timeout_s), facts)
    found = next((each for text in texts if run.config.name in (each := json.loads(text))), {})
    if not is_lost or not found:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write the run folder {folder}: {error.strerror}") from None
    for path in (run.description, run.config):
        if path.name in found:
            write_whole(path, found[path.name])
