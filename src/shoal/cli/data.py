"""`shoal data`: list, fetch, verify data sets, and divide one among workers."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shoal.cli import text
from shoal.cli.command import Command, CommandGroup, Given
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


def _partition(given: Given[PartitionFlags]) -> int:
    """Divide a data set among workers and show which samples each owns.

    Other flags are as in `shoal train`: --workers N (default 4), --seed N, --data-dir PATH, --data.samples N,
    --partition.labels_per_worker N. The rules:
    """
    from shoal.config.read import read
    from shoal.data.load import load

    config = read(None, _words(given))  # the run with this partition: its settings are checked like any run's
    if config.partition.name == "global":
        raise ConfigError(
            "partition 'global' has no fixed owners: each batch is split among the workers",
            f"Choose one of {', '.join(rules())}.",
        )
    data = load(config.data)
    owned = _ownership(config, data, _divided(config, data, given.flags.allow_empty))
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
    text.next_step("shoal", "train", "quickstart", *_words(given))
    return 0


def _words(given: Given[PartitionFlags]) -> list[str]:
    """The flags of a run with this partition."""
    flags = given.flags
    words = [f"--data={given.words[0]}", f"--partition={flags.by}", "--workers=4", "--strategy=naive"]
    words += [f"--partition.alpha={flags.alpha}"] if flags.alpha else []
    words += [f"--partition.speeds={','.join(map(str, flags.speeds))}"] if flags.speeds else []
    return [*words, *given.settings]


def _divided(config: "RunConfig", data: "DataSet", allow_empty: bool) -> "list[Tensor]":
    """The samples that each worker uses in one epoch."""
    from shoal.config.sections.data import SamplingConfig
    from shoal.data.division.steps import Sampled, parts_by

    num_samples, rule, workers = len(data.train), config.partition, config.launch.workers
    if isinstance(rule, SamplingConfig):
        draws = Sampled(num_samples, config.seed, workers)
        return [draws.sequence(epoch=0, rank=rank) for rank in range(workers)]
    return list(parts_by(rule, num_samples, workers, config.seed, data.train.classes, allow_empty))


def _ownership(config: "RunConfig", data: "DataSet", lists: "list[Tensor]") -> "Ownership":
    from shoal.data.division.coverage import survey
    from shoal.data.division.partition import rule_of, takes
    from shoal.report.ownership import Ownership

    num_samples, name, workers = len(data.train), config.partition.name, len(lists)
    options = ", ".join(
        f"{key} {':'.join(f'{item:g}' for item in value) if isinstance(value, tuple) else value}"
        for key, value in _options(config).items()
    )
    rule = f"{name} ({options})" if options else name
    who = "1 worker" if workers == 1 else f"{workers:,} workers"
    takes_seed = name == "sampling" or takes(rule_of(name)[1], "seed")
    seed = f", seed {config.seed}" * takes_seed
    seen = survey(lists, num_samples, data.train.classes if data.task == "classification" else None)
    return Ownership(
        f"{data.name}: {num_samples:,} samples among {who} by {rule}{seed}",
        num_samples,
        [indices.numpy() for indices in lists],
        seen.labels,
        seen.histogram.numpy(),
        seen.whole.numpy(),
        seen.skew,
        seen.coverage,
        seen.overlap,
    )


def _options(config: "RunConfig") -> dict[str, Any]:
    from shoal.config.choices import options_of
    from shoal.config.sections.values import Custom

    rule = config.partition
    options = dict(rule.options) if isinstance(rule, Custom) else options_of(rule)
    return {key: value for key, value in options.items() if value is not None}


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
    from shoal.cli.topics import sections

    found = {section.name: section.sentence for section in sections() if section.path == "partition"}
    return {name: sentence for name, sentence in found.items() if name != "global"}


@dataclass(frozen=True)
class DataFlags(Flags):
    """Where the files are."""

    data_dir: Path | None = None
    """Folder to look in first."""


@dataclass(frozen=True)
class ListFlags(DataFlags):
    """How the list is shown."""

    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class FetchFlags(DataFlags):
    """Where the files come from."""

    from_: Path | None = None
    """Copy the files from this folder instead of downloading them."""


def _list(given: Given[ListFlags]) -> int:
    """List the data sets and where they are."""
    from shoal.data.sources.files import inventory

    holdings = inventory(str(given.flags.data_dir or ""))
    if given.flags.json:
        rows = [
            {"name": held.name, "bytes": held.size, "folder": str(held.folder) if held.folder else None}
            for held in holdings
        ]
        text.show(json.dumps(rows))
        return 0
    for held in holdings:
        where = f"in {held.folder}" if held.folder else f"not on this machine: shoal data fetch {held.name}"
        text.show(f"{text.bold(f'{held.name:14}')} {held.sentence} ({held.size / 1e6:.1f} MB)")
        text.show(f"{'':14} {text.dim(where)}")
    text.show(
        f"{text.bold('synthetic     ')} made from a seed: classification, regression, text; of any size"
    )
    text.next_step("shoal", "data", "partition", "digits", "--by", "dirichlet", "--alpha", "0.3")
    return 0


def _fetch(given: Given[FetchFlags]) -> int:
    """Download a data set, or copy it from files you have."""
    from shoal.data.sources.fetch import fetch

    flags, progress = given.flags, _Progress()
    try:
        brought = fetch(
            given.words[0], flags.from_ and str(flags.from_), progress, directory=str(flags.data_dir or "")
        )
    finally:
        progress.end()
    for file in brought:
        text.show(f"{file.path}  ({file.source})")
    _train_with(given.words[0], flags.data_dir)
    return 0


def _verify(given: Given[DataFlags]) -> int:
    """Compare the checksum of every file with the published one."""
    from shoal.data.sources.files import check_verified, verify

    name, folder = given.words[0], str(given.flags.data_dir or "")
    states = verify(name, folder)
    for state in states:
        text.show(f"{'FAIL' if state.problem else 'OK  '} {state.problem or state.path}")
    check_verified(name, states, folder)
    _train_with(name, given.flags.data_dir)
    return 0


def _train_with(name: str, folder: Path | None) -> None:
    where = ["--data-dir", folder] if folder else []
    text.next_step("shoal", "train", "quickstart", "--data", name, *where)


class _Progress:
    """The progress of a fetch on one line of a terminal; nothing if there is no terminal."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, name: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{name}  {done / 1e6:.1f} / {total / 1e6:.1f} MB\033[K")
            sys.stderr.flush()
            self._shown = True

    def end(self) -> None:
        """Erase the line."""
        if self._shown:
            sys.stderr.write("\r\033[K")


COMMAND = CommandGroup(
    "data",
    "List, fetch and verify data sets, or divide one among workers.",
    {
        "list": Command("data list", _list, ListFlags),
        "fetch": Command("data fetch", _fetch, FetchFlags, "NAME"),
        "verify": Command("data verify", _verify, DataFlags, "NAME"),
        "partition": Command(
            "data partition",
            _partition,
            PartitionFlags,
            words="NAME",
            settings=("data", "partition", "launch.workers", "seed"),
            details=lambda: [
                text.rows(rules()),
                "Start with:  shoal data partition digits --by dirichlet --alpha 0.3",
            ],
        ),
    },
    more="Data sets are searched for in --data-dir, then in $SHOAL_DATA, then in the user's cache. `digits` and "
    "`alice` come with shoal and `synthetic` is made from a seed: none of them is fetched.",
)
