"""Event files made by hand: what each worker did in each step, in milliseconds."""

from shoal.events.file import EventFile
from shoal.events.folder import RunFolder, run_id_line

MS = 1_000_000
RUN_ID = "5eed"


def span(name, kind, start, end):
    return [name, kind, "main", round(start * MS), round(end * MS), 0, "", -1, -1]


def call(name, sequence, start, end, issued=None, wait=None, group="world", peer=-1):
    """The two spans of a call; by default the wait begins as soon as the call is issued."""
    issued = start if issued is None else issued
    wait = issued if wait is None else wait
    start, issued, wait, end = (round(moment * MS) for moment in (start, issued, wait, end))
    return [
        [name, "move", "main", start, issued, 100, group, sequence, peer],
        [name, "wait", "main", wait, end, 0, group, sequence, peer],
    ]


def step(number, spans, end_s, kept=True):
    record = {"event": "step", "step": number, "samples": 8, "loss": 1.0, "seconds": end_s}
    return record | {"totals_ns": {}, "blocked_ns": 0} | ({"spans": spans} if kept else {})


def write_steps(folder, *ranks, clock_ms=()):
    """Each rank is a list of records; its clock is ahead of rank 0's by `clock_ms`, and so are its spans."""
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(run_id_line(RUN_ID))
    for rank, records in enumerate(ranks):
        ahead = round(MS * (clock_ms[rank] if clock_ms else 0))
        start = {"event": "start", "step": 0, "run_id": RUN_ID, "rank": rank, "workers": len(ranks)}
        start["clock"] = {"at_ns": 0, "offset_ns": ahead, "error_ns": 5}
        with EventFile(RunFolder(folder).events(rank)) as events:
            for record in [start, *records]:
                shifted = [
                    [*row[:3], row[3] + ahead, row[4] + ahead, *row[5:]] for row in record.get("spans", ())
                ]
                events.append(record | ({"spans": shifted} if "spans" in record else {}))
    return folder


def two_ranks(folder, clock_ms=(0, 0)):
    """Step 2 of 10 ms: rank 1 computes until 8, rank 0 until 5; the sum takes 1 ms, the update another."""

    def records(until):
        spans = [
            span("batch", "data", 0, 1),
            span("backward", "compute", 1, until),
            span("exchange", "move", until, 9.2),
            span("update", "compute", 9.2, 10),
            *call("all_reduce", 7, until, 9),
        ]
        return [step(0, [], 0.5, kept=False), step(1, [], 0.51, kept=False), step(2, spans, 0.52)]

    return write_steps(folder, records(5), records(8), clock_ms=clock_ms)
