"""Faults at a drawn place of a run by any strategy: a pass, an evaluation, a write, the construction of the model.

Each function is a kind of trial. It draws first, then acts, then states what must hold. Most runs are launched as
copies of the command (`worlds.FORKS`): real processes under the real supervisor, without the seconds of loading torch.
"""

import re
import signal

from worlds import draw_placed_world

from shoal.events.file import read_events
from shoal.events.folder import RunFolder

LAUNCHERS = ("forks", "forks", "forks", "processes", "hand", "hand")
PASSES = ("forward", "forward", "backward", "backward", "evaluation")
PLACES = (*PASSES, "writing", "writing", "building")
SLOW = 0.003
"""So that workers that take turns all get some."""


def draw_place(chance, world, places):
    """A place that some rank comes to, the rank, and which occurrence of the place it is."""
    place = chance.choice(places)
    rank = chance.choice(world.ranks_at(place))
    if place in ("forward", "backward"):
        # Of the 18 steps, one with checkpoints before it or none; a worker that takes turns may make half as many.
        step = chance.randrange(1, world.steps - 2 if world.logs_every_step else world.steps // 2)
        number = (step - 1) * world.passes + chance.randrange(world.passes) + 1
    elif place == "evaluation":
        number = chance.randrange(1, 7)
    elif place == "writing":
        number = chance.randrange(1, 50 if rank == 0 else 5)
    else:
        number = 1
    return place, rank, number


def begin(stage, chance, world, faults, places, *more):
    """Start a run with a drawn fault at a drawn place; (programs, fault, place, rank)."""
    fault = chance.choice(faults)
    place, rank, number = draw_place(chance, world, places)
    stage.about = f"{fault} of rank {rank} in {place} #{number}: {world}"
    programs = stage.train(world, *more, fault=fault, rank=rank, step=number, slow=SLOW, where=place)
    return programs, fault, place, rank


def fired(stage, world):
    """Whether the fault has happened: it must have, unless other workers may have taken the turns before it."""
    stage.must(stage.proof.exists() or not world.logs_every_step, "the fault has happened")
    return stage.proof.exists()


def ends_as_one(stage, world, programs, rank, codes, named, of_others):
    """The launcher ends with one box that names the rank; workers by hand each with a sentence of their own.

    `codes` are the launcher's exit code, and that of the rank itself by hand (None: it does not end).
    """
    launched, own = codes
    if world.launcher != "hand":
        _, said = stage.ends(programs[0], launched, named)
        stage.one_error(said)
        stage.no_temporary_file()
        return
    for other, program in enumerate(programs):
        if other != rank:
            stage.ends(program, 2, of_others, name=f"rank {other}")
    if own is None:
        programs[rank].send_signal(signal.SIGKILL)
        own = -signal.SIGKILL
    stage.ends(programs[rank], own, name=f"rank {rank}")


def dies_at_a_place(stage, chance):
    """A worker is killed, or exits without a word."""
    world = draw_placed_world(chance, *LAUNCHERS)
    programs, fault, place, rank = begin(stage, chance, world, ("SIGKILL", "SIGKILL", "exit"), PLACES)
    if world.goes_on_without_a_worker and world.launcher != "hand" and 0 < rank < world.workers:
        goes_on(stage, world, programs[0], rank, place)
        return
    killed = fault == "SIGKILL"
    named = rf"rank {rank} of {world.size} " + ("was killed by SIGKILL" if killed else "exited with code 3")
    codes = (137, -signal.SIGKILL) if killed else (3, 3)
    if not world.logs_every_step:
        codes = tuple((code, 0) for code in codes)
    others = rf"rank {rank} (died|on .* hung up|is gone|is missing)"
    if world.launcher == "hand" and place == "building":
        others += "|no answer|lost the store|ranks .* are missing|broke|store"
    if fired_or_completed(stage, world, programs):
        ends_as_one(stage, world, programs, rank, codes, named, others)
        stage.outcome = "named"
    stage.resumes(world)


def fired_or_completed(stage, world, programs):
    """Wait for the end; whether the fault has happened. A run to which it did not happen is completed."""
    for program in programs if world.launcher != "hand" else ():
        stage.ends(program, tuple(range(-64, 256)))
    if world.launcher == "hand":
        stage.wait_for(
            lambda: stage.proof.exists() or all(p.returncode is not None for p in programs), "a fault"
        )
    if fired(stage, world):
        return True
    for program in programs:
        stage.ends(program, 0)
    stage.outcome = "too late"
    return False


def goes_on(stage, world, program, rank, place):
    """The others continue without a lost worker; or they had just met, and the run ends with its name."""
    _, said = stage.ends(program, (0, 3, 137))
    happened = fired(stage, world)
    if program.returncode:
        stage.must(re.search(rf"rank {rank}\b.*(died|killed|exited)", said), "the lost rank is named", said)
        stage.one_error(said)
        stage.outcome = f"lost in {place}, where workers meet"
        stage.resumes(world)
        return
    if happened:
        stage.must("the others continue" in said, "warned of the lost worker", said)
    events = read_events(RunFolder(stage.run).events(world.workers))
    shares = sorted((each["step"], each["share"]) for each in events if each["event"] == "update")
    every = [(step, share) for step in range(world.steps) for share in range(world.workers)]
    stage.must(shares == every, "every share of every step counts once", shares)
    stage.whole_folder()
    stage.outcome = "completed without it" if happened else "too late"


def launcher_dies_at_a_place(stage, chance):
    """SIGKILL of the launcher while a worker is at a place."""
    world = draw_placed_world(chance, "forks", "forks", "processes")
    programs, *_ = begin(stage, chance, world, ("launcher",), PLACES)
    stage.ends(programs[0], (-signal.SIGKILL, *(() if world.logs_every_step else (0,))))
    fired(stage, world)
    stage.wait_for(lambda: not stage.alive(), "no worker outlives its launcher", within_s=20)
    stage.outcome = "no orphan"
    stage.resumes(world)


def stops_at_a_place(stage, chance):
    """A worker is stopped (SIGSTOP) for good or loops for ever, with a limit of 2 s."""
    world = draw_placed_world(chance, *LAUNCHERS)
    fault = chance.choice(("stop", "loop"))
    places = [place for place in PLACES if place != "building" or world.launcher != "hand"]
    if fault == "loop":  # elsewhere, workers announce minutes of work
        places = ["forward", "backward"]
    programs, _, _, rank = begin(stage, chance, world, (fault,), places, "--launch.timeout", "2")
    if fired_or_completed(stage, world, programs):
        named = rf"rank {rank} .*" + (r"stopped \(SIGSTOP\)" if fault == "stop" else "made no progress")
        ends_as_one(stage, world, programs, rank, (2, None), named, named)
        stage.outcome = "named"
    stage.resumes(world)


def raises_at_a_place(stage, chance):
    """An exception in the user's code."""
    world = draw_placed_world(chance, *LAUNCHERS, "threads", "threads")
    stage.may_show_a_traceback = True  # it is the user's
    programs, _, place, rank = begin(stage, chance, world, ("raise",), (*PASSES, "building"))
    what = "ValueError: no such column: Größe"
    if fired_or_completed(stage, world, programs):
        named = rf"rank {rank} of {world.size}\b.*{what}"
        # A model that cannot be built is an error of the settings.
        codes, by_others = (1, 2) if place == "building" else 1, rf"rank {rank} .*{what}"
        if world.strategy == "rpc" and place == "backward" and what not in programs[0].said()[1]:
            # Torch passes on the rank, and nothing else.
            codes, named, by_others = (
                2,
                rf"rank {rank} failed before the backward pass",
                rf"rank {rank} failed",
            )
        ends_as_one(stage, world, programs, rank, (codes, codes), named, by_others)
        stage.outcome = "named"
    stage.resumes(world)


def nan_at_a_place(stage, chance):
    """A layer's outputs, or their gradients, become NaN on one worker."""
    world = draw_placed_world(chance, *LAUNCHERS, "threads", "threads")
    programs, *_ = begin(stage, chance, world, ("nan",), ("forward", "backward"))
    if fired_or_completed(stage, world, programs):
        sentence = r"gradients? (is|are) nan\b.*stopped before it reached the weights"
        for place, program in enumerate(programs):
            said = stage.ends(program, 2, name=f"program {place}")[1]
            stage.must(re.search(rf"{sentence}|rank \d .*(failed|left|nan)", said), "why", said)
        stage.outcome = "stopped"
    stage.resumes(world)


def signalled_at_a_place(stage, chance):
    """Ctrl-C or SIGTERM while a worker is at a place."""
    world = draw_placed_world(chance, *LAUNCHERS, "threads", "threads")
    number = chance.choice([signal.SIGINT, signal.SIGTERM])
    programs, _, place, rank = begin(stage, chance, world, (number.name,), PLACES)
    for at, program in enumerate(programs):
        # By hand, workers whose peer is interrupted before the first step cannot go on.
        others = (2,) if world.launcher == "hand" and place == "building" and at != rank else ()
        _, said = stage.ends(program, (0, 128 + number, *others), name=f"program {at}")
        if program.returncode > 2 and any((stage.run / "checkpoints").glob("step-*[0-9]")):
            stage.must("shoal train --resume" in said, "it says how to resume", said)
    fired(stage, world)
    if world.launcher != "hand":
        stage.no_temporary_file()
    stage.outcome = f"exit code {programs[0].returncode}"
    if programs[0].returncode == 0:
        stage.completed(world)
    else:
        stage.resumes(world)
