"""`shoal.zero` of a model on the meta device: the values and the training of one machine, one module at a time."""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from strategy_cases import distance, on_threads
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.errors import CheckpointError, ConfigError, MismatchError
from shoal.strategies.zero.meta import Draw, place, slots_of
from shoal.strategies.zero.weights_file import WeightsFile

SEED, STEPS = 7, 3
WAYS = ["stage 1", "stage 2", "stage 3", "stage 3, gathered"]


class Net(nn.Module):
    """Tied weights, frozen ones, buffers, attention (writes into a module inside it) and a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8, padding_idx=0)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.mix = nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4))
        self.head = nn.Linear(8, 11)
        self.head.weight = self.embed.weight
        self.blocks[0].fc.bias.requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.mix(x)).flatten(0, 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc = nn.Linear(8, 8)
        self.register_buffer("seen", torch.empty(2, dtype=torch.int64), persistent=False)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.scale)
        self.seen.fill_(5)

    def forward(self, x):
        return x + self.fc(self.attention(x, x, x, need_weights=False)[0] * self.scale)


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def of_one_machine(kind=Net):
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return kind()


def on_meta(kind=Net):
    with torch.device("meta"):
        return kind()


def adam(params):
    return torch.optim.Adam(params, lr=0.01)


def sharded_on(group, way, model=None, make=adam, **source):
    group.maps_memory = "gathered" not in way
    return shoal.zero(
        model or on_meta(), make, int(way[6]), group, unit_mib=1e-3, **(source or {"seed": SEED})
    )


def samples():
    draw = torch.Generator().manual_seed(1)
    return torch.randint(11, (STEPS, 8, 4), generator=draw)


def trained():
    model, inputs = of_one_machine(), samples()
    optimizer = adam(model.parameters())
    for tokens in inputs:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), tokens.flatten()).backward()
        optimizer.step()
    return model.state_dict()


def assert_same(state, expected, most=0.0):
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor) or distance(state[name], tensor) <= most, name


@pytest.mark.parametrize("way", WAYS)
def test_a_seed_gives_the_values_of_one_machine(way):
    def work(group):
        sharded = sharded_on(group, way)
        return sharded.model_state_dict(), [block.seen.tolist() for block in sharded.model.blocks]

    (state, seen), _ = on_threads(2, work)
    assert_same(state, of_one_machine().state_dict())
    assert state["head.weight"] is state["embed.weight"]
    assert seen == [[5, 5]] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_was_converted_has_the_values_of_one_machine(dtype):
    sharded = shoal.zero(on_meta().to(dtype), adam, seed=SEED)
    assert_same(sharded.model_state_dict(), of_one_machine().to(dtype).state_dict())


@pytest.mark.parametrize("way", WAYS)
def test_training_from_a_seed_equals_one_machine(way):
    def work(group):
        # Equal batches on both workers: batch statistics are those of one machine.
        sharded = sharded_on(group, way)
        for tokens in samples():
            F.cross_entropy(sharded(tokens), tokens.flatten()).backward()
            sharded.step()
        return sharded.model_state_dict()

    assert_same(on_threads(2, work)[0], trained(), 1e-12)


def test_one_module_at_a_time_is_in_memory():
    model = on_meta()
    slots = slots_of(model)
    place(slots, torch.device("cpu"))
    most = 0

    def keep(name, part):
        nonlocal most
        del part
        held = {
            id(each): each.numel()
            for slot in slots
            if not (each := getattr(slot.module, slot.attribute)).is_meta
        }
        most = max(most, sum(held.values()))

    Draw(model, slots, SEED)(keep)
    # The largest module: attention with its output layer, which it writes into.
    assert most <= sum(param.numel() for param in model.blocks[0].attention.parameters())
    assert all(param.untyped_storage().nbytes() <= 8 for param in model.parameters() if param.requires_grad)


def test_the_programs_random_numbers_go_on():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    shoal.zero(on_meta(), adam, seed=SEED)
    assert torch.equal(torch.rand(2), expected)


class WithoutReset(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2))


class LeavesOneOut(WithoutReset):
    def reset_parameters(self):
        pass


class WritesAgain(nn.Module):
    """Its constructor changes what the layer's has written."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        nn.init.normal_(self.inner.bias)


def copied():
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, copy.deepcopy(layer))


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (WithoutReset, r"the model \(WithoutReset\) has no reset_parameters\(\).*'scale'"),
        (LeavesOneOut, r"'scale' of the model \(LeavesOneOut\) was written 0 times .* writes it 0"),
        (WritesAgain, r"'bias' of module 'inner' \(Linear\) was written 2 times .* writes it 1"),
        (copied, r"'weight' of module '1' \(Linear\) was written 0 times .* writes it 1"),
    ],
)
def test_values_that_a_seed_cannot_give_are_refused(kind, match):
    with pytest.raises(ConfigError, match=match):
        shoal.zero(on_meta(kind), adam, seed=0)


