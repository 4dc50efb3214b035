"""Check a program in the course's form on two nodes: when it averages, where its bottleneck is, what it times."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.program import (
    Run,
    Step,
    end_of,
    gradient_faults,
    loss_faults,
    near,
    not_shown,
    run_program,
    same_losses,
    steps_of,
    stops,
)
from shoal_labs.check.student import code_files, syntax
from shoal_labs.lab2.check.averages import AVERAGES

NODES = 2
MOST_RUNS = 3
SLOW = re.compile(r"bottleneck|slow|delay|straggl|sleep|latency|lag|瓶颈|延迟|慢", re.IGNORECASE)
"""Words by which a flag or a line is known to be about a slow node."""
SLOWS = re.compile(r"sleep|num_threads|\bnice\b|affinity|cpulimit|stress|throttl|subprocess|os\.system")
"""Calls that can make a node slow."""
LIMITED = re.compile(r"\bcpus?\b|cpu_|cpuset|limits:|mem_limit|\btc\b|netem|rate")
"""Settings of containers that make a node slow."""
METHODS = {"all_reduce": r"all_?-?reduce", "all_gather": r"all_?-?gather"}
"""Collectives, and how the values of a flag name them."""
MORE, OFTEN, MORE_S = 1.03, 0.2, 1e-3
"""A node is slower with so many times the calls or samples of another in so many steps, or so many seconds more."""


def train_step_faults(folder: Path) -> list[Fault]:
    """What is wrong with the program: the step, the bottleneck, the times."""
    first = run_program(folder, NODES)
    runs = [first, *(run_program(folder, NODES, flags) for flags in variations(first.options))]
    steps = [[steps_of(node) for node in run.nodes] for run in runs]
    shown = [(run, nodes) for run, nodes in zip(runs, steps, strict=True) if nodes and all(nodes)]
    if not shown or len(shown[0][1]) < NODES:
        return not_shown(first, "optimizer.step()")
    found = [
        *(each for _, nodes in shown for each in exchange_faults(nodes)),
        *(each for run, nodes in shown for each in (*seconds_faults(run, nodes), *timed_faults(nodes))),
        *(each for _, nodes in shown for each in gradient_faults(nodes[0])),
        *(each for _, nodes in shown for each in average_faults(nodes)),
        *(fault("same_samples") for nodes in steps if same_losses(nodes)),
        *loss_faults(runs),
        *branch_faults(folder),
    ]
    bottlenecks = [each for _, nodes in shown for each in bottleneck_seen(nodes)]
    # The first step may have sleeps of the start in it, where nodes wait for each other.
    sleeps = any(step.has("sleep") for own in steps[0] for step in own[1:])
    told = bool(bottlenecks) or sleeps or not (stops(first) or may_be_slow(folder))
    if None not in bottlenecks and told:
        found += [each for each in bottlenecks if each] or [fault("no_bottleneck")]
    if not any(run.stopped for run in runs):
        found += one_method_faults([nodes for _, nodes in shown])
    distinct = {each.key: each for each in reversed(found)}
    return list(distinct.values()) if distinct or told else not_shown(first, "time.sleep")


def variations(options: Sequence[Any]) -> list[dict[str, Any]]:
    """Values of the program's flags to run it with: a slow node, alone and with each method that it offers."""
    chosen: dict[str, Any] = {"switch": True, "int": NODES - 1, "float": 0.05}
    slow = {
        option["name"]: option["choices"][-1] if option["choices"] else chosen[option["kind"]]
        for option in options
        if SLOW.search(option["name"]) and (option["choices"] or option["kind"] in chosen)
    }
    methods = [
        {option["name"]: value}
        for option in options
        for value in option["choices"]
        if value != option["default"] and not SLOW.search(option["name"])
    ]
    return ([slow] if slow else []) + [{**slow, **each} for each in methods[:MOST_RUNS]]


def exchange_faults(nodes: Sequence[Sequence[Step]]) -> list[Fault]:
    """Nodes that begin alike and exchange gradients or parameters have the same parameters at every step."""
    pairs = list(zip(*nodes, strict=False))
    if all(near(pair[0].params, each.params) for pair in pairs for each in pair[1:]):
        return []
    events = [event.kind for steps in nodes for step in steps for event in (*step.before, *step.after)]
    if "collective" not in events:
        return [fault("never_exchanged")]
    if not any(_exchanges(step) for step in nodes[0]) and len(pairs) > 1:
        return [fault("step_before_average")]
    return [] if near(pairs[0][0].params, pairs[0][1].params) else [fault("other_starts")]


def _exchanges(step: Step) -> bool:
    """Whether a collective comes between the last backward pass and the step."""
    return "collective" in step.kinds()[1]


def average_faults(nodes: Sequence[Sequence[Step]]) -> list[Fault]:
    """Gradients that go through the same collective twice, or that nobody waits for.

    The functions that average are checked themselves for waiting, if they have the hand-out's names.
    """
    found: list[Fault] = []
    for step in (step for steps in nodes for step in steps):
        averaging = step.before[len(step.kinds()[0]) :]
        calls = Counter(each.values for each in averaging if each.kind == "collective")
        named = [name for (name, number), times in calls.items() if number >= 0 and times == 2]
        found += [fault("averaged_twice", named=name) for name in named[:1]]
        found += [
            fault("unwaited", place=each.place)
            for each in step.before
            if each.kind == "unwaited" and AVERAGES.keys().isdisjoint(each.values[0])
        ]
    return found


