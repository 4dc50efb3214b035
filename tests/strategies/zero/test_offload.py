"""Offloaded optimizer state: the bits of state that is not offloaded, and a disk that is full is noticed at once."""

import errno
import gc
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from strategy_cases import UNIT_MIB, made, on_threads, replica, train
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.cli.main import main
from shoal.config.sections.optimizer import AdamConfig, SgdConfig
from shoal.config.sections.sync import ZeroConfig
from shoal.errors import ConfigError
from shoal.strategies.zero.offload import default_folder, mapped_file
from shoal.strategies.zero.zero import Zero

STEPS = 3
OPTIMIZERS = {
    "adam, fused": AdamConfig(lr=0.01),
    "adam, readable": AdamConfig(lr=0.01, fast=False),
    "momentum": SgdConfig(lr=0.1, momentum=0.9),
}
TORCHS = {
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1, initial_accumulator_value=0.5),
    "RAdam": lambda params: torch.optim.RAdam(params, lr=0.01),
}
"""State that is created by the first step, by the constructor, or not at zero."""


def trained(size, config, optimizer):
    def work(group):
        strategy = made(Zero, config, replica(optimizer), group)
        return train(strategy, (12,) if size == 1 else (7, 5), parts=2, steps=STEPS)

    return on_threads(size, work)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("size", "stage"), [(1, 1), (2, 1), (2, 2), (2, 3)])
def test_a_file_gives_the_same_bits(tmp_path, size, stage, optimizer):
    plain = ZeroConfig(stage=stage, unit_mib=UNIT_MIB)
    in_file = ZeroConfig(stage=stage, unit_mib=UNIT_MIB, offload="file", offload_dir=str(tmp_path))
    runs = [trained(size, config, OPTIMIZERS[optimizer]) for config in (plain, in_file)]
    for member, offloaded in zip(*runs, strict=True):
        for (state, loss, _), (its_state, its_loss, _) in zip(member, offloaded, strict=True):
            assert its_loss == loss
            assert its_state.keys() == state.keys()
            assert all(torch.equal(its_state[name], tensor) for name, tensor in state.items())
    assert not os.listdir(tmp_path), "the file has no name, even while it is used"


def model():
    net, draw = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for param in net.parameters():  # threads share torch's own generator
            param.copy_(torch.randn(param.shape, generator=draw))
    return net


def loop(group, make_optimizer, saved=None, steps=STEPS, **options):
    net = model()
    sharded = shoal.zero(net, make_optimizer, 2, group, unit_mib=UNIT_MIB, **options)
    if saved is not None:
        sharded.load_state_dict(saved)
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(group.rank))
    for _ in range(steps):
        F.cross_entropy(net(inputs), torch.arange(8) % 3).backward()
        sharded.step(clip_norm=1.0)
    return sharded, sharded.state_dict()


@pytest.mark.parametrize("name", TORCHS)
def test_a_loop_of_the_users_own_with_torchs_optimizers_has_the_same_bits(tmp_path, name):
    def work(group):
        _, expected = loop(group, TORCHS[name])
        sharded, state = loop(group, TORCHS[name], offload="file", offload_dir=str(tmp_path))
        homes = {
            value.untyped_storage().data_ptr()
            for of_one in sharded.optimizer.state.values()
            for value in of_one.values()
            if isinstance(value, torch.Tensor) and value.dim()
        }
        assert len(homes) == 1, "all state is in the file"
        return expected, state

    expected, state = on_threads(2, work)[0]
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], tensor) for key, tensor in expected.items())


@pytest.mark.parametrize(("before", "after"), [("none", "file"), ("file", "none"), ("file", "file")])
@pytest.mark.parametrize("optimizer", [TORCHS["Adam"], lambda params: shoal.optim.AdamW(params, lr=0.01)])
def test_a_saved_state_goes_on_with_and_without_offload(tmp_path, before, after, optimizer):
    def work(group):
        folders = {"file": {"offload": "file", "offload_dir": str(tmp_path)}, "none": {}}
        _, expected = loop(group, optimizer, steps=4)
        _, saved = loop(group, optimizer, steps=2, **folders[before])
        if group.rank == 0:
            shared.append(saved)  # the whole state, of which every worker loads its part
        group.barrier().wait()
        _, state = loop(group, optimizer, shared[0], steps=2, **folders[after])
        return expected, state

    shared = []
    expected, state = on_threads(2, work)[0]
    assert all(torch.equal(state[key], tensor) for key, tensor in expected.items())


