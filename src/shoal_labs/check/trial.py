"""Try a task: run the student's code on nodes, compare what they saw, and name why a node did not answer."""

import re
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from shoal_labs.check.fault import Check, Fault, fault, from_plain, to_plain
from shoal_labs.check.nodes import Node, Raised, run_nodes

LONGEST_TEXT = 160
POINT_TO_POINT = ("send", "recv", "isend", "irecv")
"""These may differ from node to node."""
OF_THE_OTHERS = ("RuntimeError", "DistBackendError", "DistNetworkError")
"""Errors that a node also raises because another node failed; the cause is then in the other node."""


def faults_of(check: Check, folder: Path) -> list[Fault]:
    """What is wrong with the tasks of a check, given the folder of their file; nothing if they are right."""
    if not in_our_form(check, folder):
        return resolve_name(check.program)(folder) if check.program else [fault("not_in_course")]
    if check.folder:
        return resolve_name(check.folder)(folder, *check.args)
    nodes = run_nodes(
        observed, folder, check.nodes, check.observe, check.nodes > 1, *check.args, meet=check.meet
    )
    if found := failures(nodes):
        return found
    if not check.judge:
        return from_plain(nodes[0].answer)
    seen = (nodes, *check.args) if check.nodes > 1 else (nodes[0].answer,)
    return resolve_name(check.judge)(*seen)


def load(check: Check) -> None:
    """Import everything that the check runs, and torch with it."""
    for name in filter(None, (check.observe, check.judge, check.folder, check.program)):
        resolve_name(name)


def in_our_form(check: Check, folder: Path) -> bool:
    """Whether the folder has the task, or model.py a function of our hand-out; the course's own has neither."""
    named = {check.name or check.tasks[0]}
    return (
        check.course
        or not named.isdisjoint(functions_of(folder / check.file))
        or not functions_of(folder / "model.py").isdisjoint(check.given)
    )


def functions_of(path: Path) -> set[str]:
    """The functions and classes that a file defines, also where it has an error that keeps it from being parsed."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return set(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE))


def observed(rank: int, name: str, ranked: bool, *args: Any) -> Any:
    """What a function of a check returns; faults that it found itself in a form that JSON can represent."""
    answer = resolve_name(name)(*([rank] if ranked else ()), *args)
    is_faults = isinstance(answer, list) and all(isinstance(each, Fault) for each in answer)
    return to_plain(answer) if is_faults else answer


def called(rank: int, module: str, function: str, *args: Any) -> Any:
    """What a function of a module returns."""
    return resolve_name(f"{module}:{function}")(*args)


def failures(nodes: Sequence[Node]) -> list[Fault]:
    """Why some node gave no answer; nothing if all did."""
    raised = [node.raised for node in nodes if node.raised]
    if not raised and not any(node.late or node.died for node in nodes):
        return []
    if own := [_of_an_error(each) for each in raised if each.kind not in OF_THE_OTHERS]:
        return [each for place, each in enumerate(own) if each not in own[:place]]
    if unlike := unlike_calls(nodes):
        return unlike
    if raised:
        return [_of_an_error(raised[0])]
    return [fault("too_long" if any(node.late for node in nodes) else "died")]


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