def one_method_faults(runs: Sequence[Sequence[Sequence[Step]]]) -> list[Fault]:
    """A node that is slow with one of the two collectives only: their times cannot be compared."""
    slow = dict[str, bool]()
    for nodes in runs:
        for kind in METHODS:
            # The first step may have sleeps of the start in it, where nodes wait for each other.
            own = [[step for step in steps[1:] if _method(step) == kind] for steps in nodes]
            if all(own):
                slow[kind] = slow.get(kind, False) or bool(bottleneck_seen(own))
    if set(slow.values()) != {True, False}:
        return []
    named, other = sorted(slow, key=lambda kind: not slow[kind])
    return [fault("slow_with_one", named=named, other=other)]


def _method(step: Step) -> str:
    """The collective by which a step exchanges gradients."""
    called = {
        each.values[0].partition("_into")[0]
        for each in step.before[len(step.kinds()[0]) :]
        if each.kind == "collective" and each.values[1] >= 0
    }
    return called.pop() if len(called) == 1 else ""


def bottleneck_seen(nodes: Sequence[Sequence[Step]]) -> list[Fault | None]:
    """Nothing without a bottleneck; else None if it is right, or what is wrong with it."""
    slept = [
        [each for step in steps for each in (*step.before, *step.after) if each.kind == "sleep"]
        for steps in nodes
    ]
    seconds = [sum(each.values[0] for each in own) for own in slept]
    if max(seconds) - min(seconds) > MORE_S:
        slowest = nodes[seconds.index(max(seconds))]
        # Without a loader the end of one step cannot be told from the beginning of the next.
        unknown = not any(step.has("batch", "sleep") for step in slowest)
        return [None if unknown or any(map(_sleeps_before, slowest)) else fault("sleeps_after")]
    totals = [sum(step.seconds for step in steps) for steps in nodes]
    together = list(zip(*nodes, strict=False))
    calls = [[step.calls for step in steps] for steps in together]
    samples = [[step.samples for step in steps] for steps in together]
    uneven = [sum(max(own) > MORE * min(own) for own in each) for each in (calls, samples)]
    often = max(uneven) >= OFTEN * len(together)
    return [None] if often or max(totals) - min(totals) > MORE_S else []


def _sleeps_before(step: Step) -> bool:
    """Whether the node sleeps before the collectives of this step: only then do the others wait for it there."""
    kinds = [each.kind for each in step.before]
    return "sleep" in (kinds[: _exchange(kinds).stop] if "collective" in kinds else kinds)


def _exchange(kinds: Sequence[str]) -> slice:
    """From the first collective to the last."""
    return slice(kinds.index("collective"), end_of("collective", kinds) - 1)


def seconds_faults(run: Run, nodes: Sequence[Sequence[Step]]) -> list[Fault]:
    """Clocks that are read beside the collectives, while the GPU has only queued its work."""
    if not run.events("gpu"):
        return []
    for step in (step for steps in nodes for step in steps):
        _, kinds = step.kinds()
        if "collective" not in kinds:
            continue
        exchange = _exchange(kinds)
        before, after = kinds[: exchange.start], kinds[exchange.stop + 1 :]
        if "clock" in after and "wait" not in after[: after.index("clock")]:
            return [fault("not_synchronised")]
        if "clock" in before and "clock" in after and "wait" not in before[: end_of("clock", before)]:
            return [fault("queue_timed")]
    return []


def timed_faults(nodes: Sequence[Sequence[Step]]) -> list[Fault]:
    """Steps whose clock is read before the backward pass, and then only when the gradients are averaged.

    A reading after the step may be meant for the time of whole steps.
    """
    found = 0
    for step in (step for steps in nodes for step in steps):
        earlier, kinds = (["clock" if kind == "mark" else kind for kind in each] for each in step.kinds())
        if "collective" not in kinds or "batch" not in earlier:
            continue
        exchange, own = _exchange(kinds), earlier[end_of("batch", earlier) :]
        readings = ["clock" in each for each in (own, kinds[: exchange.start], kinds[exchange.stop :])]
        found += readings == [True, False, True]
    return [fault("backward_timed")] if found > 1 else []


def branch_faults(folder: Path) -> list[Fault]:
    """Branches that name one collective and call another: the comparison compares a thing with itself."""
    for path, node in syntax(folder):
        for named, done in _branches(node):
            meant, called = _methods(named), {each for part in done for each in _methods(part)}
            if len(meant) == 1 and len(called) == 1 and meant != called:
                place = f"{path.name}:{done[0].lineno}"
                return [fault("branch", place=place, named=min(meant), called=min(called))]
    return []


def _branches(node: ast.AST) -> list[tuple[ast.AST, list[Any]]]:
    """Conditions with what is done under them, and keys of a table with their values."""
    if isinstance(node, ast.If):
        equal = isinstance(node.test, ast.Compare) and all(isinstance(each, ast.Eq) for each in node.test.ops)
        return [(node.test, list(node.body))] if equal else []
    if isinstance(node, ast.Dict):
        return [(key, [value]) for key, value in zip(node.keys, node.values, strict=True) if key]
    return []


def _methods(tree: ast.AST) -> set[str]:
    """The collectives that strings and names below a node speak of."""
    code = ast.unparse(tree)
    return {kind for kind, pattern in METHODS.items() if re.search(pattern, code, re.IGNORECASE)}


def may_be_slow(folder: Path) -> bool:
    """Whether a node may be slow where no run shows it: in lines that did not run, another program, a container."""
    for path in code_files(folder):
        try:
            code = ast.unparse(ast.parse(path.read_bytes()))  # without comments
        except (SyntaxError, ValueError):
            return True
        if SLOWS.search(code) or (path.name not in ("model.py", "dist_utils.py") and SLOW.search(code)):
            return True
    compose = [
        path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("*.y*ml") if path.is_file()
    ]
    return any(SLOW.search(text) or LIMITED.search(text) for text in compose)
