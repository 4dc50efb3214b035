"""`shoal evaluate`: loss and accuracy of saved weights."""

import json
from pathlib import Path
from typing import Literal

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flag
from shoal.errors import ConfigError


def run(given: Given) -> int:
    """Evaluate and print."""
    path = Path(given.words[0])
    if not path.exists():
        raise ConfigError(f"{path} does not exist")

    from shoal.config.read import read_flags
    from shoal.train.reopen import config_for, evaluate_saved, open_saved

    split: str = given["--split"]
    changes = read_flags(given.settings)
    saved = open_saved(path)
    config = config_for(saved, changes)
    metrics = evaluate_saved(saved, config, split)
    if given["--json"]:
        about = {"source": str(saved.source), "data": config.data.name, "split": split}
        text.show(json.dumps(about | metrics._asdict()))
    else:
        accuracy = "" if metrics.accuracy is None else f", accuracy {100 * metrics.accuracy:.2f} %"
        where = f"{saved.source} on {config.data.name} ({split}, {metrics.samples:,} samples)"
        text.show(f"{where}: loss {metrics.loss:.4f}{accuracy}")
    return 0


COMMAND = Command(
    "evaluate",
    "Loss and accuracy of a run, or of a weights file, on any data set.",
    run,
    words="RUN|FILE",
    settings=("data", "model", "loss", "device", "threads"),
    flags=(
        Flag("--split", "Which part of the data.", Literal["test", "train", "validation"], "test"),
        Flag("--json", "Print the result as one line of JSON.", bool, False),
    ),
    details=lambda: (
        "RUN is a run folder; if the run did not finish, its newest checkpoint is used. FILE is a safetensors file. "
        "One that shoal wrote names its model; for any other, add --model NAME.",
        "Settings of data, model and loss, --device and --threads are those of `shoal train`: --data mnist.",
    ),
)
