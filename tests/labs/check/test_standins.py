"""The course's imports and calls, without torchvision and without a GPU."""

import subprocess
import sys

PROGRAM = """
from shoal_labs.check import standins
standins.install()
import torch, torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
import torchvision.transforms as T

tfm = transforms.Compose([transforms.ToTensor(), T.Normalize((0.1307,), (0.3081,))])
loader = DataLoader(datasets.MNIST("./data", train=True, transform=tfm, download=True), batch_size=4)
device = torch.device("cuda:0")
model = nn.Linear(784, 10).cuda()
model.to(device)
pictures, labels = next(iter(loader))
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
loss = nn.functional.cross_entropy(model(pictures.cuda().flatten(1)), labels.to("cuda"))
loss.backward()
end.record()
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0
assert torch.zeros(2, device="cuda").device.type == torch.randn(2, device=device).device.type == "cpu"
assert pictures.shape == (4, 1, 28, 28)
assert labels.dtype == torch.int64
assert len(datasets.MNIST(".", train=False)) > 0
print("ran")
"""


def test_a_script_of_the_course_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "ran\n", done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing was downloaded
