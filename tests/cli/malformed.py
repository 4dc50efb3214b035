"""Malformed flags and recipes, drawn from a seed: the same number gives the same input every time."""

import random
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from shoal.config.choices import choices, kinds_of
from shoal.config.kinds import Several, without_none
from shoal.config.schema import RunConfig

_SMALL = "--device cpu --steps 1 --quiet --data synthetic --data.samples 20 --data.shape 4 --model linear"
SMALL = _SMALL.split()
"""A run of a moment, in case that an input is accepted after all."""
DIGITS = "9" * 5000
NUMBERS = [
    "",
    " ",
    "1_000",
    "_1",
    "two",
    "1.5.2",
    "1e",
    "--",
    "0x10",
    "١٢",
    "１",
    "²",
    "½",
    "1e300",
    "nan",
    "-nan",
    DIGITS,
    "1;2",
]
INTEGERS = [*NUMBERS, "1.5", "inf", str(2**63), str(-(2**63) - 1), str(10**400), "true", "1,2"]
FLOATS = [*NUMBERS[:13], "1e999", "-1e999", "inf", "-inf", DIGITS + ".0", "1,5", "٣.٥"]
WORDS = ["", "zzz", "ALL", "none of these", "\x1b[31m", "\udcff", "a" * 100_000, "日本", "'", "\n"]
TEXTS = [" ", "\t\n", "\0", "a\0b", "\udcff", "\ud800"]
HUGE = [10**7, 10**12, 10**15, 2**53, 2**62, 2**63 - 1]


class Malformed(NamedTuple):
    """An input that must be refused: the words of a command and, where `recipe` is set, the content of a file."""

    words: list[str]
    recipe: bytes | None = None


def draw(seed: int, number: int) -> Malformed:
    """The input of this number; a word RECIPE stands for the path of the file."""
    chance = random.Random(f"{seed}:{number}")
    return chance.choice(SOURCES)(chance)


def settings() -> list[tuple[str, str, Any]]:
    """Every setting of a run: (section and choice, key, kind)."""
    found = [("", name, kind) for name, kind in kinds_of(RunConfig).items() if not choices(kind)]
    for section, kind in kinds_of(RunConfig).items():
        for choice in choices(kind):
            found += [
                (f"{section} {getattr(choice, 'name', '')}", key, each)
                for key, each in kinds_of(choice).items()
            ]
    return [(where, key, kind) for where, key, kind in found if key not in ("options", "mesh")]


def bad_value(chance: random.Random, kind: Any) -> str | None:
    """Text that is not of this kind; None where any text is."""
    kind = without_none(kind)
    if get_origin(kind) is Annotated:
        if Several() in get_args(kind):
            return chance.choice(
                [
                    "x",
                    ";",
                    " ",
                    "rank=",
                    "rank=1",
                    "=1",
                    "rank=-1,delay=1s",
                    f"rank={DIGITS},delay=1s",
                    "٠-١:1gbit",
                ]
            )
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return chance.choice(WORDS)
    if get_origin(kind) is tuple:
        blanks = chance.choice([",", " ", "1,,2", "1,", ",1"])
        is_text = get_args(kind)[0] is str
        return blanks if is_text or chance.random() < 0.3 else f"1,{chance.choice(INTEGERS[2:-1])}"
    if kind is bool:
        return chance.choice(["maybe", "2", "١", DIGITS])
    if kind is float:
        return chance.choice(FLOATS)
    return chance.choice(TEXTS) if kind is str else chance.choice(INTEGERS)


def _flag(chance: random.Random) -> Malformed:
    """A setting with a value of another kind."""
    while True:
        where, key, kind = chance.choice(settings())
        section, _, choice = where.partition(" ")
        value = bad_value(chance, kind)
        if value is not None:
            named = [f"--{section}={choice}"] if choice and key != "name" and section != "sync" else []
            return Malformed(["train", *SMALL, *named, f"--{section + '.' if section else ''}{key}={value}"])


def _huge(chance: random.Random) -> Malformed:
    """A size beyond memory or 64 bits."""
    size = chance.choice(HUGE)
    words = chance.choice(
        [
            f"--model mlp --model.hidden {10**4 * size}",
            f"--model mlp --model.hidden 8,{10**4 * size},8",
            f"--model resnet18 --model.width {size}",
            f"--model transformer --model.layers {size} --data.task text",
            f"--model transformer --model.width {4 * size} --data.task text",
            f"--data.samples {10**6 * size}",
            f"--data.shape {size},{size}",
            f"--data.classes {10**6 * size}",
            f"--threads {size}",
            f"--workers {size} --strategy ddp",
            f"--workers {size} --strategy naive --launcher threads --data.samples 100000000",
            f"--mesh data={size}",
        ]
    )
    return Malformed(["train", *SMALL, *words.split()])


