"""Stand-ins for the launch of a student's program: the flags that it is given, and the processes that it starts."""

import argparse
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.multiprocessing as mp

from shoal_labs.check.standins.replace import instead_of

WORLD = [
    "n_devices",
    "world_size",
    "nprocs",
    "n_procs",
    "num_processes",
    "n_nodes",
    "num_nodes",
    "nodes",
    "size",
]
RANK = ("rank", "local_rank", "node_rank")
ADDRESS = {"master_addr": "127.0.0.1", "addr": "127.0.0.1", "master_port": "29500", "port": "29500"}
"""Flags of the course's scripts, and of others."""


class OtherWorld(BaseException):
    """Ends the program: it wants another number of nodes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


def require(asked: int, size: int) -> None:
    """End the program if it asks for another number of nodes."""
    if asked != size:
        raise OtherWorld(asked)


def give_arguments(rank: int, size: int, flags: Mapping[str, Any], options: list[dict[str, Any]]) -> None:
    """Let every parser read flags as a launcher gives them; `options` then names the flags that it has."""
    own = {**dict.fromkeys(WORLD, size), **dict.fromkeys(RANK, rank), **ADDRESS, **flags}

    @instead_of(argparse.ArgumentParser, "parse_known_args")
    def parse(original: Any, parser: Any, args: Any = None, namespace: Any = None) -> Any:
        return original(parser, args or _arguments(parser, own, options), namespace)


def _arguments(
    parser: argparse.ArgumentParser, own: Mapping[str, Any], options: list[dict[str, Any]]
) -> list[str]:
    """Values for the flags that this parser has."""
    given: list[str] = []
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if action.dest == "help":
            continue
        switch = action.nargs == 0
        kind = getattr(action.type, "__name__", "switch" if switch else "str")
        choices = [str(each) for each in action.choices] if action.choices else []
        default = action.default if isinstance(action.default, str | int | float | bool) else None
        options.append({"name": action.dest, "kind": kind, "choices": choices, "default": default})
        if action.dest not in own:
            continue
        if not action.option_strings:
            given.append(str(own[action.dest]))
        elif not switch:
            given.append(f"{action.option_strings[-1]}={own[action.dest]}")
        elif own[action.dest] is True:
            given.append(action.option_strings[-1])
    return given


def be_one_process(rank: int, size: int) -> None:
    """Of the processes that a program starts itself, this one is number `rank`; the others are not started."""

    def spawn(fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        require(nprocs, size)
        fn(rank, *args)

    started = iter(range(1000))

    class Process:
        def __init__(
            self, *_: Any, target: Any = None, args: Any = (), kwargs: Any = None, **__: Any
        ) -> None:
            self._call = (target, args, kwargs or {}) if next(started) == rank else None

        def start(self) -> None:
            if self._call and self._call[0]:
                self._call[0](*self._call[1], **self._call[2])

        def join(self, *_: Any) -> None:
            """It has ended."""

    changed: Any = mp
    changed.spawn = changed.start_processes = spawn
    for module in (mp, multiprocessing):
        setattr(module, "Process", Process)  # noqa: B010
