"""Faults of processes and connections: killed, stopped, looping, signalled, cut off, disturbed by strangers.

Each function is a kind of trial. It draws first, then acts, then states what must hold.
"""

import os
import signal
import socket
import time

from process_table import read
from stage import LIMIT_S
from worlds import STEPS, draw_world

DEATHS = {"SIGKILL": 137, "SIGSEGV": 139, "exit": 3, "fork": 137}
SLOW = 0.02


def dies(stage, chance):
    """A worker dies in the middle of a step."""
    world = draw_world(chance, "processes", "hand", "hand")
    fault, rank, step = (
        chance.choice([*DEATHS]),
        chance.randrange(world.workers),
        chance.randrange(1, STEPS - 2),
    )
    stage.about = f"{fault} of rank {rank} at step {step}: {world}"
    programs = stage.train(world, fault=fault, rank=rank, step=step)
    if world.launcher == "processes":
        named = (
            f"rank {rank} of 2 exited with code 3" if fault == "exit" else f"rank {rank} of 2 was killed by"
        )
        stage.ends(programs[0], DEATHS[fault], named)
    else:
        code = DEATHS[fault]
        stage.ends(programs[rank], code if code < 128 else 128 - code, name=f"rank {rank}")
        for other in range(world.workers):
            if other != rank:
                stage.ends(
                    programs[other], 2, f"rank {rank} (died|on .* hung up|is gone)", name=f"rank {other}"
                )
        kill_children(stage)
    stage.must(stage.proof.exists(), "the fault has happened")
    stage.outcome = "named"
    stage.resumes(world)


def kill_children(stage):
    """A worker that the user started has no launcher that would end what it has forked."""
    for pid in stage.alive():
        os.kill(pid, signal.SIGKILL)


def raises(stage, chance):
    """An exception in the user's code."""
    world = draw_world(chance, "processes", "hand", "threads", "single")
    rank, step = chance.randrange(world.workers), chance.randrange(1, STEPS - 2)
    stage.about = f"an exception on rank {rank} at step {step}: {world}"
    stage.may_show_a_traceback = True  # it is the user's
    programs = stage.train(world, fault="raise", rank=rank, step=step)
    if world.launcher == "hand":
        for other, program in enumerate(programs):
            if other != rank:
                stage.ends(program, 2, f"rank {rank} failed: ValueError: no such column: Größe")
    own = programs[rank if world.launcher == "hand" else 0]
    stage.ends(own, 1, "ValueError: no such column: Größe")
    stage.must(stage.proof.exists(), "the fault has happened")
    stage.outcome = "named"
    stage.resumes(world)


def killed_at_any_moment(stage, chance):
    """SIGKILL of a worker or of the launcher, at a moment of the clock."""
    world = draw_world(chance, "processes", "hand", "threads", "single")
    victim = chance.choice(["launcher", *range(world.workers)]) if world.launcher == "processes" else 0
    victim = chance.randrange(world.workers) if world.launcher == "hand" else victim
    after_s = chance.uniform(0, 0.6)
    stage.about = (
        f"SIGKILL of {victim if victim == 'launcher' else f'rank {victim}'} after {after_s:.3f} s: {world}"
    )
    programs = stage.train(world, slow=SLOW)
    stage.wait_for_steps(programs)
    workers = stage.workers(world, programs)
    time.sleep(after_s)
    own = programs[victim if world.launcher == "hand" else 0]
    of_worker = world.launcher == "processes" and victim != "launcher" and victim < len(workers)
    pid = workers[victim] if of_worker else own.pid  # the launcher's, if its workers have ended already
    alive = own.returncode is None and read(f"/proc/{pid}/stat")
    if alive:
        os.kill(pid, signal.SIGKILL)
    if pid == own.pid:
        stage.ends(own, (-signal.SIGKILL, 0))
    else:
        stage.ends(own, (137, 0))
    for program in programs:
        if program is not own:
            stage.ends(program, (2, 0))
    stage.outcome = "killed" if own.returncode else "too late"
    if own.returncode == 0:
        stage.completed(world)
    else:
        stage.resumes(world)


