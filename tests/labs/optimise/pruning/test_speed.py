import torch
from torch import nn

from shoal.labs.optimise.pruning.speed import forward_seconds


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.threads = 0, set()

    def forward(self, inputs):
        self.calls += 1
        self.threads.add(torch.get_num_threads())
        return inputs


def test_every_network_has_its_turn_in_every_round_on_one_thread():
    threads = torch.get_num_threads()
    models = {"whole": Counting(), "half": Counting()}
    found = forward_seconds(models, torch.zeros(1), rounds=3)
    assert {name: len(times) for name, times in found.items()} == {"whole": 3, "half": 3}
    assert models["whole"].calls == models["half"].calls
    assert models["whole"].threads == {1}
    assert torch.get_num_threads() == threads
    assert not models["half"].training