def test_a_module_that_writes_again_into_one_that_is_done_is_refused():
    class Above(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.empty(2))
            self.inner = nn.Linear(2, 2)
            nn.init.ones_(self.scale)

        def reset_parameters(self):
            nn.init.ones_(self.scale)
            nn.init.ones_(self.inner.weight)  # not called when the model is built

    with pytest.raises(
        ConfigError, match=r"'weight' of module 'inner' \(Linear\) was written 1 time .* writes it 2"
    ):
        shoal.zero(on_meta(Above), adam, seed=0)


def test_misuse_is_named():
    def refused(match, model=None, **given):
        with pytest.raises(ConfigError, match=match):
            shoal.zero(on_meta() if model is None else model, adam, **given)

    refused("neither a seed nor a file")
    refused("both a seed and a file", seed=0, weights="model.safetensors")
    refused("seed= is for a model on the meta device", model=nn.Linear(2, 2), seed=0)
    refused("device='meta' cannot hold the model", seed=0, device="meta")
    refused("device='nowhere' cannot hold the model", seed=0, device="nowhere")
    with pytest.raises(MismatchError, match="rank 0 has seed=0, and rank 1 seed=1"):
        on_threads(2, lambda group: sharded_on(group, "stage 3", seed=group.rank))


def test_an_optimizer_that_was_made_before_is_refused():
    model = on_meta()
    optimizer = adam(model.parameters())
    sharded = shoal.zero(model, seed=0)
    sharded(samples()[0]).sum().backward()
    for use in (optimizer.step, lambda: sharded.load_state_dict({}, optimizer)):
        with pytest.raises(ConfigError, match="Adam was made before shoal.zero"):
            use()


def test_a_tensor_that_is_neither_parameter_nor_buffer_is_refused():
    model = on_meta()
    model.blocks[1].kept = model.embed.weight.sum()  # of a forward pass
    shoal.zero(model, adam, seed=0)
    model = on_meta()
    model.blocks[1].angles = torch.arange(4, device="meta")
    with pytest.raises(ConfigError, match=r"'angles' of module 'blocks.1' \(Block\) is a tensor on the meta"):
        shoal.zero(model, adam, seed=0)
    assert all(param.is_meta for param in model.parameters())


# From a file.


@pytest.fixture
def saved(tmp_path):
    state = of_one_machine().state_dict()
    del state["head.weight"]  # tied: under one name, as in files of transformers
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


class Saved(Net):
    """The buffers that are not saved have values, on the CPU."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.seen = torch.full((2,), 5, device="cpu")


@pytest.mark.parametrize("way", WAYS)
def test_a_file_gives_its_values(way, saved):
    def work(group):
        sharded = sharded_on(group, way, on_meta(Saved), weights=saved)
        return sharded.model_state_dict()

    assert_same(on_threads(3, work)[0], of_one_machine().state_dict())


def test_any_part_of_a_tensor_can_be_read(saved):
    model, expected = on_meta(Saved), of_one_machine().state_dict()

    def keep(name, part):
        whole = expected[name].flatten()
        for start in range(0, len(whole), 5):
            for stop in {start, start + 1, min(start + 9, len(whole)), len(whole)}:
                assert torch.equal(part(start, stop), whole[start:stop]), (name, start, stop)

    WeightsFile(saved, model, slots_of(model))(keep)


def changed(saved, change):
    state = load_file(saved)
    change(state)
    save_file(state, saved)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda state: state.pop("head.bias"), r"model.safetensors: .* they lack 'head.bias' \(11,\)"),
        (lambda state: state.update(more=torch.zeros(1)), "'more' is not in this model"),
        (
            lambda state: state.update({"head.bias": torch.zeros(3)}),
            r"'head.bias' is \(3,\) there and \(11,\) here",
        ),
        (
            lambda state: state.update({"head.bias": torch.zeros(11, dtype=torch.float32)}),
            "'head.bias' is F32 there and F64 here",
        ),
    ],
)
def test_a_file_of_another_model_is_refused_before_the_model_changes(saved, change, match):
    changed(saved, change)
    model = on_meta(Saved)
    with pytest.raises(CheckpointError, match=match):
        shoal.zero(model, adam, weights=saved)
    assert all(param.is_meta for param in model.parameters())


def test_a_file_that_was_cut_off_is_named(saved):
    whole = saved.read_bytes()
    for length in (0, 8, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with pytest.raises(
            CheckpointError, match="model.safetensors: it is no whole safetensors file"
        ) as refused:
            shoal.zero(on_meta(Saved), adam, weights=saved)
        assert "Copy it again" in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(saved, tmp_path):
    (tmp_path / "text").write_text("no weights")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "text"):
        with pytest.raises(CheckpointError, match=f"cannot read weights from {path}"):
            shoal.zero(on_meta(Saved), adam, weights=path)
    with pytest.raises(
        ConfigError, match=r"'seen' of module 'blocks.0' \(Block\) is a buffer that is not saved"
    ):
        shoal.zero(on_meta(), adam, weights=saved)
