"""Draw faults and malformed inputs from a seed, cause them, and check what must hold.

    make test-faults                                   all of them, from seed 0
    make test-faults SEED=7                             others
    .venv/bin/python tests/faults/suite.py --seed 0 --only fault:137     one of them again

The same seed and number give the same trial. Moments are drawn, too, but where a process is at that moment may differ.
"""

import argparse
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import sibling_folders  # noqa: F401 (the next imports need it)

# isort: split
from stage import TrialFailedError
from trials import NUM_FAULTS, NUM_INPUTS, Runner, kind_of


def work(seed, folder, trials, results):
    """A process that takes trials until there are no more."""
    # `nohup` and `&` have these ignored, and so would every command that is started from here.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runner = Runner(seed, Path(folder))
    for trial in iter(trials.get, None):
        started = time.monotonic()
        try:
            kind, about, outcome = runner.run(trial)
            results.put((trial, kind, about, outcome, "", time.monotonic() - started))
        except TrialFailedError as error:
            results.put((trial, "", "", "", str(error), time.monotonic() - started))
    runner.close()
    results.put(None)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--faults", type=int, default=NUM_FAULTS, help=f"number of faults (default {NUM_FAULTS})"
    )
    parser.add_argument(
        "--inputs", type=int, default=NUM_INPUTS, help=f"number of inputs (default {NUM_INPUTS})"
    )
    parser.add_argument("--only", action="append", help="fault:N or input:N; may be given several times")
    parser.add_argument("--first", type=int, default=0, help="number of the first fault (default 0)")
    parser.add_argument("--kind", help="only faults of this kind")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time (default 2)")
    given = parser.parse_args()
    numbers = [
        each
        for each in range(given.first, given.faults)
        if given.kind in (None, kind_of(given.seed, each).__name__)
    ]
    trials = given.only or [f"fault:{number}" for number in numbers]
    trials += (
        [f"input:{number}" for number in range(given.inputs)] if not given.only and not given.kind else []
    )
    print(f"{len(trials)} trials of seed {given.seed}", flush=True)
    started, folder = time.monotonic(), tempfile.mkdtemp(prefix="shoal-faults-")
    failures, kinds = run_all(given.seed, folder, trials, min(given.jobs, len(trials)))
    for kind, count in sorted(kinds.items()):
        print(f"  {count:4} {kind}")
    print(f"{len(trials) - len(failures)} of {len(trials)} hold, in {time.monotonic() - started:.0f} s")
    for failure in failures:
        print(f"FAILED {failure.splitlines()[0]}")
    if failures:
        print(f"\nTheir files are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


def run_all(seed, folder, trials, jobs):
    """Run the trials in this many processes; what failed, and how often each kind held."""
    context = multiprocessing.get_context("spawn")  # a forked process would share the parent's torch
    queue, results = context.Queue(), context.Queue()
    for trial in [*trials, *[None] * jobs]:
        queue.put(trial)
    processes = [
        context.Process(target=work, args=(seed, f"{folder}/{job}", queue, results)) for job in range(jobs)
    ]
    for process in processes:
        process.start()
    failures, kinds, open_jobs = [], Counter(), jobs
    while open_jobs:
        result = results.get()
        if result is None:
            open_jobs -= 1
            continue
        trial, kind, about, outcome, failure, seconds = result
        kinds[kind or "failed"] += 1
        if failure:
            failures.append(failure)
        if failure or not trial.startswith("input"):
            print(f"{trial:10} {seconds:5.1f} s  {about or 'FAILED ' + failure}: {outcome}", flush=True)
    for process in processes:
        process.join()
    return failures, kinds


if __name__ == "__main__":
    sys.exit(main())
