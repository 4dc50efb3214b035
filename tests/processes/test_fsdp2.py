"""A program for FSDP2 trains with `shoal.zero` after few changes, from meta to the checkpoint, as one machine does."""

import subprocess
import sys
from pathlib import Path

import fsdp2_program
import pytest
import torch
from launching import environment
from torch.nn import functional as F

PROGRAM = Path(fsdp2_program.__file__)
CHANGES = {
    "from torch.distributed.fsdp import fully_shard": "import shoal",
    "    fully_shard(model)": "    sharded = shoal.zero(model, seed=0)",
    "        set_state_dict(model, optimizer, model_state_dict=state[0], optim_state_dict=state[1], options=WHOLE)": (
        "        sharded.load_state_dict(state, optimizer)"
    ),
    "    state = get_state_dict(model, optimizer, options=WHOLE)": "    state = sharded.state_dict()",
}
"""Lines that change."""
NEEDLESS = [
    "    for layer in model.layers:\n        fully_shard(layer)\n",
    '    model.to_empty(device="cpu")\n',
    '    model.apply(lambda module: module.reset_parameters() if hasattr(module, "reset_parameters") else None)\n',
]
"""Lines that `shoal.zero` replaces."""


def changed():
    text = PROGRAM.read_text()
    for old in NEEDLESS:
        assert text.count(old) == 1, old
        text = text.replace(old, "")
    for old, new in CHANGES.items():
        assert text.count(f"{old}\n") == 1, old
        text = text.replace(f"{old}\n", f"{new}\n")
    return text


def launch(program, path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*words, str(program), str(path)], env=environment(), capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return torch.load(path, weights_only=True)


def one_machine(steps):
    torch.manual_seed(0)
    model = fsdp2_program.Transformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for tokens in torch.cat([fsdp2_program.batches(0), fsdp2_program.batches(fsdp2_program.STEPS)])[:steps]:
        F.cross_entropy(model(tokens), tokens.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.long
@pytest.mark.usefixtures("_float64")
def test_a_program_for_fsdp2_needs_few_changes(tmp_path):
    program, path = tmp_path / "program.py", tmp_path / "checkpoint.pt"
    program.write_text(changed())
    for runs in (1, 2):  # the second run goes on from the checkpoint
        state = launch(program, path)
        for name, tensor in one_machine(runs * fsdp2_program.STEPS).items():
            assert (state[f"model.{name}"] - tensor).abs().max() <= 1e-12, (runs, name)
    assert len(CHANGES) <= 5


@pytest.mark.long
def test_the_program_for_fsdp2_runs_as_it_is(tmp_path):
    model, optimizer = launch(PROGRAM, tmp_path / "checkpoint.pt")
    assert model.keys() == fsdp2_program.Transformer().state_dict().keys()
    assert optimizer
