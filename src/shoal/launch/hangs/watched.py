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
from typing import Any, NamedTuple, final

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from shoal.comm.over_torch.torch_calls import Operation, name_of, peer_of, piece_of, replace, replace_methods
from shoal.comm.signature import mismatch
from shoal.errors import MismatchError
from shoal.launch.hangs.board import VARIABLE, Board, checksum
from shoal.launch.hangs.calls import Call
from shoal.launch.hangs.standing import (
    MOST_CALLS,
    RECORDER_VARIABLE,
    Recorded,
    main_thread,
    meeting,
    recorded_calls,
    stack_of_thread,
)
from shoal.launch.reports import Reporter

MOST_KINDS = 4096
LOOK_EVERY_S = 0.2
"""How often a worker looks whether it is asked."""


class _Group:
    """A process group, as it was when it was first used."""

    def __init__(self, group: Any, generation: int, rank: int) -> None:
        self.key, self.name = f"{group.group_name}.{generation}", name_of(group)
        self.checksum = checksum(self.key)
        self.ranks: list[int] = dist.get_process_group_ranks(group)
        place = self.ranks.index(rank)
        self.neighbours = {self.ranks[place - 1], self.ranks[(place + 1) % len(self.ranks)]} - {rank}
        self.messages = 0
        """How many messages torch has counted among the collectives, as it does with gloo."""
        self.counts_messages: bool | None = None
        """Known after the first message."""
        self.issued = -1
        """How many collectives torch had counted before the last one that was noted."""
        self.kinds: dict[tuple[object, ...], tuple[Call, bytes]] = {}
        """Calls that were made before, without their numbers, and packed."""

    def number_before(self, group: Any) -> int:
        """The number of the last collective, counting what C++ has issued."""
        return group._get_sequence_number_for_group() - self.messages

    def count_message(self, group: Any, before: int) -> None:
        """Take note of a message that torch has issued after that collective."""
        if self.counts_messages is None:
            self.counts_messages = self.number_before(group) > before
        self.messages += self.counts_messages


class _Noted(NamedTuple):
    """A call on the board."""

    kind: Call
    number: int
    at: int

    def call(self) -> Call:
        """With its number."""
        return self.kind._replace(number=self.number)


@final
class Watched:
    """The calls of one worker."""

    def __init__(self, board: Board, rank: int) -> None:
        self._board, self._rank = board, rank
        self._groups: weakref.WeakKeyDictionary[Any, _Group] = weakref.WeakKeyDictionary()
        self._open: weakref.WeakKeyDictionary[Any, _Noted] = weakref.WeakKeyDictionary()
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
            try:
                work = method(group, *args, **kwargs)
            except Exception:
                if noted is not None:  # refused: the next call has the same number
                    self._board.withdraw(noted.at)
                    self._groups[group].issued = -1
                raise
            if noted is not None:
                if noted.kind.is_message:
                    self._groups[group].count_message(group, noted.number - 1)
                else:
                    self._board.issued(noted.at, noted.number)
                if work is not None:
                    self._open[work] = noted
            return work

        return issue

    def waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """`Work.wait`."""

        def waiting(work: Any, *args: Any, **kwargs: Any) -> Any:
            noted = self._open.get(work)
            if noted is None:
                return wait(work, *args, **kwargs)
            self._board.begin_wait(self._rank, noted.at)
            try:
                result = wait(work, *args, **kwargs)
            except Exception as error:
                self.error, self.waited_in = error, noted.call()
                raise
            finally:
                self._board.end_wait(self._rank)
            return result

        return waiting

    def made_calls(self) -> Recorded:
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
            known = self._groups[group] = _Group(group, self._generations[name], self._rank)
            self.keys[name] = known.key, known.name
        return known

    def _note(self, group: Any, operation: Operation, args: tuple[Any, ...]) -> _Noted | None:
        """Note a call on the board; raise if a neighbour has noted another one as this collective."""
        known, board = self._known(group), self._board
        call, packed = self._kind(known, operation, args)
        issued = known.number_before(group)
        number = issued + 1
        if call.is_message:
            at = board.message_slot(self._rank)
            board.note(at, number, packed)
            return _Noted(call, number, at)
        if issued == known.issued:  # a backend, or a call, that torch does not count
            return None
        known.issued = issued
        at = board.slot(self._rank, known.checksum, number)
        board.note(at, number, packed)
        board.change(self._rank)
        for other in known.neighbours:
            if board.may_differ(board.slot(other, known.checksum, number), number, packed):
                self._refuse(call._replace(number=number), known, other)
        return _Noted(call, number, at)

    def _refuse(self, call: Call, known: _Group, other: int) -> None:
        differing = self._board.differing(self._rank, call, known.ranks, other)
        if differing:
            self.error = mismatch(call.number, {rank: str(each) for rank, each in differing.items()})
            self.waited_in = call
            # As after a call that torch refuses: a program may catch this, and go on.
            self._board.withdraw(self._board.slot(self._rank, known.checksum, call.number))
            known.issued = -1
            raise self.error

    def _kind(self, known: _Group, operation: Operation, args: tuple[Any, ...]) -> tuple[Call, bytes]:
        """The call without its number, and packed: as many as there are sizes of tensors."""
        piece, name, peer = piece_of(operation, args), operation.name, peer_of(operation, args)
        if name in ("broadcast", "reduce"):
            peer = getattr(args[-1], "rootRank", -1)
        numel, dtype = (0, None) if piece is None else (piece.numel(), piece.dtype)
        is_even = name != "all_gather" or _is_even(args[0])
        kind = name, numel, dtype, peer, is_even
        found = known.kinds.get(kind)
        if found is None:
            shape = f"{str(dtype).removeprefix('torch.')}[{numel}]" if dtype else ""
            num_bytes = numel * dtype.itemsize if dtype and is_even else -1
            call = Call(known.key, known.name, 0, name, shape, num_bytes, peer)
            if len(known.kinds) > MOST_KINDS:
                known.kinds.clear()
            found = known.kinds[kind] = call, call.packed()
        return found


def _is_even(outputs: Any) -> bool:
    """Whether the pieces of an all-gather have one size."""
    while isinstance(outputs, list) and len(outputs) == 1 and isinstance(outputs[0], list):
        outputs = outputs[0]
    return not isinstance(outputs, list) or len({each.numel() for each in outputs}) <= 1


@contextlib.contextmanager
def watched(reporter: Reporter) -> Generator[None]:
    """Watch the program that runs in the body, and answer the launcher; nothing without a board."""
    board, rank = _opened_board()
    if board is None:
        yield
        return
    os.environ.setdefault(RECORDER_VARIABLE, str(MOST_CALLS))
    worker = Watched(board, rank)
    with ExitStack() as undo:
        replace_methods(undo, worker.issuing)
        replace(undo, dist.Work, "wait", worker.waiting)
        board.end_wait(rank)  # the program begins
        _answer(board, rank, reporter, worker)
        try:
            yield
        except Exception as error:
            made, waited = worker.made_calls().calls, None
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
            made = worker.made_calls() if worker is not None else Recorded()
            about = made._replace(waits=made.waits or meeting(stack))._asdict()
            reporter.send(kind="where", asked=asked, stack=stack, **about)
            if worker is None:
                with contextlib.suppress(Exception):  # its code may have closed the stream
                    faulthandler.dump_traceback(file=sys.stderr)

    threading.Thread(target=look, name="shoal says where it is", daemon=True).start()
