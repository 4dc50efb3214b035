"""Faults around a run: bad gradients, a full disk, a deleted folder, workers that do not fit, closed streams.

Each function is a kind of trial. It draws first, then acts, then states what must hold.
"""

import math
import os
import re
import shutil
import signal
import subprocess
import time

from launching import free_port
from process_faults import SLOW
from safetensors.torch import load_file
from worlds import SMALL, STEPS, World, draw_world

from shoal.events.folder import RunFolder
from shoal.training import checkpoint


def bad_gradients(stage, chance):
    """One worker sends NaN, infinity, huge or flipped gradients."""
    kind, policy = chance.choice(["nan", "inf", "huge", "flip", "stale"]), chance.choice(["stop", "skip"])
    exchange = chance.choice(["all_reduce", "all_reduce", "robust:median"])
    world = World("threads", chance.choice(["naive", "ddp"]), "", 3 if exchange.startswith("robust") else 2)
    step, rank = chance.randrange(STEPS - 1), chance.randrange(world.workers)
    stage.about = (
        f"gradient {kind} of rank {rank} from step {step}, {exchange}, on_nonfinite {policy}: {world}"
    )
    (program,) = stage.train(
        world,
        *("--exchange", exchange, "--train.on_nonfinite", policy),
        *("--launch.fault", f"rank={rank},gradient={kind},step={step}"),
    )
    if kind in ("nan", "inf") and exchange == "all_reduce" and policy == "stop":
        _, said = stage.ends(
            program, 2, rf"rank {rank}'s gradient is {kind}\b", "stopped before it reached the weights"
        )
        stage.outcome = "stopped"
        for path in (stage.run / "checkpoints").glob("step-*"):
            stage.must(
                checkpoint.verify(path).progress.step <= step, "no checkpoint after the bad step", path
            )
            finite(stage, path / "rank0.safetensors")
        return
    _, said = stage.ends(program, 0)
    if kind in ("nan", "inf"):
        done = "the exchange leaves it out" if exchange.startswith("robust") else "the step is left out"
        stage.must(re.search(rf"rank {rank}'s gradient is {kind}\b.*{done}", said), f"warned: {done}", said)
    elif kind == "huge" and exchange == "all_reduce":
        stage.must(f"the norm of rank {rank}'s gradient is" in said, "warned of the huge gradient", said)
    finite(stage, stage.run / "model.safetensors")
    stage.outcome = "completed, finite"


def finite(stage, path):
    for name, tensor in load_file(path).items():
        stage.must(
            not tensor.is_floating_point() or tensor.isfinite().all(), f"{name} in {path.name} is finite"
        )


def full_disk(stage, chance):
    """The disk has room for a part of the run: a small file system where the test may mount one, else a file limit."""
    world = draw_world(chance, "threads", "hand", "single")
    kib = chance.choice([0, 4, 8, 16, 24, 32, 48, 64, 96])
    stage.about = f"a disk of {kib} KiB: {world}"
    disk = stage.folder / "runs"
    disk.mkdir()
    size = f"size={kib + 4}k,nr_inodes=200"
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "trial", disk], capture_output=True).returncode
        == 0
    )
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({kib << 10}, {kib << 10}))"
    try:
        programs = stage.train(world, before="" if mounted else limit, slow=SLOW)
        codes = []
        for program in programs:
            _, said = stage.ends(program, (0, 2))
            codes.append(program.returncode)
            if program.returncode and len(programs) == 1:
                stage.must(
                    re.search("No space left|cannot write|cannot save|File too large|os error", said),
                    "why",
                    said,
                )
        stage.outcome = "completed" if not any(codes) else "refused"
        stage.must(any(codes) or kib > 8, "a run does not fit in 8 KiB")
        if any(codes):
            stage.must(not RunFolder(stage.run).result.exists(), "no result of a run that failed")
        else:
            stage.completed(world)
        for path in (stage.run / "checkpoints").glob("step-*"):
            if path.suffix != ".tmp":
                checkpoint.verify(path)
        left = [path.name for path in disk.rglob("*.tmp")]
        stage.must(not left, "no temporary file is left", left)
    finally:
        if mounted:
            shutil.copytree(disk, stage.folder / "copy")
            subprocess.run(["umount", "-l", disk], check=True)
    if mounted and any(codes):
        shutil.rmtree(disk)
        (stage.folder / "copy").rename(disk)  # on a larger disk
        if stage.run.exists():
            stage.resumes(world)