def test_a_run_stopped_and_resumed_with_offload_has_the_same_weights(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = "--quiet --data synthetic --data.samples 64 --batch-size 8 --model linear --optimizer adam"
    flags = f"{flags} --launcher threads --workers 2 --strategy zero --strategy.stage 3"
    offload = f"--strategy.offload file --strategy.offload_dir {tmp_path}"
    sums = []
    for name, words in {
        "whole": f"{flags} --steps 6",
        "cut": f"{flags} --steps 3 {offload}",
        "": f"--resume runs/cut --steps 6 {offload}",
    }.items():
        given = [*words.split(), "--json", *(["--name", name] if name else [])]
        assert main(["train", *given]) == 0, capsys.readouterr().err
        sums.append(capsys.readouterr().out.partition('"weights_sha256": "')[2][:64])
    assert sums[0] == sums[2] != sums[1]


def limited_to(num_bytes, *words):
    """`shoal train` in a process whose files must not be larger."""
    program = textwrap.dedent(f"""
        import resource, sys
        resource.setrlimit(resource.RLIMIT_FSIZE, ({num_bytes}, {num_bytes}))
        from shoal.cli.main import main
        raise SystemExit(main(sys.argv[1:]))
    """)
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_full_disk_is_one_sentence_before_training_and_leaves_nothing(tmp_path):
    folder = tmp_path / "offload"
    folder.mkdir()
    words = (
        "train --quiet --data synthetic --model mlp --model.hidden 512,512 --optimizer adam --strategy zero"
    )
    words = f"{words} --strategy.offload file --strategy.offload_dir {folder} --runs-dir {tmp_path}/runs"
    ended = limited_to(2**20, *words.split())
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: cannot allocate an offload file of 5.1 MiB in ")
    assert "File too large\n  Free some space" in ended.stderr
    assert not os.listdir(folder)
    assert not (tmp_path / "runs").exists(), "nothing is written before the file is there"


def test_if_one_worker_has_no_space_no_worker_begins(tmp_path, monkeypatch, capsys):
    allocate, calls = os.posix_fallocate, []

    def full_for_the_second(descriptor, offset, num_bytes):
        calls.append(num_bytes)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, num_bytes)

    monkeypatch.setattr(os, "posix_fallocate", full_for_the_second)
    words = (
        "--quiet --data synthetic --model mlp --optimizer adam --launcher threads --workers 2 --strategy zero"
    )
    words = f"{words} --strategy.offload file --strategy.offload_dir {tmp_path} --runs-dir {tmp_path}/runs"
    assert main(["train", *words.split()]) == 2
    assert "cannot allocate an offload file" in capsys.readouterr().err
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_space_is_refused(tmp_path, monkeypatch, code):
    def full(descriptor, offset, num_bytes):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ConfigError, match=r"cannot allocate an offload file of 3\.0 MiB"):
        mapped_file(str(tmp_path), 3 * 2**20)
    assert not os.listdir(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot create an offload file in .*/absent: No such file"):
        mapped_file(str(tmp_path / "absent"), 100)


def test_a_file_is_allocated_whole_and_filled_with_zeros(tmp_path):
    memory = mapped_file(str(tmp_path), 10_000)
    assert memory.shape == (10_000,)
    assert not memory.any()
    assert os.path.isdir(default_folder())


def test_offload_that_has_no_effect_is_refused():
    def work(group):
        momentum, sgd = OPTIMIZERS["momentum"], SgdConfig(lr=0.1)
        with pytest.raises(ConfigError, match="has no effect on a CPU"):
            made(Zero, ZeroConfig(offload="memory"), replica(momentum), group)
        with pytest.raises(ConfigError, match="SGD keeps no state"):
            made(Zero, ZeroConfig(offload="file"), replica(sgd), group)

    on_threads(1, work)
    with pytest.raises(ConfigError, match="offload_dir has no effect with --strategy.offload none"):
        ZeroConfig(offload_dir="/var/tmp")


@pytest.mark.gpu
@pytest.mark.parametrize("to", ["memory", "file"])
@pytest.mark.parametrize("fast", [True, False])
def test_offload_from_a_gpu_has_the_same_bits_and_leaves_its_memory_free(tmp_path, to, fast):
    def trained(offload):
        gc.collect()
        before = torch.cuda.memory_allocated()
        net = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for param in net.parameters():
                param.copy_(torch.randn(param.shape, generator=draw) / 20)
        net.cuda()
        options = {"offload": to, "offload_dir": str(tmp_path) if to == "file" else ""} if offload else {}
        sharded = shoal.zero(
            net, lambda params: shoal.optim.Adam(params, lr=0.01, fast=fast), 1, shoal.join(), **options
        )
        inputs = torch.randn(4, 512, generator=draw).cuda()
        for _ in range(STEPS):
            net(inputs).square().sum().backward()
            sharded.step()
        state = sharded.state_dict()
        return state, torch.cuda.memory_allocated() - before, sum(param.nbytes for param in net.parameters())

    (state, held, weights), (offloaded, free, _) = trained(False), trained(True)
    assert any(key.endswith("exp_avg_sq") for key in state)
    assert all(torch.equal(offloaded[key], tensor) for key, tensor in state.items())
    assert held - free >= 1.9 * weights, "both moments are on the host"
