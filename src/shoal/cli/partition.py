"""`shoal data partition`: divide a data set among workers and show which samples each owns."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.sections.values import PositiveFloat
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from shoal.config.schema import RunConfig
    from shoal.data.dataset import DataSet
    from shoal.report.ownership import Ownership


@dataclass(frozen=True)
class PartitionFlags(Flags):
    """By which rule, and how it is shown."""

    by: str = "random"
    """Rule that divides the samples: one of those below, or package.module:function."""
    alpha: PositiveFloat | None = None
    """Parameter of dirichlet."""
    speeds: tuple[PositiveFloat, ...] = ()
    """Parameter of speed: one number per worker."""
    allow_empty: bool = False
    """Allow workers without samples."""
    svg: Path | None = None
    """Draw the partition into this file."""
    png: Path | None = None
    """The same, as a PNG."""
    json: bool = False
    """Print the counts as one line of JSON."""


def run(given: Given[PartitionFlags]) -> int:
    """Divide a data set among workers and show which samples each owns.

    Other flags are as in `shoal train`: --workers N (default 4), --seed N, --data-dir PATH, --data.samples N,
    --partition.labels_per_worker N. The rules:
    """
    config = _config(given)
    workers = config.launch.workers

    from shoal.data.load import load

    data = load(config.data)
    lists = _divided(config, data, workers, given.flags.allow_empty)
    owned = _ownership(_title(config, data, workers), lists, data)
    files = {kind: path for kind in ("svg", "png") if (path := getattr(given.flags, kind)) is not None}
    for kind, path in files.items():
        _draw(owned, kind, path)
    if given.flags.json:
        text.show(json.dumps(_as_data(config, owned, data.name)))
        return 0

    from shoal.report.ownership import as_text

    text.show(as_text(owned, shutil.get_terminal_size((110, 24)).columns))
    for path in files.values():
        text.show(f"wrote {path}")
    return 0


def _config(given: Given[PartitionFlags]) -> "RunConfig":
    """The run whose partition is shown: its settings are checked like any run's."""
    from shoal.config.read import read

    flags = given.flags
    words = [f"--data={given.words[0]}", f"--partition={flags.by}", "--workers=4", "--strategy=naive"]
    words += [f"--partition.alpha={flags.alpha}"] if flags.alpha else []
    words += [f"--partition.speeds={','.join(map(str, flags.speeds))}"] if flags.speeds else []
    config = read(None, [*words, *given.settings])
    if config.partition.name == "global":
        raise ConfigError(
            "partition 'global' has no fixed owners: each batch is split among the workers",
            f"Choose one of {', '.join(rules())}.",
        )
    return config


def _divided(config: "RunConfig", data: "DataSet", workers: int, allow_empty: bool) -> "list[Tensor]":
    """The samples that each worker uses in one epoch."""
    from shoal.config.sections.partition import SamplingConfig
    from shoal.data.division.steps import Sampled, parts_by

    num_samples, rule = len(data.train), config.partition
    if isinstance(rule, SamplingConfig):
        draws = Sampled(num_samples, config.seed, workers)
        return [draws.sequence(epoch=0, rank=rank) for rank in range(workers)]
    return list(parts_by(rule, num_samples, workers, config.seed, data.train.labels, allow_empty))


def _ownership(title: str, lists: "list[Tensor]", data: "DataSet") -> "Ownership":
    from shoal.data.division.coverage import survey
    from shoal.report.ownership import Ownership

    num_samples = len(data.train)
    seen = survey(lists, num_samples, data.train.labels if data.task == "classification" else None)
    return Ownership(
        title,
        num_samples,
        [indices.numpy() for indices in lists],
        seen.labels,
        seen.histogram.numpy(),
        seen.whole.numpy(),
        seen.skew,
        seen.coverage,
        seen.overlap,
    )


def _title(config: "RunConfig", data: "DataSet", workers: int) -> str:
    options = ", ".join(f"{key} {_shown(value)}" for key, value in _options(config).items())
    rule = f"{config.partition.name} ({options})" if options else config.partition.name
    who = "1 worker" if workers == 1 else f"{workers:,} workers"
    seed = f", seed {config.seed}" if _takes_seed(config.partition.name) else ""
    return f"{data.name}: {len(data.train):,} samples among {who} by {rule}{seed}"


def _takes_seed(rule: str) -> bool:
    from shoal.data.division.partition import rule_of, takes

    return rule == "sampling" or takes(rule_of(rule)[1], "seed")


def _options(config: "RunConfig") -> dict[str, Any]:
    from shoal.config.kinds import options_of
    from shoal.config.sections.values import Custom

    rule = config.partition
    options = dict(rule.options) if isinstance(rule, Custom) else options_of(rule)
    return {key: value for key, value in options.items() if value is not None}


def _shown(value: Any) -> str:
    return ":".join(f"{item:g}" for item in value) if isinstance(value, tuple) else str(value)


def _draw(owned: "Ownership", kind: str, path: Path) -> None:
    from shoal.report.folder import write_files
    from shoal.report.ownership import draw_ownership

    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder", "Choose the name of a file.")
    picture = draw_ownership(owned, "svg" if kind == "svg" else "png")
    try:
        write_files(path.parent, {PurePosixPath(path.name): picture})
    except ConfigError as error:
        raise ConfigError(error.message, "Choose another file.") from None


def _as_data(config: "RunConfig", owned: "Ownership", name: str) -> dict[str, Any]:
    return {
        "data": name,
        "samples": owned.num_samples,
        "by": config.partition.name,
        "options": _options(config),
        "seed": config.seed,
        "workers": [
            {
                "samples": len(indices),
                "labels": dict(zip(map(str, owned.labels), owned.histogram[rank].tolist(), strict=True)),
                "skew": round(owned.skew[rank], 6) if owned.labels and len(indices) else None,
            }
            for rank, indices in enumerate(owned.lists)
        ],
        "coverage": owned.coverage,
        "overlap": owned.overlap,
    }


def rules() -> dict[str, str]:
    """The rules that give each worker its samples, with their sentences."""
    from shoal.config.describe import sections

    found = {section.name: section.sentence for section in sections() if section.path == "partition"}
    return {name: sentence for name, sentence in found.items() if name != "global"}


COMMAND = Command(
    "data partition",
    run,
    PartitionFlags,
    words="NAME",
    settings=("data", "partition", "launch.workers", "seed"),
    details=lambda: [
        text.rows(rules()),
        "Start with:  shoal data partition digits --by dirichlet --alpha 0.3",
    ],
)
