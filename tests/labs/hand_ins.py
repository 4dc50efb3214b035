"""Folders that students of Lab 1 hand in: right, unfinished, wrong, and hostile ones."""

from pathlib import PurePosixPath

from shoal.report.folder import write_files
from shoal_labs.handout.start import skeleton, solution

OPTIMIZER = "task1/pytorch/MyOptimizer.py"

COURSE_OPTIMIZER = """
import torch
import torchvision


class BaseOptimizer:
    def __init__(self, params, lr):
        self.params = [p.cuda() for p in params]
        self.lr = lr

    def step(self):
        raise NotImplementedError

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class GdOptimizer(BaseOptimizer):
    def step(self):
        with torch.no_grad():
            for p in self.params:
                if p.grad is not None:
                    p.sub_(self.lr * p.grad.to("cuda:0"))


class MySGD(GdOptimizer):
    pass


class AdamOptimizer(BaseOptimizer):
    def __init__(self, params, lr, b1=0.9, b2=0.999):
        super().__init__(params, lr)
        self.b1, self.b2, self.t = b1, b2, 0
        self.m = [torch.zeros(p.shape, device="cuda") for p in self.params]
        self.v = [torch.zeros_like(p.data) for p in self.params]

    @torch.no_grad()
    def step(self):
        self.t += 1
        for i, p in enumerate(self.params):
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * p.grad
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * p.grad ** 2
            m, v = self.m[i] / (1 - self.b1 ** self.t), self.v[i] / (1 - self.b2 ** self.t)
            p -= self.lr * m / (v.sqrt() + 1e-8)
"""
"""The course's names and nothing of ours; tensors that are moved to a GPU."""

COURSE_MODEL = """
import torch
import torchvision.datasets as datasets
import torchvision.transforms as transforms
from torch.utils.data import DataLoader

from MyOptimizer import GdOptimizer


def train(model, loader, optimizer):
    for pictures, labels in loader:
        pictures, labels = pictures.cuda(), labels.cuda()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    data = datasets.MNIST("./data", train=True, transform=transforms.ToTensor(), download=True)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).cuda()
    train(model, DataLoader(data, len(data), shuffle=True), GdOptimizer(model.parameters(), 0.1))
"""


def hand_in(folder, *changes, files=None):
    """A folder with our solution of Lab 1, or other files, in which some lines of the optimizers are others."""
    files = {str(path): text for path, text in (files or solution("1")).items()}
    for old, new in changes:
        assert old in files[OPTIMIZER], old
        files[OPTIMIZER] = files[OPTIMIZER].replace(old, new)
    write_files(folder, files)
    return folder


GD = '"""Move along the exact gradient."""\n'
SGD = '"""Move along the batch\'s gradient."""\n'
ADAM = '"""Move along m / √v, both corrected for their start at zero."""\n'


def after(doc, code):
    """The change that runs a line of code first in a function with this docstring."""
    return doc, f"{doc}        {code}\n"


def five(root):
    """Five folders, by the name of the student."""
    course = {"task1/pytorch/MyOptimizer.py": COURSE_OPTIMIZER, "task1/pytorch/model.py": COURSE_MODEL}
    return {
        "right": hand_in(root / "right"),
        "unfinished": hand_in(root / "unfinished", files=skeleton("1", "en")),
        "course": hand_in(root / "course", files=course),
        "misspelt": hand_in(root / "misspelt", ("class AdamOptimizer(", "class Adm(")),
        "empty": hand_in(root / "empty", files={OPTIMIZER: "class Nothing:\n    pass\n"}),
    }