def folder_gone(stage, chance):
    """The run folder is deleted, moved, or replaced by a file while the run is going."""
    world = draw_world(chance, "threads", "hand", "single", "processes")
    how, after_s = chance.choice(["deleted", "moved", "replaced"]), chance.uniform(0, 0.2)
    stage.about = f"the run folder is {how} after {after_s:.3f} s: {world}"
    programs = stage.train(world, slow=SLOW)
    stage.wait_for_steps(programs)
    time.sleep(after_s)
    stage.run.rename(stage.folder / "moved")
    if how == "replaced":
        stage.run.write_text("something else")
    if how == "deleted":
        shutil.rmtree(stage.folder / "moved")
    for program in programs:
        _, said = stage.ends(program, 2)
        stage.must(str(stage.run) in said or "rank 0" in said, "the folder or rank 0 is named", said)
    stage.must(how == "replaced" or not stage.run.exists(), "the folder is not made again")
    stage.must(
        how != "replaced" or stage.run.read_text() == "something else", "what is there now is not touched"
    )
    stage.outcome = "named"


def misfits(stage, chance):
    """Workers started by hand that do not fit together, or do not come."""
    kind = chance.choice(["missing", "no rank 0", "seed", "world size", "strategy", "twice"])
    workers, group = chance.choice([2, 3]), chance.choice(["shm", "gloo"])
    limit = chance.choice([1, 2])
    stage.about = f"{kind}: {workers} workers by hand over {group}"
    port = free_port()
    ranks = [*range(workers)]
    if kind == "missing":
        ranks.remove(chance.randrange(1, workers))
    elif kind == "no rank 0":
        ranks.remove(0)
    elif kind == "twice":
        ranks.append(ranks[-1])
    odd = chance.choice(ranks[1:]) if len(ranks) > 1 else ranks[0]
    programs = []
    for place, rank in enumerate(ranks):
        words = [
            "--strategy",
            "naive",
            "--group",
            group,
            "--rank",
            rank,
            "--master",
            f"127.0.0.1:{port}",
            "--quiet",
        ]
        words += ["--runs-dir", stage.folder / "runs", "--name", "run", "--join-timeout", limit]
        words += ["--seed", "2"] if kind == "seed" and rank == odd else []
        words += ["--strategy", "ddp"] if kind == "strategy" and rank == odd else []
        words += ["--world-size", workers + (kind == "world size" and rank == odd)]
        programs.append(stage.shoal("train", *SMALL, *words, name=f"place{place}"))
    sentences = {
        "missing": r"missing: \d of \d workers joined within|found no store|lost the store",
        "no rank 0": rf"found no store at 127.0.0.1:{port} within {limit} s",
        "seed": r"has (configuration )?.*seed|lost the store",
        "world size": "has world size|lost the store|is missing|are missing",
        "strategy": "has .*(sync|strategy)|lost the store",
        "twice": r"two workers claim rank|lost the store",
    }
    said = [
        stage.ends(program, (0, 2) if kind == "twice" else 2, within_s=limit + 20)[1] for program in programs
    ]
    stage.must(
        any(re.search(sentences[kind].split("|lost")[0], each) for each in said), sentences[kind], said
    )
    stage.must(kind == "twice" or not stage.run.exists(), "nothing is written")
    stage.outcome = "named"


