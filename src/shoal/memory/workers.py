"""Runs a measurement in new workers, and returns what each of them found: for `measure` and `trial`.

Both start the workers with our own launcher; each of them runs the file that measures.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.config.schema import RunConfig
from shoal.config.write import from_plain, to_plain
from shoal.launch import programs
from shoal.launch.one_worker import joined_group
from shoal.training.build import torch_settings


def in_workers(program: str, config: RunConfig, **given: Any) -> list[Any]:
    """What every worker of a run found, in rank order: each runs the file `program`, which calls `as_worker`."""
    workers = config.launch.workers
    with tempfile.TemporaryDirectory() as folder:
        settings = json.dumps({"config": to_plain(config), "folder": folder, "given": given})
        programs.by_processes(program, [settings], workers)
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(workers)]


def as_worker(measured: Callable[..., Any]) -> None:
    """Measure as one worker: `measured` is called with config, device and group, and what `in_workers` was given."""
    settings = json.loads(sys.argv[1])
    config = from_plain(settings["config"])
    warnings.simplefilter("ignore")  # of gradients on generated data, which mean nothing here
    with joined_group(config) as group, torch_settings(config, group.rank) as device:
        found = measured(config, device, group, **settings["given"])
        (Path(settings["folder"]) / f"{group.rank}.json").write_text(json.dumps(found))
        group.barrier().wait()
