"""`shoal data partition`: divide a data set among workers and show who owns what."""

import json
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shoal.cli import text
from shoal.cli.options import Options
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from shoal.config.schema import RunConfig
    from shoal.data.dataset import DataSet
    from shoal.report.partition import Ownership

USAGE = "shoal data partition NAME [--workers N] [--by RULE] [--alpha A] [--speeds LIST] [--seed S] …"
RULES = {
    "random": "a random part each (the default)",
    "contiguous": "a stretch each, in the order in which the samples are stored",
    "stratified": "a random part each, with the label proportions of the whole",
    "label": "some labels each",
    "dirichlet": "of every label a part that is drawn at random; small --alpha (0.5): few labels each",
    "speed": "a random part each, as large as its worker is fast: --speeds 2,1,1",
    "hash": "a hash of the sample's number decides: a data set that grows moves nobody",
    "sampling": "no partition: each worker draws from the whole data set, with replacement (one epoch)",
}
SWITCHES = ("--json", "--allow-empty")
SETTINGS = {"--by": "--partition", "--alpha": "--partition.alpha", "--speeds": "--partition.speeds"}
"""Short flags, each with the setting that it stands for."""
VALUES = ("--workers", "--seed", "--data-dir", "--svg", "--png", *SETTINGS)
PREFIXES = ("--partition.", "--data.")
"""Any other setting of the two sections may be given in full, as to `shoal train`."""


def help_text() -> str:
    """What `shoal data partition --help` shows."""
    width = max(map(len, RULES))
    rules = "\n".join(f"  {text.bold(f'{rule:{width}}')}  {sentence}" for rule, sentence in RULES.items())
    return (
        f"{text.bold('shoal data partition')}: divide a data set among workers and show who owns what\n\n"
        f"Usage: {USAGE}\n       [--data-dir DIR] [--allow-empty] [--svg FILE] [--png FILE] [--json]\n\n"
        f"--by takes the name of a rule, or package.module:function for one of your own:\n\n{rules}\n\n"
        "  --workers N     how many (4)\n"
        "  --seed S        of the draws (0)\n"
        "  --data-dir DIR  where the files of mnist, fashion-mnist or cifar10 lie\n"
        "  --allow-empty   a worker may be left without samples\n"
        "  --svg, --png    draw it into a file\n"
        "  --json          the counts as one JSON line\n\n"
        "Other settings of the data and of the rule are written as for `shoal train`: --data.samples 100.\n\n"
        "Begin with:  shoal data partition digits --by dirichlet --alpha 0.3 --svg who.svg"
    )


def partition(options: Options, words: list[str]) -> int:
    """Divide, count, show; draw if asked."""
    name, flags = _name_and_flags(words)
    config = _config(name, options, flags)
    workers = config.launch.workers

    from shoal.data.load import load

    data = load(config.data)
    lists = _divided(config, data, workers, options.has("--allow-empty"))
    owned = _ownership(_title(config, data, workers), lists, data)
    files = {kind: Path(path) for kind in ("svg", "png") if (path := options.value(f"--{kind}")) is not None}
    for kind, path in files.items():
        _draw(owned, kind, path)
    if options.has("--json"):
        text.show(json.dumps(_as_data(config, owned, data.name)))
        return 0

    from shoal.report.partition import as_text

    text.show(as_text(owned, shutil.get_terminal_size((110, 24)).columns))
    for path in files.values():
        text.show(f"drawn in {path}")
    return 0


def _name_and_flags(words: list[str]) -> tuple[str, list[str]]:
    """The data set, and the settings given in full; any other word is refused."""
    names: list[str] = []
    flags: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word.startswith(PREFIXES):
            flags += [word] if "=" in word or not waiting else [word, waiting.pop(0)]
        elif word.startswith("-"):
            _refuse(word.partition("=")[0])
        else:
            names.append(word)
    if not names:
        raise ConfigError("which data set?", f"Usage: {USAGE}")
    if len(names) > 1:
        raise ConfigError(f"'{names[1]}' is not understood here", f"Usage: {USAGE}")
    return names[0], flags


def _refuse(flag: str) -> None:
    from difflib import get_close_matches

    close = get_close_matches(flag, [*VALUES, *SWITCHES], n=1, cutoff=0.5)
    guess = f": did you mean '{close[0]}'?" if close else ""
    raise ConfigError(f"unknown flag '{flag}'{guess}", "`shoal data partition --help` lists the flags.")


def _config(name: str, options: Options, flags: list[str]) -> "RunConfig":
    """Data set, rule, workers and seed as settings of a run in which workers own data, checked as those are."""
    from shoal.config.read import from_tree, read_flags

    given = {"--data": name, "--partition": "random", "--workers": "4", "--strategy": "naive"}
    for flag in ("--workers", "--seed", "--data-dir", *SETTINGS):
        value = options.value(flag)
        if value is not None:
            given[SETTINGS.get(flag, flag)] = value
    config = from_tree(read_flags([*(f"{flag}={value}" for flag, value in given.items()), *flags]))
    if config.partition.name == "global":
        raise ConfigError(
            "under partition 'global' nobody owns samples: every step is divided anew",
            f"Choose one of {', '.join(RULES)}.",
        )
    return config


def _divided(config: "RunConfig", data: "DataSet", workers: int, allow_empty: bool) -> "list[Tensor]":
    """The samples that each worker goes through in one epoch."""
    from shoal.config.schema import SamplingConfig
    from shoal.data.division import Sampled, parts_by

    num_samples, rule = len(data.train), config.partition
    if isinstance(rule, SamplingConfig):
        draws = Sampled(num_samples, config.seed, workers)
        return [draws.sequence(epoch=0, rank=rank) for rank in range(workers)]
    return list(parts_by(rule, num_samples, workers, config.seed, data.train.labels, allow_empty))


def _ownership(title: str, lists: "list[Tensor]", data: "DataSet") -> "Ownership":
    from shoal.data.division.coverage import survey
    from shoal.report.partition import Ownership

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
    from shoal.config.schema import Custom

    rule = config.partition
    options = dict(rule.options) if isinstance(rule, Custom) else options_of(rule)
    return {key: value for key, value in options.items() if value is not None}


def _shown(value: Any) -> str:
    return ":".join(f"{item:g}" for item in value) if isinstance(value, tuple) else str(value)


def _draw(owned: "Ownership", kind: str, path: Path) -> None:
    from shoal.report.folder import write_files
    from shoal.report.partition import draw_ownership

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
