"""Damaged files: checkpoints, manifests, settings, events, results and weights of a run that was stopped.

Each function is a kind of trial. It draws first, then acts, then states what must hold.
"""

import json
import os
import shutil
import signal
from pathlib import Path

from worlds import World

from shoal.events.folder import RunFolder

SINGLE = World("single", "single", "", 1)
THREADS = World("threads", "naive", "", 2)


def stopped_run(stage, chance):
    """A run that was stopped with checkpoints of steps 15 and 18 of 24, made once and copied for every trial."""
    world = chance.choice([SINGLE, THREADS])
    template = stage.folder.parent / f"template-{world.launcher}"
    if not template.exists():
        (program,) = stage.train(world, "--checkpoint.keep", "2", fault="stop", rank=0, step=20)
        stage.wait_for(stage.proof.exists, "step 20")
        os.kill(program.pid, signal.SIGKILL)
        stage.ends(program, -signal.SIGKILL)
        stage.run.rename(template)
        stage.proof.unlink()
    shutil.copytree(template, stage.run)
    config = RunFolder(stage.run).config
    stage.must(
        [path.name for path in checkpoints(stage)] == ["step-000015", "step-000018"], "two checkpoints"
    )
    stage.proof.write_text("it has happened in the template")
    stage.must(config.is_file(), "settings")
    return world


def checkpoints(stage):
    return sorted((stage.run / "checkpoints").glob("step-*"))


def damage(path: Path, chance, *, keeps_kind=False):
    """Damage a file; what was done, in words. A file that hardly differs is still damaged."""
    data = path.read_bytes()
    ways = ["flip", "flip", "truncate", "empty", "garbage", "append"]
    ways += [] if keeps_kind else ["delete", "fifo", "folder", "device", "dangling link"]
    way = chance.choice(ways)
    where = chance.randrange(len(data)) if data else 0
    if way == "flip" and data:
        changed = bytes([data[where] ^ (1 << chance.randrange(8))])
        path.write_bytes(data[:where] + changed + data[where + 1 :])
        return f"bit of byte {where} flipped"
    if way == "truncate":
        path.write_bytes(data[:where])
        return f"cut to {where} bytes"
    if way in ("empty", "garbage", "append"):
        path.write_bytes(
            {"empty": b"", "garbage": chance.randbytes(200), "append": data + chance.randbytes(9)}[way]
        )
        return way
    path.unlink(missing_ok=True)
    if way == "fifo":
        os.mkfifo(path)
    elif way == "folder":
        path.mkdir()
    elif way == "device":
        path.symlink_to("/dev/zero")
    elif way == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    return f"replaced by a {way}" if way not in ("flip", "delete") else "deleted"


def damaged_checkpoint(stage, chance):
    """The newest checkpoint, or both, are damaged."""
    both = chance.choice([False, False, True])
    of_manifest = chance.choice([True, False])
    world = stopped_run(stage, chance)
    done = []
    for folder in checkpoints(stage)[0 if both else 1 :]:
        file = folder / "manifest.json" if of_manifest else sorted(folder.glob("*.safetensors"))[0]
        done.append(f"{folder.name}/{file.name}: {damage(file, chance)}")
    stage.about = f"{'; '.join(done)}; {world}"
    if both:
        said = refused_resume(stage, "no checkpoint in .* can be used")
        stage.must("step-000015" in said and "step-000018" in said, "both are named", said)
    else:
        # Spaces at the end of a manifest, or within it, are no damage.
        before = checkpoints(stage)[1]
        stage.resumes(world, "step-000018.*step 15 is used instead" if not whole(before) else "")
    stage.outcome = "refused" if both else "fell back, same weights"


def whole(path):
    from shoal.errors import CheckpointError
    from shoal.training import checkpoint

    try:
        return bool(checkpoint.verify(path))
    except CheckpointError:
        return False


