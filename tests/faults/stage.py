"""Where one trial takes place: its folder, its processes, and what must hold when it is over.

Commands are forked from an interpreter that has loaded torch (`nursery`), so that a trial takes a second. Each command
is a session of its own and carries the trial's folder in its environment: a process that is left behind is found.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from launching import environment, free_port, rank_of
from nursery import Nursery
from process_table import in_sessions, in_use, read, tagged, working_in

from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.training import checkpoint

LIMIT_S = 120.0
"""A command that has not ended by then hangs; on a busy machine it may need most of that."""
NOISE = ("Traceback (most recent call last)", "terminate called", "GLHF", "Exception raised from", "frame #0")
"""What no user should have to read."""
COMMAND = "import sys\nfrom shoal.cli.entry import main\n{before}\nsys.argv[1:] = {words!r}\nraise SystemExit(main())\n"


class TrialFailedError(AssertionError):
    """Something that must hold does not."""


class Stage:
    """One trial. The nursery and the weights of runs without a fault outlive it."""

    def __init__(self, nursery, folder, faultless):
        self.nursery, self.folder, self._faultless = nursery, folder, faultless
        folder.mkdir(parents=True)
        self.run = folder / "runs" / "run"
        self.proof = folder / "proof"
        self.about = ""
        self.outcome = ""
        """What the trial has seen, in a word."""
        self.may_show_a_traceback = False
        self._programs = {}
        self._others = []
        self._shm = set(os.listdir("/dev/shm"))

    # What a trial does.

    def shoal(self, *words, name="command", before="", **variables):
        """Start a command of shoal."""
        return self.program(
            COMMAND.format(words=[str(word) for word in words], before=before), name, **variables
        )

    def program(self, text, name, **variables):
        """Start a program."""
        variables = {"OWN_SESSION": "1", "TRIAL": str(self.folder), **variables}
        program = self.nursery.start(text, self.folder, name, **variables)
        self._programs[name] = program
        return program

    def real_command(self, *words, **options):
        """Start a command as a user does, with a Python of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal", *map(str, words)],
            env=environment(TRIAL=str(self.folder)),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self._others.append(process)
        return process

    def train(self, world, *more, before="", run=None, **options):
        """Start a run, by hand as many programs, else as one; the options are those of the misbehaving model."""
        run, before = run or self.run, f"{world.before}\n{before}"
        words = [
            "train",
            *world.settings,
            *world.words,
            "--runs-dir",
            run.parent,
            "--name",
            run.name,
            "--quiet",
            *more,
        ]
        for name, value in {"proof": self.proof, **options}.items():
            words += [f"--model.{name}", str(value)]
        if world.launcher != "hand":
            name = "train" if run == self.run else "undisturbed"
            return [self.shoal(*words, name=name, before=before)]
        port = free_port()
        place = ["--world-size", world.size, "--master", f"127.0.0.1:{port}"]
        misleading = {"MASTER_ADDR": "x", "MASTER_PORT": "1", "WORLD_SIZE": "9"}  # flags win over these
        return [
            self.shoal(
                *words,
                *place,
                "--rank",
                rank,
                name=f"rank{rank}",
                before=before,
                RANK=str(rank),
                **misleading,
            )
            for rank in range(world.size)
        ]

    def workers(self, world, programs):
        """The processes of a run by rank, once all are there; a launcher of threads is one process."""
        if world.launcher != "processes":
            return [program.pid for program in programs]

        def found():
            ranks = {}
            for pid in tagged(self.folder):
                if (rank := rank_of(pid)) is not None:
                    ranks.setdefault(rank, pid)
            return [ranks[rank] for rank in sorted(ranks)]

        self.wait_for(
            lambda: len(found()) == world.workers or programs[0].returncode is not None, "the workers"
        )
        return found()

    def wait_for(self, condition, what, within_s=LIMIT_S):
        deadline = time.monotonic() + within_s
        while not condition():
            self.must(time.monotonic() < deadline, f"{what} within {within_s:g} s")
            time.sleep(0.005)

    def wait_for_steps(self, programs):
        """Until the run has saved its first checkpoint, or ended."""
        saved = self.run / "checkpoints"
        self.wait_for(
            lambda: any(saved.glob("step-*[0-9]")) or any(each.returncode is not None for each in programs),
            "a step",
        )

    # What must hold.

    def must(self, holds, what, detail=""):
        if not holds:
            raise TrialFailedError(f"must hold: {what}{f'; {detail}' if detail else ''}")

    def ends(self, program, codes, *patterns, name="", within_s=LIMIT_S):
        """The command ends by itself, with one of these exit codes, and says each of these."""
        deadline = time.monotonic() + within_s
        while program.returncode is None:
            self.must(
                time.monotonic() < deadline,
                f"{name or 'the command'} ends within {within_s:g} s",
                program.said(),
            )
            self.nursery.listen(0.02)
        out, err = program.said()
        codes = codes if isinstance(codes, tuple) else (codes,)
        self.must(
            program.returncode in codes,
            f"exit code {codes}, got {program.returncode}",
            f"said: {err[-1500:]}",
        )
        for pattern in patterns:
            self.must(re.search(pattern, err), f"the sentence /{pattern}/", f"said: {err[-1500:]}")
        if program.returncode == 2:
            self.one_error(err)
        return out, err

    def one_error(self, said):
        found = len(re.findall("^(?:error:|┌── error)", said, re.MULTILINE))
        self.must(found == 1, f"one error, got {found}", said[-1500:])

    def faultless(self, world):
        """The weights of this run without a fault."""
        same = world.undisturbed
        if same not in self._faultless:
            aside = self.folder / "faultless" / "run"
            (program,) = self.train(same, run=aside)
            self.ends(program, 0, name="the run without a fault")
            self._faultless[same] = RunFolder(aside).read_result()["weights_sha256"]
        return self._faultless[same]

    def completed(self, world):
        """The run is over, with the weights of a run without a fault."""
        result = RunFolder(self.run).read_result()
        self.must(result["status"] == "completed", "completed", result)
        self.same_weights(result, world)

    def same_weights(self, result, world):
        if world.is_exact:
            expected, got = self.faultless(world), result["weights_sha256"]
            self.must(got == expected, f"weights {expected[:12]}", got[:12])

    def resumes(self, world, *patterns):
        """From the newest checkpoint the run goes on to the same weights, with every sample once."""
        words, before = world.resumed
        started = "start" in {event["event"] for event in self.events()}
        command = ["train", "--resume", self.run, "--trust-code", "--json", "--quiet", *words]
        resumed = self.shoal(*command, name="resume", before=before)
        if not any((self.run / "checkpoints").glob("step-*[0-9]")):
            self.ends(resumed, 2, "holds no checkpoint|is not a run folder|no run folder|no such|cannot read")
            self.outcome += " before its first checkpoint"
            return
        out, _ = self.ends(resumed, 0, *patterns, name="the resumed run")
        result = json.loads(out.splitlines()[-1])
        self.must(result["status"] == "completed", "the resumed run is completed", result)
        self.must(result["steps"] == world.steps, f"{world.steps} steps", result["steps"])
        self.same_weights(result, world)
        self.whole_folder()
        if started and world.logs_every_step:
            steps = last_attempts(self.events())
            self.must([step for step, _ in steps] == list(range(world.steps)), "every step once", steps)
            samples = sum(count for _, count in steps)
            self.must(samples == world.samples, f"{world.samples} samples, got {samples}")

    def events(self):
        path = RunFolder(self.run).events(0)
        return read_events(path) if path.is_file() else []

    def whole_folder(self):
        """Every checkpoint verifies, and nothing is half-written."""
        for path in sorted((self.run / "checkpoints").glob("step-*")):
            if path.suffix != ".tmp":
                checkpoint.verify(path)
        self.no_temporary_file()

    def no_temporary_file(self):
        """Of a run that has settings: before, its launcher does not know the folder."""
        if not RunFolder(self.run).config.exists():
            return
        left = [str(path.relative_to(self.run)) for path in self.run.rglob("*.tmp")]
        self.must(not left, "no temporary file is left", left)

    def close(self, failed=False):
        """End what is left of the trial, and check that there was nothing to end."""
        try:
            if not failed:
                self._nothing_is_left()
        finally:
            for pid in self.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._others:
                process.wait(10)
                process.stdout.close()
                process.stderr.close()
        if not failed:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _nothing_is_left(self):
        deadline = time.monotonic() + 5
        while (alive := self.alive()) and time.monotonic() < deadline:
            self.nursery.listen(0.02)
        shown = [read(f"/proc/{pid}/cmdline").replace(b"\0", b" ")[-200:] for pid in alive]
        self.must(not alive, "no process is left", f"{alive} {shown}")
        # The suite's own queues, and those of other Python programs, have semaphores there.
        left = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")} - self._shm
        for pause_s in (0.0, 1.0) if left else ():  # others use it, too, and make and remove files as we look
            time.sleep(pause_s)
            left = {name for name in left if os.path.exists(f"/dev/shm/{name}") and not in_use(name)}
        self.must(not left, "nothing is left in /dev/shm", left)
        for name, program in self._programs.items():
            noise = [text for text in NOISE if text in program.said()[1]]
            self.must(
                not noise or self.may_show_a_traceback, f"{name} shows no {noise}", program.said()[1][-3000:]
            )

    def alive(self):
        sessions = [program.pid for program in self._programs.values()]
        sessions += [process.pid for process in self._others]
        return sorted({*in_sessions(sessions), *tagged(self.folder), *working_in(self.folder)})


def new_nursery():
    modules = (
        "shoal.cli.main",
        "shoal.cli.train",
        "shoal.launch.run",
        "shoal.training.reopen",
        "misbehaving",
    )
    # The command sets the level of torch's log itself; here torch is loaded before the command runs.
    return Nursery(environment(TORCH_CPP_LOG_LEVEL="ERROR"), *modules)


def last_attempts(events):
    """(step, samples) of all attempts, less what a later attempt did again."""
    steps = []
    for event in events:
        if event["event"] == "start":
            steps = [entry for entry in steps if entry[0] < event["step"]]
        elif event["event"] == "step":
            steps.append((event["step"], event["samples"]))
    return steps
