"""What is measured in a process, and that everything is as before afterwards."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

from shoal.profile.patches import patched
from shoal.profile.recorder import Recorder


def patchable():
    places = (nn.Module, torch.autograd, dist, dist.ProcessGroup, dist.Work, dataloader._BaseDataLoaderIter)
    places = (*places, torch, torch.Tensor, torch.cuda)
    return [dict(vars(place)) for place in places]


def trained(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (inputs,) in DataLoader(TensorDataset(torch.ones(2 * steps, 3)), batch_size=2):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def test_a_step_has_its_parts_in_order_and_the_results_are_the_same():
    plain, recorder = trained(3), Recorder(0, 1)
    with patched(recorder):
        assert torch.equal(trained(3), plain)
    assert [record["step"] for record in recorder.steps] == [0, 1, 2]
    assert [name for name, *_ in recorder.steps[1]["spans"]] == ["data", "forward", "backward", "step"]
    seconds = [record["seconds"] for record in recorder.steps]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    measured = sum(recorder.steps[1]["totals_ns"].values()) / 1e9
    assert 0 < measured <= seconds[1] - seconds[0]


def test_nothing_stays_patched_also_after_an_error():
    before, inside = patchable(), []

    def failing():
        inside.extend(patchable())
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), patched(Recorder(0, 1)):
        failing()
    assert inside != before
    assert patchable() == before
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks


def test_calls_of_torch_have_bytes_and_both_spans():
    recorder = Recorder(0, 1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with patched(recorder):
            with recorder.span("forward", "compute"):
                pass
            dist.all_reduce(torch.ones(10))
            dist.all_reduce(torch.ones(10), async_op=True).wait()
            recorder.end_step()
        dist.all_reduce(torch.ones(10))
    finally:
        dist.destroy_process_group()
    (step,) = recorder.steps
    calls = [(name, kind, sequence) for name, kind, _, _, _, _, group, sequence, _ in step["spans"] if group]
    assert calls == [("all_reduce", kind, number) for number in (1, 2) for kind in ("move", "wait")]


class Branches(nn.Module):
    """Of two layers, only one is used."""

    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x):
        return self.used(x)


def test_steps_have_their_samples_stalls_and_reads_and_the_end_its_unused_parameters(tmp_path):
    recorder, model = Recorder(0, 1), Branches()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with patched(recorder, is_remote=lambda tensor: tensor.ndim == 0):
        for step in range(3):
            loss = model(torch.ones(4 + step, 3)).sum()
            loss.backward()
            if step == 1:
                assert loss.item() == loss.tolist()
                torch.ones(2).tolist()  # of no tensor that the host waits for
                with torch.no_grad():
                    model(torch.ones(9, 3))
                torch.save(model.state_dict(), tmp_path / "weights.pt")
            optimizer.step()
    first, second, third = recorder.steps
    assert [step["rows"] for step in recorder.steps] == [4, 5, 6]
    assert not {"stalls_ns", "synchronised"} & {*first, *third}
    assert {*second["stalls_ns"]} == {"evaluation", "save"}
    times, waited_ns = second["synchronised"]
    assert times == 2
    assert waited_ns > 0
    assert second["totals_ns"]["save"] == second["stalls_ns"]["save"] > 0
    expected = {"checks": 1, "count": 4, "searches": False, "unused": ["spare.weight", "spare.bias"]}
    assert recorder.parameters() == expected


def test_parameters_that_never_have_gradients_are_not_judged():
    """A strategy of its own may keep them elsewhere."""
    recorder = Recorder(0, 1)
    recorder.steps += [{}, {}]
    recorder.check_gradients([nn.Parameter(torch.ones(1))])
    assert recorder.parameters() == {}


def test_what_one_optimizer_leaves_out_another_may_use():
    recorder, params = Recorder(0, 1), [nn.Parameter(torch.ones(1)) for _ in range(3)]
    recorder.steps += [{}, {}]
    for used in params[:2]:
        used.grad = torch.ones(1)
        recorder.check_gradients(params)
        used.grad = None
    assert recorder.parameters()["unused"] == ["(1,)"]
