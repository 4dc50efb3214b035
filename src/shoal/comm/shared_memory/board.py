"""The layout of a shared-memory group's arena: a board per member, slots for data, boxes for messages.

One writer per word, each flag in cache lines of its own: Python has no atomic addition on shared memory,
and two writers in one line would slow each other down.

::

    boards   per member: rounds posted | last progress, wait | state, cause | headers, one per slot | last words
    slots    per member: NUM_SLOTS × SLOT_BYTES, what it contributes to a round
    boxes    per pair (sender, receiver): chunks sent | chunks taken | headers | NUM_BOXES × BOX_BYTES
"""

import time
from typing import final

from shoal.comm.liveness.judge import REASONS, LastWords, still_waits
from shoal.comm.shared_memory.arena import PAGE, Arena, round_up

NUM_SLOTS = 8
SLOT_BYTES = 512 * 1024
"""What one round of a collective carries per member: small enough for the caches of all."""

NUM_BOXES = 4
BOX_BYTES = 256 * 1024
"""What one chunk of a message carries."""

LINE = 16
"""Words between flags: two cache lines, because processors fetch them in pairs."""

BOARD_BYTES = PAGE
CONTROL_BYTES = PAGE
_POSTED, _ALIVE, _STATE, _HEADERS, _TEXT = 0, LINE, 2 * LINE, 3 * LINE, 3 * LINE + 4 * NUM_SLOTS
_TEXT_BYTES = BOARD_BYTES - 8 * _TEXT

ENDED = 1


@final
class ArenaLayout:
    """Where things are in the arena of a group of `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._slots = size * BOARD_BYTES
        self._boxes = self._slots + size * NUM_SLOTS * SLOT_BYTES
        self._box_stride = CONTROL_BYTES + NUM_BOXES * BOX_BYTES
        self.num_bytes = round_up(self._boxes + size * size * self._box_stride, PAGE)

    def slot(self, rank: int, index: int) -> int:
        """The byte where a member's slot begins."""
        return self._slots + (rank * NUM_SLOTS + index) * SLOT_BYTES

    def box_control(self, sender: int, receiver: int) -> int:
        """The word where the control words of a pair begin."""
        return (self._boxes + (sender * self.size + receiver) * self._box_stride) // 8

    def box(self, sender: int, receiver: int, index: int) -> int:
        """The byte where a box of a pair begins."""
        return 8 * self.box_control(sender, receiver) + CONTROL_BYTES + index * BOX_BYTES


@final
class Board:
    """One member's words: all members read them, that member alone writes them."""

    def __init__(self, arena: Arena, rank: int) -> None:
        self.words = arena.words
        self._base = rank * BOARD_BYTES // 8
        self._text = arena.memory[8 * (self._base + _TEXT) : 8 * (self._base + _TEXT) + _TEXT_BYTES].numpy()
        self.posted = self._base + _POSTED
        """The index of the word that counts the rounds this member has posted."""
        self.alive = self._base + _ALIVE
        """The index of the word that holds the time of its last progress, or the end of the work it announced."""

    def header(self, slot: int) -> int:
        """The index of the header of a slot: code, numel, place of the piece, place of the whole."""
        return self._base + _HEADERS + 4 * slot

    def begin(self, stack_descriptor: int) -> None:
        """Report that this member has joined."""
        words = self.words
        words[self._base + _STATE + 1] = stack_descriptor
        words[self.alive] = time.monotonic_ns()

    @property
    def stack_descriptor(self) -> int:
        """Where the member's stacks can be read."""
        return self.words[self._base + _STATE + 1]

    def progress_ns(self) -> int:
        """When the member last made progress, on the machine's monotonic clock; 0 before it has begun."""
        return self.words[self.alive]

    def note_progress(self, time_ns: int) -> None:
        """Set the time of this member's last progress."""
        self.words[self.alive] = time_ns

    def keep_alive(self, time_ns: int) -> None:
        """Move the time of this member's last progress forward, never back."""
        if time_ns > self.words[self.alive]:
            self.words[self.alive] = time_ns

    def note_wait(self, world_rank: int) -> None:
        """Report that this member waits for another one."""
        self.words[self.alive + 1], self.words[self.alive + 2] = world_rank, time.monotonic_ns()

    def waits_for(self) -> int | None:
        """The rank in the world of the member that this one waits for; None if it does not wait."""
        rank, reported_ns = self.words[self.alive + 1], self.words[self.alive + 2]
        return rank if still_waits(reported_ns, self.progress_ns()) else None

    def end(self, error: BaseException | None, world_rank: int) -> None:
        """Report that this member ends, with an error or in good order; of several reports, the first is kept."""
        words, at = self.words, self._base + _STATE
        if words[at] == ENDED:
            return
        last = LastWords.of(error, world_rank)
        text = last.message.encode()[:_TEXT_BYTES]
        self._text[: len(text)] = memoryview(text)
        words[at + 2], words[at + 3], words[at + 4] = last.rank, REASONS.index(last.reason), len(text)
        words[at] = ENDED

    def last_words(self) -> LastWords | None:
        """Why the member has ended, if it reported that."""
        words, at = self.words, self._base + _STATE
        if words[at] != ENDED:
            return None
        message = bytes(self._text[: words[at + 4]]).decode(errors="ignore")
        return LastWords(REASONS[words[at + 3]], words[at + 2], message)
