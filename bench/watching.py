"""What an open live page costs: processor seconds of a run with `--watch` and a reader, and of the same run without.

The two take turns, in pairs. All processes of the command count: launcher, workers and the page's own. This process
reads the page, as a browser would, and does not count. The seconds of the page's own process alone are printed, too:
they scatter less, but leave out by how much it slows the workers.

    python bench/watching.py [--pairs 15] [--epochs 20] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median

from shoal.report.findings import SPREADS
from shoal.report.paired import typical

AT_MOST = 0.03


def processor_s(folder: Path, epochs: int, own_s: list[float] | None) -> float:
    """Processor seconds of one run of two workers; with `own_s`, a reader follows it, and the page's are appended."""
    words = ["train", "quickstart", "--strategy", "ddp", "--workers", "2", "--epochs", str(epochs)]
    words += ["--runs-dir", str(folder), "--device", "cpu", *["--watch"] * (own_s is not None)]
    command = [sys.executable, "-m", "shoal", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if own_s is not None:
            url = process.stdout.readline().strip()
            threading.Thread(target=_read, args=(url, process.pid, own_s), daemon=True).start()
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the run failed: {' '.join(words)}")
    return usage.ru_utime + usage.ru_stime


def _read(url: str, launcher: int, own_s: list[float]) -> None:
    """Follow the page until it ends."""
    for name in ("", "page.css", "timeline.js", "watch.js", "events"):
        with urllib.request.urlopen(url + name) as answer:
            ends = (line for line in answer if line.startswith(b"event: end"))
            own_s.extend(_of_page(launcher) for _ in ends)


def _of_page(launcher: int) -> float:
    """Processor seconds so far of the launcher's child that serves the page."""
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # other processes end meanwhile
            fields = words.with_name("stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == launcher and "shoal.watch.child" in words.read_text():
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def main() -> int:
    """Print the share; exit code 1 if its interval is not below the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of runs (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of each run (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    shares: list[float] = []
    plain_s, own_s = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as temporary:
        for pair in range(args.pairs):
            order = (False, True) if pair % 2 else (True, False)
            seconds = {
                watch: processor_s(Path(temporary), args.epochs, own_s if watch else None) for watch in order
            }
            plain_s.append(seconds[False])
            shares.append(seconds[True] / seconds[False] - 1)
    found = typical(shares)
    reach = SPREADS * found.spread
    met = found.value + reach <= AT_MOST
    own = median(own_s) / median(plain_s)
    numbers = {
        "own": own,
        "share": found.value,
        "interval": reach,
        "pairs": len(shares),
        "run_s": median(plain_s),
    }
    if args.json:
        print(json.dumps(numbers | {"met": met}))
    else:
        print(
            f"extra processor seconds of an open page: {100 * found.value:.1f} ± {100 * reach:.1f} % of "
            f"{median(plain_s):.1f} s, {len(shares)} pairs; at most {100 * AT_MOST:.0f} %: {met}; "
            f"of the page's own process {100 * own:.1f} %"
        )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