def _by_hand(chance: random.Random) -> Malformed:
    """Ports, ranks and time limits out of range."""
    port = chance.choice(["65536", "99999", DIGITS, "-1", "١", "", "x", "1e3"])
    limit = chance.choice(["1e300", "1e-9", "0", "-1", "nan", "inf", "soon"])
    words = chance.choice(
        [
            f"--rank 0 --world-size 2 --master 127.0.0.1:{port}",
            f"--rank 0 --world-size 2 --master-port={port}",
            f"--rank 0 --world-size 2 --master 127.0.0.1:1 --join-timeout={limit}",
            "--rank 2 --world-size 2 --master 127.0.0.1:29500",
            f"--rank {DIGITS} --world-size 2 --master 127.0.0.1:29500",
            "--rank=-1 --world-size 2 --master 127.0.0.1:29500",
            "--rank 0 --master 127.0.0.1:29500",
        ]
    )
    return Malformed(["train", *SMALL, *words.split()])


def _line(chance: random.Random) -> Malformed:
    """Command lines that are not made of flags and values, and flags of other commands."""
    number = chance.choice(["0", "-1", "١", DIGITS, "x", str(2**63), "10000000"])
    lines = [
        ["train", "--epochs"],
        ["train", f"--{chance.choice(WORDS[1:3])}", "1"],
        ["train", "--model.nothing", "1"],
        ["train", "a", "b"],
        [
            "train",
            chance.choice(["nowhere.toml", "nowhere", "", "\0", "\udcff", "/", "/dev/null/x", "a" * 5000]),
        ],
        ["train", "--resume", chance.choice(["nowhere", "/", "/dev/null", "\0", "\udcff", "a" * 5000])],
        [
            "train",
            "--mesh",
            chance.choice(["x", "data", "data=", "data=0", f"data={DIGITS}", "data=1,data=1", "٢"]),
        ],
        ["evaluate", chance.choice(["nowhere", "/", "/dev/null", "\0", "a" * 5000])],
        ["explain", "ring", f"--workers={number}"],
        ["explain", "1f1b", f"--stages={number}"],
        ["explain", "gpipe", f"--microbatches={number}"],
        ["launch", f"--workers={number}", "program.py"],
        ["bench", "collectives", f"--workers={number}"],
        ["bench", "collectives", "-b", chance.choice(["x", "1T", "١", DIGITS])],
        ["bench", "collectives", f"--seconds={chance.choice(['1e300', '1e-9', 'nan'])}"],
        ["check", "all_reduce", f"--limit={chance.choice(['1e300', '1e-9', 'nan'])}"],
        ["compare", chance.choice(["nowhere", "/", "\0"])],
        [chance.choice(["trian", "", "\0", "--", "١"])],
    ]
    return Malformed(chance.choice(lines))


def _toml(chance: random.Random) -> Malformed:
    """Recipes that are not TOML, or not settings."""
    deep = chance.choice([500, 2000, 100_000])
    value = chance.choice(
        ["[]", "{}", "[[1]]", "1979-05-27", "true", "[1, 'a']", "{a = 1}", "nan", "inf", '"\\u0000"']
    )
    key = chance.choice(
        ["seed", "train.epochs", "model.hidden", "data.samples", "launch.workers", "train.clip_norm"]
    )
    texts = [
        "seed = ",
        "[",
        "seed = 1\nseed = 2",
        "[train]\n[train]",
        f"seed = {DIGITS}",
        f"seed = 0x{'f' * 5000}",
        f"seed = {10**30}",
        f"x = {'[' * deep}{']' * deep}",
        f"x = {'{a=' * deep}1{'}' * deep}",
        f"{'a.' * deep}a = 1",
        f"{key} = {value if (key, value) != ('model.hidden', '[]') else '1'}",
        "[model]\nname = 5",
        "model = 5",
        "model = 'nothing'",
        "train = [1]",
        "output.name = '\\u0000'".replace("'", '"'),
        'output.dir = "a\\u0000b"',
        '"" = 1',
        f"{'k' * 100_000} = 1",
        "launch.link = [5]",
        "launch.fault = ['rank=0']",
        "data.shape = [4, 'a']",
    ]
    return Malformed(["train", "RECIPE"], chance.choice(texts).encode())


def _bytes(chance: random.Random) -> Malformed:
    """Recipes of damaged bytes."""
    noise = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 50)))
    return Malformed(["train", "RECIPE"], b"seed = 1\n" + noise + b"\xff\n")


SOURCES = [_flag, _flag, _flag, _huge, _by_hand, _line, _toml, _toml, _bytes]
