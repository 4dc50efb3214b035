"""The worker's side: it notes its calls of torch's groups on the board, and answers where it is.

Every call of a process group that goes through Python is noted before torch issues it, and every wait. What C++ issues
(DDP's all-reduces) is known from torch's flight recorder, which is asked when the launcher asks this worker.
"""

import contextlib
import faulthandler
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any, final

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from shoal.comm.signature import mismatch
from shoal.comm.torch_calls import MESSAGES, Operation, name_of, peer_of, piece_of, replace, replace_methods
from shoal.errors import MismatchError
from shoal.launch.hangs.board import VARIABLE, Board
from shoal.launch.hangs.calls import Call
from shoal.launch.hangs.standing import (
    MOST_CALLS,
    RECORDER_VARIABLES,
    main_thread,
    meeting,
    recorded_calls,
    stack_of_thread,
)
from shoal.launch.reports import Reporter

LOOK_EVERY_S = 0.2
"""How often a worker looks whether it is asked."""


class _Group:
    """A process group, as it was when it was first used."""

    def __init__(self, group: Any, generation: int) -> None:
        self.key, self.name = f"{group.group_name}.{generation}", name_of(group)
        self.count = 0
        """The number of its last collective."""


@final
class Watched:
    """The calls of one worker."""

    def __init__(self, board: Board, rank: int) -> None:
        self._board, self._rank = board, rank
        self._groups: weakref.WeakKeyDictionary[Any, _Group] = weakref.WeakKeyDictionary()
        self._open: weakref.WeakKeyDictionary[Any, tuple[Call, bytes]] = weakref.WeakKeyDictionary()
        self._generations: dict[str, int] = {}
        self.keys: dict[str, tuple[str, str]] = {}
        """Of each process group's name: its key, and what we call it."""
        self.error: BaseException | None = None
        """What a wait has raised."""
        self.waited_in: Call | None = None
        """The call of that wait."""

    def issuing(self, method: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        """A method that issues calls."""

        def issue(group: Any, *args: Any, **kwargs: Any) -> Any:
            noted = None
            try:
                noted = self._note(group, operation, args)
            except MismatchError:
                raise
            except Exception:  # whatever torch's next version changes, the program goes on
                noted = None
            work = method(group, *args, **kwargs)
            if noted is not None and work is not None:
                self._open[work] = noted
            return work

        return issue

    def waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """`Work.wait`."""

        def waiting(work: Any, *args: Any, **kwargs: Any) -> Any:
            noted = self._open.get(work)
            if noted is None:
                return wait(work, *args, **kwargs)
            self._board.begin_wait(self._rank, noted[0].number, noted[1])
            try:
                result = wait(work, *args, **kwargs)
            except Exception as error:
                self.error, self.waited_in = error, noted[0]
                raise
            finally:
                self._board.end_wait(self._rank)
            return result

        return waiting

    def made_calls(self) -> tuple[list[Call], Call | None, float]:
        """`recorded_calls` of all groups of this process, those that only C++ has used as well."""
        with contextlib.suppress(Exception):  # torch's own list, which is not public
            for group in list(c10d._world.pg_map):  # pyright: ignore[reportPrivateUsage]
                self._known(group)
        return recorded_calls(self.keys)

    def _known(self, group: Any) -> _Group:
        known = self._groups.get(group)
        if known is None:
            name = str(group.group_name)
            self._generations[name] = self._generations.get(name, 0) + 1
            known = self._groups[group] = _Group(group, self._generations[name])
            self.keys[name] = known.key, known.name
        return known

    def _note(self, group: Any, operation: Operation, args: tuple[Any, ...]) -> tuple[Call, bytes]:
        known = self._known(group)
        call = self._call(group, known, operation, args)
        packed = call.packed()
        if not call.is_message:
            known.count = call.number
            self._board.note(self._rank, call, packed)
            differing = self._board.differing(self._rank, call)
            if differing:
                self.error = mismatch(call.number, {rank: str(each) for rank, each in differing.items()})
                self.waited_in = call
                raise self.error
        return call, packed

    def _call(self, group: Any, known: _Group, operation: Operation, args: tuple[Any, ...]) -> Call:
        piece, name = piece_of(operation, args), operation.name
        shape, num_bytes, peer = "", -1, peer_of(operation, args)
        if piece is not None:
            shape = f"{str(piece.dtype).removeprefix('torch.')}[{piece.numel()}]"
            num_bytes = piece.numel() * piece.element_size() if _is_even(name, args) else -1
        if name in ("broadcast", "reduce"):
            peer = getattr(args[-1], "rootRank", -1)
        try:
            issued = group._get_sequence_number_for_group()
        except RuntimeError:  # a backend that does not count
            issued = 0
        number = max(known.count + (name not in MESSAGES), issued + 1)
        return Call(known.key, known.name, number, name, shape, num_bytes, peer)


def _is_even(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the pieces of all workers have one size: not where a list of outputs says something else."""
    outputs = args[0] if args else None
    while isinstance(outputs, list) and len(outputs) == 1 and isinstance(outputs[0], list):
        outputs = outputs[0]
    if name != "all_gather" or not isinstance(outputs, list):
        return True
    return len({each.numel() for each in outputs if hasattr(each, "numel")}) <= 1


@contextlib.contextmanager
def watched(reporter: Reporter) -> Generator[None]:
    """Watch the program that runs in the body, and answer the launcher; nothing without a board."""
    board, rank = _opened_board()
    if board is None:
        yield
        return
    for variable in RECORDER_VARIABLES:
        os.environ.setdefault(variable, str(MOST_CALLS))
    worker = Watched(board, rank)
    with ExitStack() as undo:
        replace_methods(undo, worker.issuing)
        replace(undo, dist.Work, "wait", worker.waiting)
        board.end_wait(rank)  # the program begins
        _answer(board, rank, reporter, worker)
        try:
            yield
        except Exception as error:
            made, waited = worker.made_calls()[0], None
            if any(each is worker.error for each in _chain(error)):
                waited = worker.waited_in
            elif made and any("gloo" in str(each) for each in _chain(error)):
                waited = made[-1]  # in C++, where no wait is noted
            if waited is not None:
                reporter.send(kind="waited", call=waited, made=made)
            raise


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what was being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def answering(reporter: Reporter) -> None:
    """Answer the launcher where this worker of a run of ours is; its log gets all stacks."""
    board, rank = _opened_board()
    if board is not None:
        _answer(board, rank, reporter, None)


def _opened_board() -> tuple[Board | None, int]:
    path = os.environ.pop(VARIABLE, "")
    board = Board.open(path, int(os.environ["WORLD_SIZE"])) if path else None
    return board, int(os.environ.get("RANK", "0"))


def _answer(board: Board, rank: int, reporter: Reporter, worker: Watched | None) -> None:
    """Look for requests in a thread: it answers while the main thread waits in torch's C++."""

    def look() -> None:
        answered = 0
        while True:
            time.sleep(LOOK_EVERY_S)
            asked = board.num_asked(rank)
            if asked == answered:
                continue
            answered, stack = asked, stack_of_thread(main_thread())
            calls, waits, age_s = worker.made_calls() if worker is not None else ([], None, 0.0)
            about = {"calls": calls, "waits": waits or meeting(stack), "age_s": age_s}
            reporter.send(kind="where", asked=asked, stack=stack, **about)
            if worker is None:
                with contextlib.suppress(Exception):  # its code may have closed the stream
                    faulthandler.dump_traceback(file=sys.stderr)

    threading.Thread(target=look, name="shoal says where it is", daemon=True).start()