def closed_streams(stage, chance):
    """Standard output or error is full, closed, or a pipe without a reader."""
    world = draw_world(chance, "threads", "single")
    stream, how = chance.choice([1, 2]), chance.choice(["full", "closed", "pipe"])
    stage.about = f"stream {stream} is {how}: {world}"
    before = {
        "full": f"import os; os.dup2(os.open('/dev/full', os.O_WRONLY), {stream})",
        "closed": f"import os; os.close({stream}); sys.{'stdout' if stream == 1 else 'stderr'} = None",
        "pipe": f"import os; r, w = os.pipe(); os.close(r); os.dup2(w, {stream})",
    }[how]
    programs = stage.train(world, before=before)
    stage.ends(programs[0], (0, 2, 141))
    if programs[0].returncode == 0:
        stage.completed(world)
    elif any((stage.run / "checkpoints").glob("step-*[0-9]")):
        stage.resumes(world)
    stage.outcome = f"exit code {programs[0].returncode}"


def exits(stage, chance):
    """A function of the user's own calls sys.exit: while it is built, or in a later step."""
    world = draw_world(chance, "processes", "hand", "threads", "single")
    rank, step = chance.randrange(world.workers), chance.randrange(1, STEPS - 2)
    stage.about = f"sys.exit(0) on rank {rank} at step {step}: {world}"
    programs = stage.train(world, fault="sys.exit", rank=rank, step=step)
    own = programs[rank if world.launcher == "hand" else 0]
    stage.ends(own, 2, r"called sys.exit\(0\)")
    for program in programs:
        stage.ends(program, 2)
    stage.outcome = "named"
    stage.resumes(world)


PROGRAM = """
import os, signal, sys, time, torch, shoal
group = shoal.join(kind={kind!r}, limit_s=3)
total = torch.ones(3)
for step in range(20):
    if group.rank == {rank} and step == {step}:
        {act}
    group.all_reduce(total.fill_(1)).wait()
    assert total.tolist() == [group.size] * 3
    time.sleep(0.01)
group.close()
"""
ACTS = {
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", r"rank {rank} (died|on .* hung up|is gone)"),
    "exception": ("raise LookupError('no such row')", r"rank {rank} failed: LookupError: no such row"),
    "end": ("sys.exit(0)", r"rank {rank} (finished earlier|left)"),
    "stop": ("os.kill(os.getpid(), signal.SIGSTOP)", r"rank {rank} has not reached .*stopped \\(SIGSTOP\\)"),
    "loop": ("exec('while True: time.sleep(0.01)')", r"rank {rank} has not reached .*made no progress"),
    "mismatch": ("total = torch.ones(4)", r"all_reduce"),
    "pause": ("time.sleep(1)", ""),
}


def users_programs(stage, chance):
    """A program of the user's own that calls shoal.join(), with a worker that does not come to a collective."""
    kind, act, size = chance.choice(["shm", "gloo"]), chance.choice([*ACTS]), chance.choice([2, 3])
    rank, step = chance.randrange(size), chance.randrange(20)
    stage.about = f"a program whose rank {rank} of {size} does {act} at call {step}, over {kind}"
    stage.may_show_a_traceback = True  # in a program an error is an exception
    code, sentence = ACTS[act]
    text = PROGRAM.format(kind=kind, rank=rank, step=step, act=code)
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    programs = [stage.program(text, f"program{each}", RANK=str(each), **place) for each in range(size)]
    for each, program in enumerate(programs):
        if act == "pause":
            stage.ends(program, 0)
        elif each != rank or act == "mismatch":
            stage.ends(program, 1, sentence.format(rank=rank).replace("\\\\", "\\"))
    if act in ("stop", "loop"):
        os.kill(programs[rank].pid, signal.SIGKILL)
    stage.outcome = "completed" if act == "pause" else "named"
    stage.must(math.isfinite(step), "")
