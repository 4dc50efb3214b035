"""`shoal lab`: run a lab and get its report, or start your own solution and have it checked."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from shoal.cli import text
from shoal.cli.options import Options, split_options
from shoal.errors import ConfigError
from shoal.labs.catalogue import LABS, lab_of

RUN_USAGE = "shoal lab LAB [--quick] [--lang en|zh] [--out DIR] [--seed N] [--quiet] [flags of the lab]"
START_USAGE = "shoal lab start LAB [--out DIR] [--lang en|zh]"
CHECK_USAGE = "shoal lab check LAB [DIR] [--lang en|zh]"
SWITCHES = {
    "--quick": "fewer steps, seeds and samples: a minute or two",
    "--quiet": "only the paths",
}
VALUES = {
    "--data": "digits (default), mnist or fashion-mnist",
    "--data-dir": "where the files of mnist or fashion-mnist lie",
    "--workers": "how many workers train together (default: 2); for lab 3 a list (default: 2,4)",
    "--runs": "take the finished runs from the runs/ folder of an earlier report, and train only the rest",
    "--lang": "language of the report: en (default) or zh",
    "--out": "folder of the report (default: reports/lab…); for start, of the skeleton (default: here)",
    "--seed": "first seed (default: 0)",
}
FOR_ALL = ("--lang", "--out", "--seed")


def run(argv: Sequence[str]) -> int:
    """List the labs, run one, hand out its skeleton, or check a solution; 130 after Ctrl-C."""
    options, words = split_options(argv, switches=(*SWITCHES, "--help", "-h"), values=tuple(VALUES))
    _refuse_flags(words)
    if options.has("--help", "-h") or not words:
        text.page(_help())
        return 0
    if words[0] == "start":
        return _start(options, words[1:])
    if words[0] == "check":
        return _check(options, words[1:])
    if len(words) > 1:
        raise ConfigError(f"'{words[1]}' is not understood here", f"Usage: {RUN_USAGE}")
    return _run(words[0], options)


def _refuse_flags(words: Sequence[str]) -> None:
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            close = get_close_matches(flag, [*SWITCHES, *VALUES], n=1, cutoff=0.5)
            guess = f": did you mean '{close[0]}'?" if close else ""
            raise ConfigError(f"unknown flag '{flag}'{guess}", "`shoal lab --help` lists the flags.")


def _take_only(options: Options, flags: Sequence[str], command: str, usage: str) -> None:
    for flag in options.values:
        if flag not in flags:
            raise ConfigError(f"{flag} has no use in `shoal lab {command}`", f"Usage: {usage}")


def _start(options: Options, words: Sequence[str]) -> int:
    _take_only(options, ("--out", "--lang"), "start", START_USAGE)
    if len(words) != 1:
        raise ConfigError("`shoal lab start` needs the number of one lab", f"Usage: {START_USAGE}")
    from shoal.labs.handout.start import start

    folder = Path(options.value("--out") or ".")
    for path in start(words[0], folder, options.value("--lang") or "en"):
        text.show(str(path))
    return 0


def _check(options: Options, words: Sequence[str]) -> int:
    """A line for every task as it is tried, sentences for what is wrong; 1 unless everything is right."""
    _take_only(options, ("--lang",), "check", CHECK_USAGE)
    if len(words) not in (1, 2):
        raise ConfigError("`shoal lab check` needs the number of one lab", f"Usage: {CHECK_USAGE}")
    from shoal.labs.check.solution import check
    from shoal.labs.words import load_words

    told = load_words(lab_of(words[0]).package, options.value("--lang") or "en")
    folder = Path(words[1] if len(words) > 1 else ".")
    right, tried = 0, 0
    try:
        for verdict in check(words[0], folder):
            text.show(f"{told(f'check.{verdict.word}')}  {verdict.path.name}: {', '.join(verdict.tasks)}")
            for fault in verdict.faults:
                text.show(f"  {told(f'check.{fault.key}', **fault.values)}")
            right, tried = right + (verdict.word == "right"), tried + 1
    except KeyboardInterrupt:
        return 130
    text.show(told("check.summary", right=right, all=tried, folder=folder))
    return 0 if right == tried else 1


def _run(name: str, options: Options) -> int:
    from shoal.labs.frame import folder_for, load_lab, run_lab
    from shoal.labs.terminal import aligned
    from shoal.labs.watch import watch_for
    from shoal.labs.words import load_words

    lab = load_lab(name)
    settings = lab.settings(**_settings(name, lab.settings, options))
    words = load_words(lab.package, settings.lang)
    folder = folder_for(lab, settings)
    quiet = options.has("--quiet")
    try:
        with watch_for(sys.stdout, quiet) as watch:
            result = run_lab(lab, settings, folder, watch)
    except KeyboardInterrupt:
        text.warn(words("progress.stopped", folder=folder / "runs"))
        return 130
    if not quiet:
        header = result.table.header
        text.show("\n" + aligned(header, result.table.rows, frozenset(range(1, len(header)))))
        text.show(f"\n{text.bold(words('progress.findings'))}")
        text.show(aligned(("", ""), result.findings).lstrip("\n"))
        text.show()
    text.show(str(folder / "report.html"))
    text.show(str(folder / "report.md"))
    return 0


def _settings(name: str, kind: Any, options: Options) -> dict[str, Any]:
    """What was given, as fields of the lab's settings (`kind`); what was not keeps the lab's own default."""
    taken = {*FOR_ALL, *lab_of(name).flags}
    types = {field.name: field.type for field in fields(kind)}
    settings: dict[str, Any] = {"quick": options.has("--quick")}
    for flag, value in options.values.items():
        if flag in VALUES and flag not in taken:
            raise ConfigError(f"{flag} has no use in lab {name}", "`shoal lab --help` lists the flags.")
        if flag in VALUES and value is not None:
            field = flag.removeprefix("--").replace("-", "_")
            settings[field] = _whole_number(flag, value) if types[field] is int else value
    return settings


def _whole_number(flag: str, given: str) -> int:
    try:
        return int(given)
    except ValueError:
        raise ConfigError(f"{flag} must be a whole number, not '{given}'") from None


def _sentence(flag: str) -> str:
    """What a flag says of itself, and which labs take it where not all do."""
    takers = [name for name, lab in LABS.items() if flag in lab.flags]
    if flag in FOR_ALL or not takers:
        return VALUES[flag]
    return f"of lab{'s' * (len(takers) > 1)} {', '.join(takers)}: {VALUES[flag]}"


def _help() -> str:
    longest = max(map(len, LABS))
    labs = "\n".join(f"  {text.bold(f'{name:{longest}}')}  {lab.summary}" for name, lab in LABS.items())
    flags = {**{flag: _sentence(flag) for flag in VALUES}, **SWITCHES}
    width = max(map(len, flags))
    rows = "\n".join(f"  {flag:{width}}  {sentence}" for flag, sentence in flags.items())
    return (
        f"{text.bold('shoal lab')}: run a lab and get its report, or start your own solution and check it\n\n"
        f"Usage: {RUN_USAGE}\n       {START_USAGE}\n       {CHECK_USAGE}\n\n"
        f"{labs}\n\n{rows}\n\nBegin with:  shoal lab 1 --quick"
    )
