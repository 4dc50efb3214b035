"""Compares the program, run again as a world of one on the workers' joined batches, with their records.

Every step starts from rank 0's recorded state, and every update from rank 0's recorded gradient once that has been
compared: so a difference belongs to one phase of one step, and roundings do not add up over steps.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shoal.comm.over_torch.torch_calls import first_tensor
from shoal.verify.batches import joined
from shoal.verify.finding import Finding, Outcome, Phase
from shoal.verify.gradients import Case, Side, explained, own_only
from shoal.verify.loading import judged, padding
from shoal.verify.optimizers import groups_of, settings_apart, settings_of, state_of
from shoal.verify.recorder import batch_file, compute_type, rows_of, special
from shoal.verify.rounding import apart, of_sums, of_update
from shoal.verify.seen import Enough, Steps, seen
from shoal.verify.store import Facts, Step, dense, read

COMPARABLE = "--comparable turns dropout off and lets BatchNorm use its running statistics, in both."


class Reference(Steps):
    """One machine, beside the records of several."""

    def __init__(self, folder: Path, workers: int, comparable: bool = False) -> None:
        super().__init__(comparable)
        self._folder = folder
        self._ranks = [read(folder, rank) for rank in range(workers)]
        self.outcome = Outcome(workers, notes=padding(self._ranks))
        self._data = judged(self._ranks)
        self._before: list[dict[str, Tensor]] = [{} for _ in self._ranks]
        self._held: Finding | None = None
        """A wrong gradient that counts only if the parameters differ, too: the workers may average these."""
        self._exact = True
        """Whether the last update had the workers' gradient."""
        self._exchanged: dict[str, Tensor] = {}
        """The gradients of this step as a wrapper left them after backward; none without a wrapper."""
        self._rows = 0
        self._order: list[list[int]] = []
        """Where each worker's samples are in one machine's batch."""
        self._dtype = "float32"
        self._repeats = False
        self._closed = -1

    def _records(self, step: int) -> list[Step] | None:
        """What all workers recorded in a step; None if one has ended before."""
        if any(len(steps) <= step for steps in self._ranks):
            return None
        return [steps[step] for steps in self._ranks]

    def _stop(self, finding: Finding) -> None:
        self.outcome.finding = finding
        raise Enough

    def _found(
        self, phase: Phase, rank: int | None, tensor: str, size: float, limit: float, cause: str, *why: str
    ) -> None:
        self._stop(Finding(self.step, phase, rank, tensor, size, limit, cause, why))

    # The state before a step.

    def begins(self, names: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Compare the state before the step, which the step before left, and take rank 0's."""
        records = self._records(self.step)
        if records is None or not any(record.names("param") for record in records):
            raise Enough
        if self._data and self._data.step <= self.step:
            self._stop(self._data)
        self._compare_state(records, names, buffers)
        if not all(record.notes("begin") for record in records):
            self._uneven(records)
        for kind, tensors in (("param", names), ("buffer", buffers)):
            for name, tensor in tensors.items():
                _take(tensor, records[0].get(f"{kind}/{name}"))

    def _uneven(self, records: Sequence[Step]) -> None:
        """Some worker has made its last step."""
        going = [bool(record.notes("begin")) for record in records]
        if any(going):
            rank = going.index(False)
            cause = f"rank {rank} has made its last step, and rank {going.index(True)} makes another one"
            self._found("data", rank, "steps", 1.0, 0.0, cause)
        raise Enough

    def _compare_state(
        self, records: Sequence[Step], names: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
    ) -> None:
        if not self.step:
            self._compare_start(records, {**names, **buffers})
            return
        for kind, tensors in (("param", names), ("buffer", buffers)):
            for name, tensor in tensors.items():
                expected, found = dense(tensor), [record.get(f"{kind}/{name}") for record in records]
                sizes = [float("inf") if each is None else apart(each, expected) for each in found]
                limit = self._limit() if kind == "buffer" or not self._exact else of_update(tensor.dtype)
                if max(sizes) > limit:
                    self._left_wrong(kind, name, sizes, limit)
        self.outcome.steps = self.step
        self._held = None

    def _left_wrong(self, kind: str, name: str, sizes: Sequence[float], limit: float) -> None:
        """The step before left another state."""
        if self._held:
            self._stop(self._held)
        wrong = [rank for rank, size in enumerate(sizes) if size > limit]
        only = None if len(wrong) == len(sizes) else wrong[0]
        who = "every worker" if only is None else f"rank {only}"
        steps, phase, why = (
            self._ranks[wrong[0]],
            "update",
            "The gradients and the optimizer's settings were equal.",
        )
        before, after = (steps[number].get(f"{kind}/{name}") for number in (self.step - 1, self.step))
        if kind == "buffer":
            phase, why = (
                "forward",
                "Buffers are not exchanged; average them, or let rank 0 broadcast its own.",
            )
            cause = f"{who} has another value of this buffer: it is computed from the worker's own samples"
        elif before is not None and after is not None and torch.equal(before, after):
            cause = f"after the update of {who}, this parameter is as it was before"
        else:
            cause = f"the same gradient leads {who} to another parameter: something else changes it"
        self._stop(Finding(self.step - 1, phase, only, name, max(sizes), limit, cause, [why]))

    def _compare_start(self, records: Sequence[Step], tensors: Mapping[str, Tensor]) -> None:
        for name in tensors:
            first = next(
                (t for k in ("param", "buffer") if (t := records[0].get(f"{k}/{name}")) is not None), None
            )
            for rank, record in enumerate(records[1:], 1):
                mine = next(
                    (t for k in ("param", "buffer") if (t := record.get(f"{k}/{name}")) is not None), None
                )
                if first is None or mine is None or not torch.equal(first, mine):
                    size = float("inf") if first is None or mine is None else apart(mine, first)
                    cause = f"rank {rank} starts from other values than rank 0"
                    why = "Broadcast rank 0's, or draw them from one seed on all workers."
                    self._found("start", rank, name, size, 0.0, cause, why)

    # Batches.

    def batch(self, loader: int, number: int, iterator: Any, load: Callable[[], Any]) -> Any:
        """The workers' batches, joined; the loader itself is not asked."""
        del iterator, load
        place = self.drawn[loader]
        files = [batch_file(self._folder, rank, loader, number, place) for rank in range(len(self._ranks))]
        # Written by the workers into a folder of this user alone.
        found = [torch.load(file, weights_only=False) for file in files if file.exists()]
        if not found:
            raise StopIteration
        return joined(found)

    def length(self, loader: int, count: Callable[[], int]) -> int:
        """As many batches as the workers have."""
        for step in self._ranks[0]:
            for facts in step.notes("length"):
                if facts["loader"] == loader:
                    return facts["length"]
        return count()

    # Forward.

    def forward(self, model: nn.Module, inputs: Tensor | None, output: Any, is_random: bool) -> None:
        """Compare what enters the model and what leaves it, sample by sample."""
        records = self._records(self.step)
        assert records is not None
        sides = [each[self.forwards] for r in records if len(each := r.notes("forward")) > self.forwards]
        if len(sides) < len(records):
            short = next(r for r, each in enumerate(records) if len(each.notes("forward")) <= self.forwards)
            cause = f"rank {short} makes {len(records[short].notes('forward'))} forward passes in this step"
            self._found("data", short, "samples", 1.0, 0.0, cause, "One machine makes more of them.")
        rows, theirs = rows_of(inputs), [row for side in sides for row in side["rows"]]
        is_repeated = len(sides) > 1 and all(rows and sorted(s["rows"]) == sorted(rows) for s in sides)
        if is_repeated:
            self._note_repeated()
        elif sorted(rows) != sorted(theirs):
            self._other_samples(rows, sides)
        self._rows += len(rows)
        found = first_tensor(output)
        self._dtype = compute_type(found)
        if rows:
            self._order = [] if is_repeated else _order(rows, sides)
        if found is not None and found.ndim and len(found) == sum(map(len, self._order)):
            self._compare_outputs(model, dense(found), is_random)

    def _note_repeated(self) -> None:
        """Every worker has one machine's samples: nothing is divided, and all of them should compute the same."""
        if not self._repeats:
            self._repeats = True
            self.outcome.notes.append(
                f"Step {self.step}: every worker computes all of one machine's samples."
            )

    def _other_samples(self, rows: Sequence[str], sides: Sequence[Facts]) -> None:
        """The program alone has other samples."""
        seen: dict[str, int] = {}
        known = set(rows)
        for rank, side in enumerate(sides):
            for row in side["rows"]:
                if seen.setdefault(row, rank) != rank:
                    size = len(set(rows) - {row for each in sides for row in each["rows"]}) / max(
                        len(rows), 1
                    )
                    cause = f"rank {rank} has a sample that rank {seen[row]} has, too"
                    why = f"{100 * size:.0f} % of one machine's samples are with no worker in this step."
                    self._found("data", rank, "samples", size, 0.0, cause, why)
        strange = [
            sum(row not in known for row in side["rows"]) / max(len(side["rows"]), 1) for side in sides
        ]
        rank = max(range(len(sides)), key=strange.__getitem__)
        alone = {row for each in sides for row in each["rows"]}
        size = len(known - alone) / max(len(known), 1)
        cause = f"together, the workers have other samples than one machine: rank {rank} has most of them"
        why = f"{100 * strange[rank]:.0f} % of rank {rank}'s samples are not one machine's."
        more = "Batches that each worker draws of its own are joined only if they come from a DataLoader."
        self._stop(Finding(self.step, "data", rank, "samples", size, 0.0, cause, [why, more], False))

    def _compare_outputs(self, model: nn.Module, output: Tensor, is_random: bool) -> None:
        records = self._records(self.step)
        assert records is not None
        sizes: dict[int, float] = {}
        scale = float(output.double().abs().max()) if output.numel() else 0.0
        for rank, record in enumerate(records):
            mine, expected = record.get(f"output/{self.forwards}"), output[self._order[rank]]
            sizes[rank] = float("inf") if mine is None else apart(mine, expected, scale)
        rank = max(sizes, key=sizes.__getitem__)
        if sizes[rank] <= self._limit():
            return
        names = special(model)
        only = rank if sum(size > self._limit() for size in sizes.values()) == 1 else None
        cause, why = f"the model computes other outputs for the same samples on rank {rank}", list[str]()
        comparable = not (names or is_random)
        states = {record.notes("begin")[0]["random"] for record in records}
        if is_random and len(states) == 1 and len(records) > 1:
            cause = "all workers draw the same random numbers: their dropout masks are alike"
            why = ["The random state is the same on all ranks when the step begins.", *_listed(names)]
            comparable = True
        elif not comparable:
            cause = (
                "the model draws random numbers" if is_random else "BatchNorm uses each worker's own samples"
            )
            why = [*_listed(names), COMPARABLE]
        found = Finding(
            self.step, "forward", only, "output", sizes[rank], self._limit(), cause, why, comparable
        )
        self._stop(found)

    def _limit(self) -> float:
        terms = self._rows + max((p.numel() // len(p) for p in self.tensors.values() if p.ndim), default=1)
        return of_sums(self._dtype, terms, max(len(self.tensors), 1))

    # Update.

    def exchanged(self, grads: Mapping[str, Tensor]) -> None:
        """Keep them until the update."""
        self._exchanged = {name: dense(gradient).clone() for name, gradient in grads.items()}

    def updates(self, optimizer: Any) -> None:
        """Compare the settings and the gradients of an update, and take rank 0's gradients."""
        records = self._records(self.step)
        assert records is not None
        held = {id(param) for group in groups_of(optimizer) for param in group["params"]}
        mine = settings_of(optimizer, held, self.tensors)
        if found := settings_apart(self.step, mine, records, self.backwards):
            self._stop(found)
        expected = {name: dense(gradient) for name, gradient in self.grads(held).items()}
        sides = [self._side(rank, record) for rank, record in enumerate(records)]
        grads = [side.grads for side in sides]
        wrong = self._wrong(expected, sides, grads)
        self._exact = not wrong and all(_same_bits(grads[0], each) for each in grads[1:])
        params = {name: dense(self.tensors[name]) for name in expected}
        exchanged = self._exchanged
        if wrong and self._wrong(exchanged, sides, [side.exchanged for side in sides]):
            exchanged = {}
        case = Case(self.step, expected, sides, params, wrong, self._limit(), exchanged)
        if wrong and len(wrong) and own_only(case):
            self._held = explained(case)
        elif wrong:
            self._stop(explained(case))
        if self._exact:
            for name, gradient in grads[0].items():
                _take(self.tensors[name].grad, gradient)
        self._before = [dict(each) for each in grads]
        self._exchanged = {}

    def _side(self, rank: int, record: Step) -> Side:
        parts: dict[int, dict[str, Tensor]] = {}
        for name in record.names("local"):
            number, _, param = name.partition("/")
            tensor = record.get(f"local/{name}")
            assert tensor is not None
            mine = parts.setdefault(int(number), {})
            mine[param] = mine[param] + tensor if param in mine else tensor
        rows = [facts["rows"] for facts in record.notes("backward")]
        own = [parts[number] for number in sorted(parts)]
        return Side(record.all("grad"), own, rows, self._before[rank], record.all("exchanged"))

    def _wrong(
        self, expected: Mapping[str, Tensor], sides: Sequence[Side], grads: Sequence[Mapping[str, Tensor]]
    ) -> dict[int, dict[str, float]]:
        """The gradients that differ by more than rounding, by worker."""
        wrong: dict[int, dict[str, float]] = {}
        for name, tensor in expected.items():
            own = [part[name] for side in sides for part in side.parts if name in part]
            scale = sum(float(part.abs().max()) for part in own if part.numel()) / len(sides)
            for rank, mine in enumerate(grads):
                found = mine.get(name, torch.zeros_like(tensor))
                size = apart(found, tensor, scale)
                if size > self._limit():
                    wrong.setdefault(rank, {})[name] = size
        return wrong

    def updated(self, optimizer: Any) -> None:
        """Compare the optimizer's state, and take rank 0's."""
        records = self._records(self.step)
        assert records is not None
        for key, tensor in state_of(optimizer, self.tensors).items():
            expected = dense(tensor)
            for rank, record in enumerate(records):
                found = record.get(f"state/{key}")
                limit = of_update(tensor.dtype) if self._exact else self._limit()
                if found is not None and not self._held and (size := apart(found, expected)) > limit:
                    cause = f"the same gradient leads rank {rank} to another optimizer state"
                    why = "The gradients and the optimizer's settings were equal."
                    self._found("update", rank, key, size, limit, cause, why)
            if not self._held:
                _take(tensor, records[0].get(f"state/{key}"))
        self._rows = 0

    def closes(self) -> None:
        """Compare the state after the last step, where the program has ended."""
        records = self._records(self.step)
        if records and self.step and not self._began and self._closed != self.step:
            self._compare_state(records, self.tensors, self.buffers)
            self._closed = self.step

    def finish(self) -> None:
        """End the comparison."""
        self.closes()
        if self._data:
            self._stop(self._data)


def _order(rows: Sequence[str], sides: Sequence[Facts]) -> list[list[int]]:
    places: defaultdict[str, deque[int]] = defaultdict(deque)
    for place, row in enumerate(rows):
        places[row].append(place)
    return [[places[row].popleft() for row in side["rows"]] for side in sides]


def _take(tensor: Any, recorded: Tensor | None) -> None:
    """Overwrite a tensor; a shard of a world of one is whole."""
    if tensor is not None and recorded is not None:
        tensor = tensor.detach()
        with torch.no_grad():
            (tensor.to_local() if hasattr(tensor, "to_local") else tensor).copy_(recorded)


def _same_bits(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def _listed(names: Sequence[str]) -> list[str]:
    return [f"Modules: {', '.join(names[:3])}{' …' * (len(names) > 3)}."] if names else []


@contextmanager
def compared(folder: Path, workers: int, comparable: bool = False) -> Generator[Outcome]:
    """Compare the program in the body, a world of one, with the records of its workers."""
    reference = Reference(folder, workers, comparable)
    with suppress(Enough):
        with seen(reference):
            try:
                yield reference.outcome
            except SystemExit as error:
                if error.code:
                    raise
        reference.finish()
