"""`shoal evaluate`: loss and accuracy of weights that lie on disk."""

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.cli import text
from shoal.cli.options import split_options
from shoal.errors import ConfigError, unknown

HELP = """Usage: shoal evaluate RUN|FILE [--data NAME] [--data-dir DIR] [--split test|train|validation] [--json]

RUN is a run folder; of one that did not finish, the newest checkpoint is taken. FILE is a safetensors file: one that
shoal wrote says itself which model it holds, for any other add --model NAME.
Other settings of data, model, loss and device go by the grammar of `shoal train`."""

SPLITS = ("train", "validation", "test")
MAY_CHANGE = ("data", "model", "loss", "device", "threads")


def run(argv: Sequence[str]) -> int:
    """Parse, evaluate, print."""
    options, words = split_options(argv, switches=("--json", "--help", "-h"), values=("--split",))
    if options.has("--help", "-h"):
        text.page(HELP)
        return 0
    split = options.value("--split") or "test"
    if split not in SPLITS:
        raise ConfigError(unknown("split", split, SPLITS))
    if not words or words[0].startswith("-"):
        raise ConfigError(
            "nothing to evaluate: name a run folder or a safetensors file", "shoal evaluate runs/NAME"
        )
    path = Path(words.pop(0))
    if not path.exists():
        raise ConfigError(f"{path} does not exist")

    from shoal.config.read import read_flags

    changes = read_flags(words)
    for section in changes:
        if section not in MAY_CHANGE:
            raise ConfigError(
                f"{section} has no part in an evaluation", f"What may change: {', '.join(MAY_CHANGE)}."
            )

    from shoal.train.reopen import config_for, evaluate_saved, open_saved

    saved = open_saved(path)
    config = config_for(saved, changes)
    metrics = evaluate_saved(saved, config, split)
    if options.has("--json"):
        text.show(
            json.dumps(
                {"source": str(saved.source), "data": config.data.name, "split": split, **metrics._asdict()}
            )
        )
    else:
        accuracy = "" if metrics.accuracy is None else f", accuracy {100 * metrics.accuracy:.2f} %"
        where = f"{saved.source} on {config.data.name} ({split}, {metrics.samples:,} samples)"
        text.show(f"{where}: loss {metrics.loss:.4f}{accuracy}")
    return 0
