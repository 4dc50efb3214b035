"""How long the pages of a very long run take to open, and how much memory: 8 workers, 100,000 steps.

No such run is made: its folder is written with drawn numbers, as a run of `ddp` would have written it. Each view is a
process of its own; its seconds and its largest memory are printed, beside half as many steps: both should be half.

    python bench/long_run.py [--workers 8] [--steps 100000] [--keep FOLDER]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from shoal.config.read import read
from shoal.config.write import sealed, to_toml
from shoal.events.file import Record
from shoal.events.folder import RunFolder, run_id_line, write_whole
from shoal.events.spans import KEPT_EVERY

MOST_S, MOST_MIB = 10.0, 1024
STEP_NS = 20_000_000
RUN_ID = "10c6"
SAMPLES = 64
VIEWS = {
    "shoal report": "import tempfile; from shoal.cli.main import main; "
    "main(['report', sys.argv[1], '--out', tempfile.mkdtemp() + '/page'])",
    "shoal watch": "from shoal.watch.page import LivePage; LivePage(Path(sys.argv[1]), None, 'en').refresh()",
}


def events_of(rank: int, workers: int, steps: int) -> Iterator[Record]:
    """The events of one worker: computing, then an exchange that ends for all at the same time."""
    draw = random.Random(rank)
    clock = {"at_ns": 0, "offset_ns": 0, "error_ns": 0}
    start = {"event": "start", "step": 0, "run_id": RUN_ID, "rank": rank, "time_ns": time.time_ns()}
    yield start | {"total_steps": steps, "strategy": "ddp", "workers": workers, "clock": clock}
    for step in range(steps):
        begin, end = step * STEP_NS, (step + 1) * STEP_NS
        own = begin + int(STEP_NS * draw.uniform(0.6, 0.8))
        record: Record = {"event": "step", "step": step, "epoch": 0, "samples": SAMPLES}
        record |= {"loss": 2.3 / (1 + step / 5000) + draw.gauss(0, 0.05) + 0.2, "lr": 0.002}
        totals = {"data": 200_000, "compute": own - begin - 200_000, "move": end - own}
        record |= {"seconds": end / 1e9, "totals_ns": totals, "blocked_ns": end - own}
        record |= {"sent_bytes": 207640, "mapped_bytes": 0}
        if step % KEPT_EVERY == 0:
            parts = [("batch", "data", begin, begin + 200_000)]
            parts += [("forward", "compute", begin + 200_000, begin + STEP_NS // 4)]
            parts += [("backward", "compute", begin + STEP_NS // 4, own), ("exchange", "move", own, end)]
            rows: list[list[object]] = [
                [name, kind, "main", a, b, 0, "", -1, -1] for name, kind, a, b in parts
            ]
            rows.append(["all_reduce", "move", "main", own, own + 9000, 207640, "world", step, -1])
            rows.append(["all_reduce", "wait", "main", own + 9000, end, 0, "world", step, -1])
            record["spans"] = rows
        yield record
    end_event = {"event": "end", "status": "completed", "step": steps, "time_ns": time.time_ns()}
    yield end_event | {"clock": clock, "not_scheduled": 0.01}


def made(path: Path, workers: int, steps: int) -> Path:
    """The folder of a finished run of so many workers and steps."""
    path.mkdir(parents=True)
    folder = RunFolder(path)
    config = read(None, ["--strategy", "ddp", "--workers", str(workers), "--batch-size", str(SAMPLES)])
    config = replace(config, train=replace(config.train, steps=steps))
    write_whole(folder.config, sealed(run_id_line(RUN_ID) + to_toml(config)))
    for rank in range(workers):
        crc = 0
        with folder.events(rank).open("wb") as file:
            for record in events_of(rank, workers, steps):
                content = json.dumps(record, separators=(",", ":"))[:-1].encode()
                crc = crc32(content, crc)
                file.write(b'%s,"crc":"%08x"}\n' % (content, crc))
    facts = {"status": "completed", "strategy": "ddp", "workers": workers, "rank": 0, "epochs": 1}
    facts |= {"steps": steps, "seconds": steps * STEP_NS / 1e9, "device": "cpu", "bytes_sent": 207640 * steps}
    facts |= {"test_loss": 0.2, "test_accuracy": 0.9, "weights_sha256": "0" * 64, "run_id": RUN_ID}
    folder.write_result(facts)
    return path


def opened(program: str, folder: Path) -> tuple[float, float, float]:
    """Seconds, processor seconds and MiB of a process that opens the folder."""
    began = time.perf_counter()
    words = [sys.executable, "-c", f"import sys; from pathlib import Path; {program}", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"it failed: {program}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> int:
    """Print a line for each view; exit code 1 if one misses its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8, help="workers (default %(default)s)")
    parser.add_argument("--steps", type=int, default=100_000, help="steps (default %(default)s)")
    parser.add_argument("--keep", type=Path, help="make the folders here, and keep them")
    args = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as temporary:
        for steps in (args.steps // 2, args.steps):
            path = (args.keep or Path(temporary)) / f"run-{args.workers}-{steps}"
            folder = path if path.exists() else made(path, args.workers, steps)
            for name, program in VIEWS.items():
                seconds, processor_s, mib = opened(program, folder)
                met = met and seconds <= MOST_S and mib <= MOST_MIB
                took = f"{seconds:.1f} s ({processor_s:.1f} s of a processor), {mib:,.0f} MiB"
                print(f"{name}: {args.workers} workers, {steps:,} steps: {took}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
