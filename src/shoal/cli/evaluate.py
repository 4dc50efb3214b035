"""`shoal evaluate`: loss, accuracy and metrics of saved weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.api import TAKES
from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.printable import printable


@dataclass(frozen=True)
class EvaluateFlags(Flags):
    """On what, and how it is shown."""

    split: Literal["test", "train", "validation"] = "test"
    """Which part of the data."""
    checkpoint: str = ""
    """Of a run, this checkpoint: best (on the validation set), last, or a step; default: the final weights."""
    prompt: str = ""
    """Of a model of text, show instead how it goes on with this beginning."""
    json: bool = False
    """Print the result as one line of JSON."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the file or run names."""


def run(given: Given[EvaluateFlags]) -> int:
    """Show loss, accuracy and --metrics of a run, or of a weights file, on any data set.

    RUN is a run folder; if the run did not finish, its newest checkpoint is used. `--checkpoint best` is the best epoch
    on the validation set. FILE is a safetensors file. One that shoal wrote names its model; for any other, add
    --model NAME. `--prompt "Alice was"` shows how a model that predicts bytes goes on with a text.

    A model or loss of your own, package.module:function, runs only if you name it here (--model my:Net) or add
    --trust-code: a file may come from somebody else.

    Settings of data, model and loss, --metrics, --device and --threads are those of `shoal train`: --data mnist.
    """
    from shoal.config.metrics import list_in_words
    from shoal.config.read import read_flags
    from shoal.events.folder import RunFolder
    from shoal.training.reopen import evaluate_saved
    from shoal.training.saved import config_for, open_run

    flags, split = given.flags, given.flags.split
    saved = open_run(Path(given.words[0]), flags.checkpoint, flags.trust_code)
    config = config_for(saved, read_flags(given.settings))
    if flags.prompt:
        from shoal.training.continue_text import continue_text

        written = continue_text(saved, config, flags.prompt)
        text.show(
            json.dumps({"source": str(saved.source), "text": written}) if flags.json else printable(written)
        )
        return 0
    metrics = evaluate_saved(saved, config, split)
    if flags.json:
        about = {"source": str(saved.source), "data": config.data.name, "split": split}
        about |= {"checked": saved.is_checked}
        text.show(json.dumps(about | metrics.record()))
    else:
        where = f"{saved.source} on {config.data.name} ({split}, {metrics.samples:,} samples)"
        where += "" if saved.is_checked else " (weights without a checksum, unchecked)"
        text.show(f"{where}: {list_in_words(metrics.by_name)}")
        folder = RunFolder(Path(given.words[0]))
        if folder.result.exists() and folder.read_result().get("status") == "completed":
            text.next_step("shoal", "report", folder.path)
    return 0


COMMAND = Command("evaluate", run, EvaluateFlags, words="RUN|FILE", settings=TAKES["evaluate"])