def refused_resume(stage, *sentences):
    program = stage.shoal("train", "--resume", stage.run, "--trust-code", "--quiet", name="resume")
    return stage.ends(program, 2, *sentences)[1]


def forged_manifest(stage, chance):
    """The manifest of the newest checkpoint has a right checksum and impossible values."""
    from shoal.events.folder import record_sha256

    world = stopped_run(stage, chance)
    path = checkpoints(stage)[1] / "manifest.json"
    manifest = json.loads(path.read_text())
    values = [-1, 10**18, 2**63, 10**400, 1.5, "18", None, True, [], {}, float("nan"), 7, "\x1b[2J"]
    key = chance.choice(
        ["step", "epoch", "consumed", "divided_among", "seconds", "format", "files", "progress", "parts"]
    )
    value = chance.choice(values)
    value = 5 if key == "parts" and not value else value  # no parts is what it has
    inner = manifest["progress"] if key in manifest["progress"] else manifest
    if inner is manifest["progress"] and value in {"seconds": (7, 1.5), "divided_among": (7, 10**18)}.get(
        key, ()
    ):
        value = -1
    inner[key] = value
    del manifest["sha256"]
    manifest["sha256"] = record_sha256(manifest)
    path.write_text(json.dumps(manifest))
    stage.about = f"manifest with {key} = {str(value)[:30]!r}; {world}"
    stage.resumes(world, "step-000018.*step 15 is used instead")
    stage.outcome = "fell back, same weights"


def damaged_settings(stage, chance):
    """config.toml of the run is damaged: refused, or, where only its comment is, the same weights."""
    world = stopped_run(stage, chance)
    path = RunFolder(stage.run).config
    text = path.read_bytes()
    done = damage(path, chance)
    stage.about = f"config.toml: {done}; {world}"
    if path.is_file() and path.read_bytes()[path.read_bytes().find(b"\n") :] == text[text.find(b"\n") :]:
        program = stage.shoal("train", "--resume", stage.run, "--trust-code", "--quiet", name="resume")
        stage.ends(program, (0, 2))
        stage.outcome = "its comment only"
        if program.returncode == 0:
            stage.completed(world)
    else:
        refused_resume(stage)
        stage.outcome = "refused"


def damaged_events(stage, chance):
    """The events of the stopped run are damaged: it is resumed all the same, and compared."""
    world = stopped_run(stage, chance)
    path = RunFolder(stage.run).events(0)
    done = damage(path, chance)
    stage.about = f"{path.name}: {done}; {world}"
    compared = stage.shoal("compare", stage.run, name="compare")
    stage.ends(compared, 2)
    program = stage.shoal("train", "--resume", stage.run, "--trust-code", "--quiet", name="resume")
    writable = not path.is_symlink() and (path.is_file() or not path.exists())
    stage.ends(program, 0 if writable else 2)
    if program.returncode == 0:
        stage.completed(world)
        stage.ends(stage.shoal("compare", stage.run, name="again"), (0, 2))
    stage.outcome = f"exit code {program.returncode}"


def damaged_result(stage, chance):
    """A file of a finished run is damaged: the same numbers as before, or one sentence of evaluate and compare."""
    world = stopped_run(stage, chance)
    stage.resumes(world)
    name = chance.choice(["model.safetensors", "result.json", "config.toml", "events.rank0.jsonl"])
    evaluated = ("evaluate", stage.run, "--trust-code", "--json")
    whole = stage.ends(stage.shoal(*evaluated, name="whole"), 0)[0]
    done = damage(stage.run / name, chance)
    stage.about = f"{name} of a finished run: {done}; {world}"
    program = stage.shoal(*evaluated, name="evaluate")
    shown = stage.ends(program, (0, 2))[0]
    numbers = [json.loads(text)["loss"] for text in (shown, whole) if text]
    stage.must(program.returncode == 2 or numbers[0] == numbers[1], "the same numbers", shown)
    stage.ends(stage.shoal("compare", stage.run, name="compare"), (0, 2))
    stage.outcome = "a sentence"
