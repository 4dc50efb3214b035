"""The picture of a hang: a row for each rank or for ranks in the same place, and short stacks below.

::

    rank 0  waiting 31 s in all_reduce #12 of world, float32[1000]  train.py:41 in step
    rank 1  in no call of a group                                   train.py:77 in validate  ← missing
"""

import os
from collections.abc import Collection, Sequence

from shoal.launch.hangs.judge import ranks_in_words
from shoal.launch.hangs.standing import Place, Standing

MOST_ROWS = 24
MOST_LINES = 30
"""Lines of stacks below the rows."""
MOST_FRAMES = 5
LONGEST_PATH = 36
LONGEST_SOURCE = 70


def picture(standings: Sequence[Standing], guilty: Collection[int] = (), mark: str = "") -> list[str]:
    """The lines of the picture; ranks that do the same in the same place share a row. `mark` is put at the guilty."""
    groups: dict[tuple[object, ...], list[Standing]] = {}
    for each in standings:
        groups.setdefault((each.rank in guilty, _does([each], timed=False), each.place()), []).append(each)
    ordered = sorted(groups.values(), key=lambda group: group[0].rank)
    cells = [
        (ranks_in_words(each.rank for each in group), _does(group), _at(group[0].place()))
        for group in ordered[:MOST_ROWS]
    ]
    widths = [max((len(cell[column]) for cell in cells), default=0) for column in range(3)]
    lines = list[str]()
    for group, cell in zip(ordered, cells, strict=False):
        words = [f"{text:{width}}" for text, width in zip(cell, widths, strict=True)]
        lines.append("  ".join([*words, f"← {mark}" if group[0].rank in guilty else ""]).rstrip())
    if len(ordered) > MOST_ROWS:
        lines.append(f"… {len(ordered) - MOST_ROWS} more places")
    return lines


def _does(group: Sequence[Standing], timed: bool = True) -> str:
    """What ranks do, in words that fit one and several."""
    one, waited_s = group[0], max(each.waited_s for each in group)
    if one.call is not None and one.state == "waits":
        return f"waiting {f'{waited_s:.0f} s ' if timed else ''}in {one.call}"
    if one.call is not None:
        return f"{one.remark or 'no answer, in'} {one.call}"
    is_ours = any("shoal/comm/" in place.path for place in one.stack)
    runs = "in a call of a group" if is_ours else "in no call of a group"
    words = {"runs": runs, "finished": "finished", "silent": "no answer"}
    return one.remark or words.get(one.state, one.state)


def _at(place: Place | None) -> str:
    if place is None:
        return ""
    function = f" in {place.function}" if place.function != "<module>" else ""
    return f"{short(place.path)}:{place.line}{function}"


def short(path: str) -> str:
    """A path below the current folder without it; of a long one the end.

    >>> short("/" + "long/" * 20 + "train.py")
    '…/long/long/long/long/long/train.py'
    """
    here = os.path.relpath(path) if os.path.isabs(path) else path
    path = path if here.startswith("..") else here
    if len(path) <= LONGEST_PATH:
        return path
    parts = path.split("/")
    while len(parts) > 1 and len("/".join(parts)) > LONGEST_PATH - 2:
        parts = parts[1:]
    return "/".join(["…", *parts])


def stacks(standings: Sequence[Standing], guilty: Collection[int] = ()) -> list[str]:
    """The innermost frames of the user's code: of the guilty ranks first, once for ranks with the same."""
    groups: dict[tuple[Place, ...], list[int]] = {}
    for each in sorted(standings, key=lambda one: one.rank not in guilty):
        users = [place for place in each.stack if place.is_users] or list(each.stack)
        frames = tuple(place for place in users[-MOST_FRAMES:] if place.source)
        if frames:
            groups.setdefault(frames, []).append(each.rank)
    lines = list[str]()
    for frames, ranks in groups.items():
        if len(lines) + len(frames) + 1 <= MOST_LINES:
            lines += [f"{ranks_in_words(ranks)}:"]
            lines += [f"    {_at(place)}: {place.source[:LONGEST_SOURCE]}" for place in frames]
    return lines