HARMLESS = {
    "reads_the_home_folder": "open(TEACHER + '/secret').read()",
    "reads_a_variable": "os.environ['TOKEN']",
    "reads_variables_of_a_process": "{True: 1}[b'TOKEN' in open('/proc/self/environ', 'rb').read()]",
    "calls_a_socket": "socket.socket(socket.AF_UNIX).connect(TEACHER + '/socket')",
    "calls_a_socket_without_a_file": "socket.socket(socket.AF_UNIX).connect(chr(0) + TEACHER)",
    "calls_the_network": "socket.create_connection(('192.0.2.1', 80), 3)",
    "reads_a_neighbour": "open(HAND_INS + '/right/task1/pytorch/MyOptimizer.py').read()",
    "writes_to_a_neighbour": "open(HAND_INS + '/right/task1/pytorch/MyOptimizer.py', 'a').write('+')",
    "writes_outside": "open(TEACHER + '/marks', 'w').write('100')",
    "writes_to_shoal": "import shoal; open(shoal.__file__, 'a').write(' ')",
    "reads_the_memory_of_its_parent": "open(f'/proc/{os.getppid()}/mem').read(1)",
    "takes_files_of_its_parent": "os.open(f'/proc/{os.getppid()}/fd/3', os.O_WRONLY)",
    "fills_the_memory_with_files": "[os.posix_fallocate(open(f'/tmp/{n}', 'xb').fileno(), 0, 2**28) for n in range(4)]",
    "takes_memory_that_no_process_shows": "os.memfd_create('x')",
    "mounts": "{0: 1}[ctypes.CDLL(None).mount(b'', b'/tmp', b'tmpfs', 0, None)]",
    "stops_its_parent": "[os.kill(os.getppid(), n) for n in (2, 9, 15, 19)]; os.kill(-1, 9)",
}
"""What fails in a sandbox, so that the student's code, which goes on, is marked as if it had not tried."""
ALTERS = "import shutil; shutil.rmtree('task1', ignore_errors=True)"
LEAVES = (
    "os.fork() or (os.setsid(), os.fork(), ctypes.CDLL(None).prctl(15, b'left-behind'), time.sleep(3600))"
)
TO_ALL = "[write(n, {data}) for n in range(3, 256)]; os._exit(0)"
RIGHT = b'{"answer": [], "raised": null}\n'
FORGED = b'{"answer": [["no_such_fault", {}]], "raised": null}\n'
NOT_A_NODES = b'{"answer": [["not_done", 5], 7, {}], "raised": null}\n'
BOMB = "while True:\n  try: os.fork()\n  except OSError: time.sleep(1)"
HOARD = "[os.fork() or (b'x' * 2**29, time.sleep(60)) for _ in range(4)]; time.sleep(60)"
ENDLESS = "while True: [write(n, bytes(2**16)) for n in range(3, 256)]"
HARMFUL = {
    "writes_garbage": (TO_ALL.format(data=b"\xff{garbage\n"), "died"),
    "writes_verdicts": (TO_ALL.format(data=b"[]\n" * 9), "died"),
    "writes_that_nothing_is_wrong": (TO_ALL.format(data=RIGHT), "died"),
    "writes_unknown_faults": (TO_ALL.format(data=FORGED), "died"),
    "writes_what_is_no_fault": (TO_ALL.format(data=NOT_A_NODES), "died"),
    "writes_a_deep_list": (TO_ALL.format(data=b"[" * 10**5 + b"\n"), "died"),
    "writes_without_end": (ENDLESS, "died|timed out"),
    "closes_everything": ("os.closerange(0, 256)", "died"),
    "exits": ("os._exit(0)", "died"),
    "crashes": ("os.abort()", "died"),
    "never_ends": ("while True: pass", "timed out"),
    "forks": (BOMB, "timed out|processes and threads"),
    "eats": ("bytearray(64 * 2**30)", "MemoryError"),
    "eats_in_many_processes": (HOARD, "of memory together|timed out"),
}
"""What ends one task, and the fault that the task then has."""
TRICK = """import ctypes, os, socket, time
def write(number, data):
    try: os.write(number, data)
    except OSError: pass
TEACHER, HAND_INS = {teacher!r}, {hand_ins!r}
"""
SHADOWING = "import pathlib; pathlib.Path({teacher!r}, 'imported').touch()\n"
SHADOWED = (
    "json",
    "torch",
    "numpy",
    "shoal",
    "random",
    "select",
    "subprocess",
    "sitecustomize",
    "usercustomize",
)


def tricksters(root, teacher):
    """A folder for each trick, with our solution of GD, SGD and Adam; the trick is done first in a step of GD."""
    optimizers = {OPTIMIZER: str(solution("1")[PurePosixPath(OPTIMIZER)])}
    given = TRICK.format(teacher=str(teacher), hand_ins=str(root))
    tried = "try: exec({code!r})\nexcept (OSError, KeyError): pass\nelse: raise RuntimeError('it worked')"
    codes = {name: tried.format(code=code) for name, code in HARMLESS.items()}
    codes |= {"alters_its_folder": ALTERS, "leaves_a_process_behind": LEAVES}
    codes |= {name: code for name, (code, _) in HARMFUL.items()}
    folders = {
        name: hand_in(root / name, after(GD, f"exec({given + code!r}, {{}})"), files=optimizers)
        for name, code in codes.items()
    }
    shadowing = SHADOWING.format(teacher=str(teacher))
    files = optimizers | {f"{name}.py": shadowing for name in SHADOWED}
    return folders | {"shadows": hand_in(root / "shadows", files=files)}
