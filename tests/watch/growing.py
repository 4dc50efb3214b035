"""A run folder that grows while it is followed: lines with checksums, written one by one."""

import json
import os
import platform
import time
from zlib import crc32

from shoal.config.read import read
from shoal.config.write import sealed, to_toml
from shoal.events.folder import RunFolder, run_id_line
from shoal.events.spans import KEPT_EVERY

RUN_ID, MS = "11fe", 1_000_000


class Growing:
    """The event files of some workers."""

    def __init__(self, path, workers=1, strategy="ddp"):
        path.mkdir(parents=True)
        self.path, self.workers = path, workers
        self._crc = [0] * workers
        config = read(None, ["--strategy", strategy if workers > 1 else "single", "--workers", str(workers)])
        RunFolder(path).config.write_text(sealed(run_id_line(RUN_ID) + to_toml(config)))

    def line(self, rank, record):
        content = json.dumps(record, separators=(",", ":"))[:-1].encode()
        self._crc[rank] = crc32(content, 0 if record["event"] == "start" else self._crc[rank])
        return b'%s,"crc":"%08x"}\n' % (content, self._crc[rank])

    def write(self, rank, *records):
        self.append(rank, b"".join(self.line(rank, record) for record in records))

    def append(self, rank, content):
        with RunFolder(self.path).events(rank).open("ab") as file:
            file.write(content)

    def start(self, rank, step=0, total=100, **more):
        record = {"event": "start", "step": step, "run_id": RUN_ID, "rank": rank, "time_ns": time.time_ns()}
        record |= {"total_steps": total, "workers": self.workers, "pid": os.getpid(), "host": platform.node()}
        return record | {"clock": {"at_ns": 0, "offset_ns": 0, "error_ns": 0}} | more

    def begin(self, **more):
        for rank in range(self.workers):
            self.write(rank, self.start(rank, **more))

    def step(self, rank, number, own_ms=6.0, step_ms=10.0, loss=None):
        """Own work, then an exchange that ends at the end of the step for all, when the slowest has arrived."""
        begin = number * step_ms * MS
        own_ms += 0.05 * (number % 3 - 1)  # times that never vary have no spread, and decide nothing
        own, end = round(begin + own_ms * MS), round(begin + step_ms * MS)
        record = {"event": "step", "step": number, "epoch": 0, "samples": 8}
        record |= {"loss": 2.0 / (1 + number) if loss is None else loss, "lr": 0.1, "seconds": end / 1e9}
        record |= {"totals_ns": {"compute": round(own - begin), "move": end - own}, "blocked_ns": end - own}
        record |= {"sent_bytes": 100, "mapped_bytes": 0}
        if number % KEPT_EVERY == 0:
            rows = [["forward", "compute", "main", round(begin), own, 0, "", -1, -1]]
            rows += [["all_reduce", "move", "main", own, own + 1, 100, "world", number, -1]]
            rows += [["all_reduce", "wait", "main", own + 1, end, 0, "world", number, -1]]
            record["spans"] = rows
        return record

    def steps(self, first, last, own_ms=None):
        """Steps of all workers; `own_ms` are the milliseconds of each worker's own work."""
        for rank in range(self.workers):
            own = (own_ms or [6.0] * self.workers)[rank]
            self.write(rank, *(self.step(rank, number, own) for number in range(first, last)))

    def end(self, status="completed", step=100):
        for rank in range(self.workers):
            self.write(rank, {"event": "end", "status": status, "step": step, "time_ns": time.time_ns()})
