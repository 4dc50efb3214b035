"""`param.grad` of `shoal.zero` and `shoal.OneCopy`: calls of a loop on it have the result of one machine."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError, MismatchError

WAYS = ["zero 1", "zero 2", "zero 3", "zero 3, gathered", "onecopy"]
STEPS, SIZE, EACH = 3, 2, 4
utils = nn.utils


def network(dtype=torch.float64, seed=0):
    """More elements than a chunk, so that both workers own some, and a parameter that is a number."""
    model = nn.Sequential(nn.Linear(6, 60), nn.PReLU(), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 3))
    draw = torch.Generator().manual_seed(seed)
    for param in model.parameters():
        nn.init.normal_(param, std=0.3, generator=draw)
    return model.to(dtype)


def samples(dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(STEPS, SIZE * EACH, 6, generator=draw, dtype=torch.float64)
    return inputs.to(dtype), torch.arange(SIZE * EACH) % 3


def adamw(params):
    """Two groups, as many programs have."""
    params = list(params)
    by_shape = [[each for each in params if each.dim() > 1], [each for each in params if each.dim() < 2]]
    return torch.optim.AdamW([{"params": each} for each in by_shape], lr=0.01, weight_decay=0.1)


def divided(way, model, group, **options):
    if way == "onecopy":
        return shoal.OneCopy(model, adamw, group, **options)
    group.maps_memory = "gathered" not in way
    return shoal.zero(model, adamw, int(way[5]), group, unit_mib=1e-3, **options)


def state_of(way, model, shared):
    """The whole model, on rank 0 at least, when no worker changes it."""
    shared.group.barrier().wait()
    state = model.state_dict() if way == "onecopy" else shared.model_state_dict()
    copied = {name: tensor.clone() for name, tensor in state.items()}
    shared.group.barrier().wait()
    return copied


def steps(model, optimizer, between, inputs, labels, parts=1):
    """A loop that knows nothing of workers; what `between` gives in each step, and the weights."""
    found = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for x, y in zip(inputs[step].chunk(parts), labels.chunk(parts), strict=True):
            (F.cross_entropy(model(x), y) / parts).backward()
        found.append(between(model, optimizer))
        optimizer.step()
    return found


def assert_equals_one_machine(way, between, dtype=torch.float64, parts=1, tolerance=1e-12):
    expected, (inputs, labels) = network(dtype), samples(dtype)
    wanted = steps(expected, adamw(expected.parameters()), between, inputs, labels)

    def work(group):
        model = network(dtype, seed=group.rank)
        shared = divided(way, model, group)
        mine = slice(EACH * group.rank, EACH * (group.rank + 1))
        found = steps(model, shared.optimizer, between, inputs[:, mine], labels[mine], parts)
        return found, state_of(way, model, shared)

    members = run_threads(SIZE, work)
    for found, _ in members:
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(members[0][1][name], tensor, rtol=tolerance, atol=tolerance)


def by_clip(**options):
    return lambda model, optimizer: utils.clip_grad_norm_(model.parameters(), 0.05, **options)


def params_of(optimizer):
    return [param for group in optimizer.param_groups for param in group["params"]]


def two_calls(model, optimizer):
    grads = [param.grad for param in model.parameters()]
    total = utils.get_total_norm(grads)
    utils.clip_grads_with_norm_(model.parameters(), 0.05, total)
    return total


def subset(model, optimizer):
    """Only of one layer, of which a worker may own nothing."""
    return utils.clip_grad_norm_(model[0].parameters(), 0.01)


def logged(model, optimizer):
    """What programs write to a log."""
    grads = [param.grad for param in model.parameters()]
    return [
        [grad.norm().item() for grad in grads],
        [grad.data.norm(2).item() ** 2 for grad in grads],
        [grad.abs().max().item() for grad in grads],
        [grad.detach().pow(2).sum().item() for grad in grads],
        [grad.mean().item() for grad in grads],
        [torch.isfinite(grad).all().item() for grad in grads],
        [(grad * 2).norm(dim=-1) for grad in grads],
    ]


def by_hand(model, optimizer):
    """Changes by element, in place and not, with numbers and with tensors, of one and of several gradients."""
    for param in model.parameters():
        ramp = torch.linspace(-1, 1, param.numel(), dtype=param.dtype).view(param.shape)
        param.grad.add_(ramp, alpha=0.1)
        param.grad *= torch.linspace(0, 1, param.shape[-1], dtype=param.dtype)
        param.grad = param.grad + 1e-3
        param.grad.masked_fill_(ramp > 0.5, 0.0)
    torch._foreach_div_([param.grad for param in model.parameters()], 2.0)
    model[2].weight.grad = torch.cat([model[2].weight.grad]) * 3  # the whole, as a plain tensor
    model[0].bias.grad.zero_()


CALLS = {
    "clip": by_clip(),
    "clip, foreach": by_clip(foreach=True),
    "clip, one by one": by_clip(foreach=False, error_if_nonfinite=True),
    "clip, sum of absolute values": by_clip(norm_type=1),
    "clip, largest": by_clip(norm_type=float("inf"), foreach=True),
    "clip, through the optimizer": lambda model, optimizer: utils.clip_grad_norm_(params_of(optimizer), 0.05),
    "clip, two calls": two_calls,
    "clip, subset": subset,
    "clip, twice": lambda model, optimizer: [by_clip()(model, optimizer), by_clip()(model, optimizer)],
    "clip values": lambda model, optimizer: utils.clip_grad_value_(model.parameters(), 1e-3),
    "clip values, foreach": lambda model, optimizer: utils.clip_grad_value_(
        params_of(optimizer), 1e-3, foreach=True
    ),
    "log": logged,
    "by hand": by_hand,
}


@pytest.mark.parametrize(
    ("way", "call"),
    [
        *((way, call) for way in ("zero 1", "zero 3, gathered", "onecopy") for call in CALLS),
        *(
            (way, call)
            for way in ("zero 2", "zero 3")
            for call in ("clip", "clip, foreach", "log", "by hand")
        ),
    ],
)
def test_calls_on_gradients_equal_one_machines(way, call):
    assert_equals_one_machine(way, CALLS[call])


@pytest.mark.parametrize("way", WAYS)
def test_it_is_close_in_float32_and_after_several_backward_passes(way):
    assert_equals_one_machine(way, by_clip(), torch.float32, tolerance=1e-4)
    assert_equals_one_machine(way, by_clip(), parts=2)


@pytest.mark.parametrize("way", [way for way in WAYS if "gathered" not in way])
def test_complex_parameters_have_norms_too(way):
    def clipped(model):
        (samples()[0][0].to(torch.complex128) @ model.weight.T).abs().sum().backward()
        norms = [
            utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=order) for order in (2, 1, torch.inf)
        ]
        return [*norms, model.weight.grad.abs().sum()]

    def linear():
        draw = torch.Generator().manual_seed(0)
        model = nn.Linear(6, 400, bias=False, dtype=torch.complex128)
        model.weight.data = torch.randn(400, 6, dtype=torch.complex128, generator=draw)
        return model

    def work(group):
        model = linear()
        divided(way, model, group)
        return clipped(model)

    for found in run_threads(SIZE, work):
        torch.testing.assert_close(found, clipped(linear()), rtol=1e-12, atol=0)


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_that_the_program_drops_is_not_used(way):
    """As on one machine, its parameter is not updated, not even by weight decay."""

    def work(group):
        model = network()
        shared = divided(way, model, group, unused="zero")
        model(samples()[0][0]).sum().backward()
        utils.clip_grad_norm_(model.parameters(), 1.0)
        model[2].weight.grad = None
        shared.step()
        model(samples()[0][1]).sum().backward()
        assert model[2].weight.grad.norm() > 0  # the next step has it again
        return state_of(way, model, shared).get("2.weight")

    assert torch.equal(run_threads(SIZE, work)[0], network()[2].weight.detach())


@pytest.mark.parametrize("way", WAYS[:4])
def test_a_backward_pass_adds_to_what_the_program_has_left_of_the_last_one(way):
    def passes(model):
        for step in range(2):
            model(samples()[0][step]).sum().backward()
            if not step:
                utils.clip_grad_norm_(model.parameters(), 0.01)
                model[2].weight.grad = None
                model[4].weight.grad = model[4].weight.grad * 2
        return [param.grad.norm() for param in model.parameters()]

    def work(group):
        model = network()
        divided(way, model, group)
        return passes(model)

    for found in run_threads(SIZE, work):
        torch.testing.assert_close(found, passes(network()), rtol=1e-12, atol=0)


def test_one_copy_sums_once_and_says_so():
    def work(group, again):
        model = network()
        shared = divided("onecopy", model, group)
        model(samples()[0][0]).sum().backward()
        utils.clip_grad_norm_(model.parameters(), 1.0)
        again(model, shared)

    with pytest.raises(ConfigError, match="a backward pass follows after param.grad was read or changed"):
        run_threads(SIZE, lambda group: work(group, lambda model, _: model(samples()[0][0]).sum().backward()))
    with pytest.raises(ConfigError, match="num_samples=4"):
        run_threads(SIZE, lambda group: work(group, lambda _, shared: shared.step(num_samples=4)))


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_scaler_leaves_a_step_out_on_all_workers(way):
    """Rank 1 has a number that is not finite, in gradients of which rank 0 owns a part."""

    def work(group):
        model, (inputs, _) = network(torch.float32), samples(torch.float32)
        shared = divided(way, model, group)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        states, norms = [state_of(way, model, shared)], []
        for factor in (1.0, torch.inf if group.rank else 1.0):
            scaler.scale((model(inputs[0]) * factor).sum()).backward()
            scaler.unscale_(shared.optimizer)
            norms.append(utils.clip_grad_norm_(model.parameters(), 1.0))
            scaler.step(shared.optimizer)
            scaler.update()
            shared.optimizer.zero_grad()
            states.append(state_of(way, model, shared))
        assert [norm.isfinite().item() for norm in norms] == [True, False]
        return scaler.get_scale(), states, norms[0]

    (scale, states, norm), (other_scale, _, other_norm) = run_threads(SIZE, work)
    expected = network(torch.float32)
    expected(samples(torch.float32)[0][0]).sum().backward()
    wanted = utils.get_total_norm([param.grad for param in expected.parameters()])
    torch.testing.assert_close([norm, other_norm], [wanted, wanted])
    assert scale == other_scale == 512.0
    first, second, third = (torch.cat([each.flatten() for each in state.values()]) for state in states)
    assert not torch.equal(first, second)
    assert torch.equal(second, third)


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_right_is_refused(way):
    def work(group, misuse):
        model = network()
        shared = divided(way, model, group)
        model(samples()[0][0]).sum().backward()
        misuse(model[2].weight, shared)

    def refused(error, match, misuse):
        with pytest.raises(error, match=match):
            run_threads(SIZE, lambda group: work(group, misuse))

    def after_the_step(weight, shared):
        grad = weight.grad
        shared.step()
        grad.norm()

    refused(
        ConfigError, r"a view \(view\) of the gradient of '2.weight'", lambda weight, _: weight.grad.flatten()
    )
    refused(ConfigError, "no longer there", after_the_step)

    def on_rank_0_only(weight, shared):
        if shared.group.rank == 0:
            weight.grad.norm()
        shared.step()

    refused(ConfigError, "own update of a parameter", lambda weight, _: weight.data.sub_(weight.grad))
    refused(MismatchError, "rank 0", on_rank_0_only)


@pytest.fixture
def _group_of_torch():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_group_of_torch")
def test_collectives_of_torch_read_whole_gradients_and_write_none():
    model, inputs = network(), samples()[0][0]
    expected = network()
    expected(inputs).sum().backward()
    divided("zero 3", model, shoal.join())
    model(inputs).sum().backward()
    for param, whole in zip(model.parameters(), expected.parameters(), strict=True):
        gathered = torch.empty_like(whole)
        dist.all_gather([gathered], param.grad)
        assert torch.equal(gathered, whole.grad)
        for write in (dist.all_reduce, lambda grad: dist.broadcast(grad, 0)):
            with pytest.raises(ConfigError, match=r"c10d::.* would write into the gradient of"):
                write(param.grad)


@pytest.mark.parametrize("way", WAYS)
def test_the_optimizers_own_state_is_still_saved_and_loaded(way):
    """Of the slices, although `param_groups` list whole parameters."""

    def work(group):
        model = network()
        shared = divided(way, model, group)
        model(samples()[0][0]).sum().backward()
        shared.step()
        saved = shared.optimizer.state_dict()
        shared.optimizer.load_state_dict(saved)
        assert {id(param) for param in params_of(shared.optimizer)} == {
            id(param) for param in model.parameters()
        }
        assert saved["state"]
        model(samples()[0][1]).sum().backward()
        shared.step()
        return state_of(way, model, shared)

    expected = network()
    optimizer = adamw(expected.parameters())
    for step in range(2):
        optimizer.zero_grad()
        expected(samples()[0][step]).sum().backward()
        optimizer.step()
    found = run_threads(SIZE, work)[0]
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-12, atol=1e-12)
