"""A flag as pages of help show it: its usage, its sentence, its default."""

from dataclasses import MISSING
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from shoal.config.flags import Flag
from shoal.config.kinds import Matching


def usage_of(flag: Flag) -> str:
    """A flag with a word for its value: `--workers N`."""
    return flag.name if flag.kind is bool else f"{flag.name} {_placeholder(flag.kind)}"


def sentence_of(flag: Flag) -> str:
    """Its sentence, with the default."""
    shown = "" if flag.kind is bool else default_of(flag)
    return f"{flag.sentence.removesuffix('.')} (default {shown})." if shown else flag.sentence


def _placeholder(kind: Any) -> str:
    """The word that stands for a value of this kind in the help.

    >>> _placeholder(int), _placeholder(Literal["en", "zh"])
    ('N', 'en|zh')
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _placeholder(parts[0])
    if origin is Annotated:
        return next(
            (limit.word for limit in parts[1:] if isinstance(limit, Matching)), _placeholder(parts[0])
        )
    if origin is Literal and len("|".join(parts)) < 30:
        return "|".join(parts)
    words: dict[Any, str] = {int: "N", float: "X", Path: "PATH", tuple: "LIST"}
    return words.get(origin or kind, "NAME")


def default_of(flag: Flag) -> str:
    """The default as the user would write it; empty if there is none."""
    default = flag.default
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if default is None or default is MISSING:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
