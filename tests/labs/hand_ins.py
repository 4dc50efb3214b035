"""Folders that students of Lab 1 hand in: right, unfinished, wrong, and hostile ones."""

from shoal.labs.handout.start import skeleton, solution
from shoal.report.folder import write_files

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
    train(model, DataLoader(data, 64, shuffle=True), GdOptimizer(model.parameters(), 0.1))
"""
BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(1)
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


def twelve(root, outside):
    """Twelve folders, by the name of the student; `outside` is a file that one of them tries to write."""
    course = {"task1/pytorch/MyOptimizer.py": COURSE_OPTIMIZER, "task1/pytorch/model.py": COURSE_MODEL}
    write = f"import pathlib; pathlib.Path({str(outside)!r}).write_text('x')"
    steal = f"import sys; sys.path[:0] = [{str(root / 'right/task1/pytorch')!r}]; import stolen"
    return {
        "right": hand_in(root / "right"),
        "unfinished": hand_in(root / "unfinished", files=skeleton("1", "en")),
        "course": hand_in(root / "course", files=course),
        "loops": hand_in(root / "loops", after(GD, "while True: pass")),
        "forks": hand_in(root / "forks", after(SGD, f"exec({BOMB!r})")),
        "writes": hand_in(root / "writes", after(ADAM, write)),
        "steals": hand_in(root / "steals", after(GD, steal)),
        "crashes": hand_in(root / "crashes", after(GD, "import os; os.abort()")),
        "kills": hand_in(root / "kills", after(SGD, "import os; os.kill(os.getppid(), 9); os.kill(-1, 9)")),
        "eats": hand_in(root / "eats", after(ADAM, "hoard = bytearray(64 * 2**30)")),
        "misspelt": hand_in(root / "misspelt", ("class AdamOptimizer(", "class Adm(")),
        "empty": hand_in(root / "empty", files={OPTIMIZER: "class Nothing:\n    pass\n"}),
    }
