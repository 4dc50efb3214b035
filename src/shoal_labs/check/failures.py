"""Why a node did not answer: a task not done, an error, or nodes whose calls differ."""

from collections.abc import Iterable, Sequence

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.nodes import Node, Raised

LONGEST_TEXT = 160
POINT_TO_POINT = ("send", "recv", "isend", "irecv")
"""These may differ from node to node."""
OF_THE_OTHERS = ("RuntimeError", "DistBackendError", "DistNetworkError")
"""Errors that a node also raises because another node failed; the cause is then in the other node."""


def failures(nodes: Sequence[Node]) -> list[Fault]:
    """Why some node gave no answer; nothing if all did."""
    raised = [node.raised for node in nodes if node.raised]
    if not raised and not any(node.late or node.died for node in nodes):
        return []
    own = [each for each in raised if each.kind not in OF_THE_OTHERS]
    if own:
        return _distinct(map(_of_an_error, own))
    unlike = unlike_calls(nodes)
    if unlike:
        return unlike
    if raised:
        return [_of_an_error(raised[0])]
    return [fault("too_long" if any(node.late for node in nodes) else "died")]


def _distinct(faults: Iterable[Fault]) -> list[Fault]:
    kept: list[Fault] = []
    for each in faults:
        if each not in kept:
            kept.append(each)
    return kept


def unlike_calls(nodes: Sequence[Node]) -> list[Fault]:
    """The first call in which the nodes' collectives differ; such nodes wait, or add tensors that do not match."""
    lists = [[call for call in node.calls if call.partition("(")[0] not in POINT_TO_POINT] for node in nodes]
    for rank, calls in enumerate(lists[1:], start=1):
        for count, (first, other) in enumerate(zip(lists[0], calls, strict=False), start=1):
            if first != other:
                return [fault("order", call=count, first=first, rank=rank, other=other)]
        if len(calls) != len(lists[0]):
            return [fault("count", first=len(lists[0]), rank=rank, other=len(calls))]
    return []


def _of_an_error(raised: Raised) -> Fault:
    text = raised.text if len(raised.text) <= LONGEST_TEXT else f"{raised.text[:LONGEST_TEXT]}…"
    if raised.kind == "NotWrittenError":
        file, _, name = raised.text.partition(" ")
        return fault("missing_name", file=file, name=name)
    if raised.kind == "NotImplementedError":
        return fault("not_done", functions=raised.functions)
    if raised.kind == "ModuleNotFoundError" and not raised.place:
        return fault("no_file", text=text)
    if raised.kind in OF_THE_OTHERS and "gloo" in raised.text:
        return fault("waits", place=raised.place or "?")
    where = f" ({raised.place})" if raised.place else ""
    error = f"{raised.kind}: {text}{where}" if text else f"{raised.kind}{where}"
    return fault("raises", error=error, functions=raised.functions)