def killed_while_saving(stage, chance):
    """SIGKILL while a checkpoint is being written."""
    world = draw_world(chance, "hand", "threads", "single")
    number, spin = chance.randrange(1, STEPS), chance.randrange(3000)
    stage.about = f"SIGKILL of rank 0 inside checkpoint {number}: {world}"
    programs = stage.train(world, "--checkpoint-every", "1", "--checkpoint.keep", "2")
    saving = stage.run / "checkpoints" / f"step-{number:06d}.tmp"
    stage.wait_for(lambda: programs[0].returncode is not None or number_of(saving) >= number, "a checkpoint")
    for _ in range(spin):
        pass
    if programs[0].returncode is None:
        os.kill(programs[0].pid, signal.SIGKILL)
    for program in programs:
        stage.ends(program, (-signal.SIGKILL, 2, 0))
    stage.outcome = "half-written" if any(stage.run.rglob("*.tmp")) else "killed"
    stage.resumes(world)


def number_of(path):
    names = os.listdir(path.parent) if path.parent.exists() else []
    return max((int(name[5:11]) for name in names if name.startswith("step-")), default=0)


def stopped_and_continued(stage, chance):
    """SIGSTOP of a worker for a while."""
    world = draw_world(chance, "processes", "hand", "threads")
    rank, after_s, for_s = chance.randrange(world.workers), chance.uniform(0, 0.4), chance.uniform(0.05, 1.5)
    stage.about = f"rank {rank} stopped for {for_s:.2f} s: {world}"
    programs = stage.train(world, slow=SLOW)
    stage.wait_for_steps(programs)
    pid = (stage.workers(world, programs) * world.workers)[rank]
    time.sleep(after_s)
    if read(f"/proc/{pid}/stat"):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
        os.kill(pid, signal.SIGCONT)
    for program in programs:
        stage.ends(program, 0)
    stage.completed(world)
    stage.outcome = "completed"


def stopped_for_good(stage, chance):
    """SIGSTOP of a worker for ever, with a limit of 2 s."""
    world = draw_world(chance, "processes", "hand", "hand")
    rank, step = chance.randrange(world.workers), chance.randrange(1, STEPS - 2)
    stage.about = f"rank {rank} stops for ever at step {step}: {world}"
    programs = stage.train(world, "--launch.timeout", "2", fault="stop", rank=rank, step=step)
    if world.launcher == "processes":
        stage.ends(programs[0], 2, rf"rank {rank} .*stopped \(SIGSTOP\)")
    else:
        for other, program in enumerate(programs):
            if other != rank:
                stage.ends(program, 2, rf"rank {rank} has not reached .*it is stopped \(SIGSTOP\)")
        os.kill(programs[rank].pid, signal.SIGKILL)
    stage.must(stage.proof.exists(), "the fault has happened")
    stage.outcome = "named"
    stage.resumes(world)


def loops(stage, chance):
    """A worker in an infinite loop, with a limit of 2 s."""
    world = draw_world(chance, "processes", "hand", "threads")
    rank, step = chance.randrange(world.workers), chance.randrange(1, STEPS - 2)
    stage.about = f"rank {rank} loops at step {step}: {world}"
    programs = stage.train(world, "--launch.timeout", "2", fault="loop", rank=rank, step=step)
    sentence = rf"rank {rank} has not reached .*alive, but has made no progress for"
    if world.launcher == "hand":
        for other, program in enumerate(programs):
            if other != rank:
                stage.ends(program, 2, sentence, "SHOAL_TIMEOUT_S", "in loop_for_ever")
        os.kill(programs[rank].pid, signal.SIGKILL)
    else:
        stage.ends(programs[0], 2, sentence, "SHOAL_TIMEOUT_S", "in loop_for_ever")
    stage.must(stage.proof.exists(), "the fault has happened")
    stage.outcome = "named"
    stage.resumes(world)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signalled(stage, chance):
    """One signal that asks the run to stop; sometimes a second one."""
    world = draw_world(chance, "processes", "hand", "threads", "single")
    number, after_s, rank = chance.choice(SIGNALS), chance.uniform(0, 0.5), chance.randrange(world.workers)
    again = chance.choice([None, None, chance.uniform(0, 0.05)])
    twice = "" if again is None else f" and again after {again:.3f} s"
    stage.about = f"{number.name} after {after_s:.3f} s{twice}: {world}"
    programs = stage.train(world, slow=SLOW)
    stage.wait_for_steps(programs)
    time.sleep(after_s)
    program = programs[rank if world.launcher == "hand" else 0]
    program.send_signal(number)
    if again is not None:
        time.sleep(again)
        program.send_signal(number)
    codes = (0, 128 + number) if again is None else (0, 128 + number, 130, 2)
    for place, each in enumerate(programs):
        _, said = stage.ends(each, codes)
        if each.returncode > 2 and (again is None or place == 0):
            stage.must("shoal train --resume" in said, "it says how to resume", said)
    stage.outcome = f"exit code {program.returncode}"
    if program.returncode == 0:
        stage.completed(world)
    else:
        stage.resumes(world)


