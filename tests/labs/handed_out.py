"""A hand-out, laid out with data as small as a test needs, and its programs run as a student runs them."""

import socket
import subprocess
import sys

import torch

from shoal.data.sources.formats import encode_idx
from shoal.report.folder import write_files

LIMIT_S = 180


def lay_out(folder, files, task, samples):
    """The files of a hand-out in a folder, with random digits; the folder of its programs."""
    write_files(folder, {path: content for path, content in files.items() if path.parent.name != "data"})
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", samples), ("t10k", 40)):
        labels = torch.randint(0, 10, (count,), generator=generator, dtype=torch.uint8)
        pictures = torch.randint(0, 256, (count, 28, 28), generator=generator, dtype=torch.uint8)
        for name, array in (("images-idx3-ubyte", pictures), ("labels-idx1-ubyte", labels)):
            path = folder / task / "data" / f"{part}-{name}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode_idx(array))
    return folder / task


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def forked(nursery, folder, *commands):
    """Run programs at the same time, forked from an interpreter that has loaded torch; exit codes and outputs."""
    started = []
    for number, command in enumerate(commands):
        words = command.split()
        text = f"import runpy, sys\nsys.argv = {words!r}\nsys.path.insert(0, {str(folder)!r})\n"
        text += f"runpy.run_path({words[0]!r}, run_name='__main__')\n"
        started.append(nursery.start(text, folder, f"terminal{number}"))
    outputs = ["".join(program.ended(LIMIT_S)) for program in started]
    return [program.returncode for program in started], outputs


def side_by_side(folder, *commands):
    """Run programs at the same time, each as in a terminal of its own; exit codes and outputs."""
    started = [
        subprocess.Popen(
            [sys.executable, *command.split()],
            cwd=folder,
            env={"OMP_NUM_THREADS": "1", "PATH": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], outputs