def signalled_while_starting(stage, chance):
    """A signal to the real command at any moment of its start."""
    words = chance.choice(
        [
            ["train", "--strategy", "single"],
            ["train", "--strategy", "naive", "--workers", "2"],
            ["train", "--strategy", "naive", "--workers", "2", "--launcher", "threads"],
            ["evaluate", "nowhere"],
            ["compare", "--help"],
        ]
    )
    number, after_s = chance.choice(SIGNALS), chance.choice([chance.uniform(0, 0.5), chance.uniform(0, 3)])
    stage.about = f"{number.name} {after_s:.3f} s after the start of shoal {' '.join(words)}"
    small = [
        "--data",
        "synthetic",
        "--data.samples",
        "64",
        "--epochs",
        "500",
        "--threads",
        "1",
        "--device",
        "cpu",
        "--model",
        "mlp",
        "--quiet",
    ]
    process = stage.real_command(*words, *(small if words[0] == "train" else ()))
    time.sleep(after_s)
    process.send_signal(number)
    _, said = process.communicate(timeout=LIMIT_S)
    if "KeyboardInterrupt" in said and "/shoal/" not in said:
        stage.outcome = "Python had not begun with shoal"
        return
    expected = (128 + number, -number, 0, 2)
    stage.must(process.returncode in expected, f"exit code in {expected}", f"{process.returncode}: {said}")
    stage.must("Traceback" not in said, "no traceback", said[-3000:])
    stage.outcome = f"exit code {process.returncode}"


def strangers(stage, chance):
    """Somebody connects to every listening socket of the workers and sends bytes."""
    world = draw_world(chance, "processes", "hand")
    noise = chance.choice(
        [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", chance.randbytes(64), b"\0" * 4096, b"{}\n" * 50]
    )
    stays = chance.choice([True, False])
    stage.about = f"strangers send {len(noise)} bytes and {'stay' if stays else 'leave'}: {world}"
    programs = stage.train(world, slow=SLOW)
    stage.wait_for_steps(programs)
    pids = [*(program.pid for program in programs), *stage.workers(world, programs)]
    opened = []
    for address, port in sorted({place for pid in pids for place in listeners(pid)}):
        stage.must(address.startswith("127.") or address == "::1", "all sockets listen on loopback", address)
        try:
            opened.append(socket.create_connection((address, port), timeout=1))
            opened[-1].sendall(noise)
        except OSError:
            continue
        if not stays:
            opened[-1].close()
    for program in programs:
        stage.ends(program, 0)
    for each in opened:
        each.close()
    stage.completed(world)
    stage.outcome = f"{len(opened)} sockets, completed"


def listeners(pid):
    """(address, port) of the listening sockets of a process, from the kernel's table."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []
    mine = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = []
    for line in read("/proc/net/tcp").decode().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in mine:
            address, port = fields[1].split(":")
            found.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    for line in read("/proc/net/tcp6").decode().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in mine:
            address, port = fields[1].split(":")
            words = [bytes.fromhex(address[index : index + 8])[::-1] for index in range(0, 32, 8)]
            found.append((socket.inet_ntop(socket.AF_INET6, b"".join(words)), int(port, 16)))
    return found


def cut(stage, chance):
    """All connections of one worker break while its process lives on."""
    world = draw_world(chance, "hand", "processes", strategies=("naive", "ddp", "dp"))
    rank, step = chance.randrange(world.workers), chance.randrange(1, STEPS - 2)
    stage.about = f"the connections of rank {rank} break at step {step}: {world}"
    programs = stage.train(world, "--launch.timeout", "5", fault="cut", rank=rank, step=step)
    for program in programs:
        stage.ends(program, (0, 2))
    stage.must(stage.proof.exists(), "the fault has happened")
    if all(program.returncode == 0 for program in programs):
        stage.completed(world)  # shared memory needs no connection
        stage.must(world.group == "shm", "gloo needs its connections")
        stage.outcome = "completed"
    else:
        stage.outcome = "named"
        stage.resumes(world)
