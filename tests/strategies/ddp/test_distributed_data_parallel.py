"""The wrapper in a loop of one's own: the same verbs as torch's, the same update on every worker."""

import contextlib
import copy
import pickle

import pytest
import torch
from strategy_cases import BATCH, distance, network, samples
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn import functional as F

import shoal
from shoal.comm.algorithms import ring
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.comm.traced import traced
from shoal.errors import ConfigError, GroupError, MemberError, MismatchError
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel
from shoal.strategies.exchange.exchange import By
from shoal.strategies.replicas.sync_batchnorm import SyncBatchNorm

STEPS = 4


def model_of(seed=0, network=network):
    draw = torch.Generator().manual_seed(seed)
    model = network().double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return model


def rows(step, start, count):
    inputs, labels = samples()
    at = slice(step * BATCH + start, step * BATCH + start + count)
    return inputs[at], labels[at]


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def one_machine(steps=STEPS):
    model = model_of()
    optimizer = optimizer_of(model)
    for step in range(steps):
        inputs, labels = rows(step, 0, BATCH)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return dict(model.named_parameters())


def loop(group, shares, exact=True, parts=1, set_to_none=True, **options):
    """A user's loop; with several parts, all but the last are computed under no_sync."""
    # Another seed on every worker: the wrapper makes them start alike.
    model = DistributedDataParallel(model_of(seed=group.rank), group, bucket_cap_mb=1e-4, **options)
    optimizer = optimizer_of(model)
    start, count = sum(shares[: group.rank]), shares[group.rank]
    for step in range(STEPS):
        inputs, labels = rows(step, start, count)
        optimizer.zero_grad(set_to_none)
        with model.batch(num_samples=count) if exact else contextlib.nullcontext():
            size = max(1, -(-count // parts))
            cuts = [(inputs[at : at + size], labels[at : at + size]) for at in range(0, count, size)]
            for number, (some, theirs) in enumerate(cuts, start=1):
                with model.no_sync() if number < len(cuts) else contextlib.nullcontext():
                    (F.cross_entropy(model(some), theirs, reduction="sum") / count).backward()
        optimizer.step()
    return {name: param.detach().clone() for name, param in model.module.named_parameters()}


def assert_is_one_machine(members):
    for name, param in one_machine().items():
        for member in members:
            assert torch.equal(member[name], members[0][name]), "workers hold different bits"
            assert distance(member[name], param) <= 1e-12


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("parts", [1, 3])
def test_equal_shares_need_nothing_else(parts, set_to_none, overlaps):
    def work(group):
        group.overlaps = overlaps
        return loop(group, (6, 6), exact=False, parts=parts, set_to_none=set_to_none)

    assert_is_one_machine(run_threads(2, work))


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("shares", [(11, 1), (0, 12), (7, 0, 5), (1, 8, 1, 2), (2, 2, 0, 8)])
def test_uneven_and_empty_shares_are_exact_when_their_sizes_are_given(shares, parts, overlaps):
    def work(group):
        group.overlaps = overlaps
        return loop(group, shares, parts=parts)

    assert_is_one_machine(run_threads(len(shares), work))


def test_untold_it_is_the_mean_over_workers_as_with_torchs():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        inputs, labels = rows(0, (0, 9)[group.rank], (9, 3)[group.rank])
        F.cross_entropy(model(inputs), labels).backward()
        return model.module[0].weight.grad

    means = []
    for start, count in ((0, 9), (9, 3)):
        inputs, labels = rows(0, start, count)
        model = model_of()
        F.cross_entropy(model(inputs), labels).backward()
        means.append(model[0].weight.grad)
    for gradient in run_threads(2, work):
        torch.testing.assert_close(gradient, (means[0] + means[1]) / 2)


def test_a_sum_by_any_exchange():
    assert_is_one_machine(run_threads(3, lambda group: loop(group, (3, 9, 0), exchange=By(ring))))
    assert_is_one_machine(run_threads(3, lambda group: loop(group, (3, 9, 0), exchange=ring)))


def test_gradients_that_are_not_zeroed_add_up_as_on_one_machine():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        for step in range(3):
            inputs, labels = rows(step, 6 * group.rank, 6)
            F.cross_entropy(model(inputs), labels).backward()
        return model.module[0].weight.grad.clone()

    model = model_of()
    for step in range(3):
        inputs, labels = rows(step, 0, BATCH)
        F.cross_entropy(model(inputs), labels).backward()
    for gradient in run_threads(2, work):
        torch.testing.assert_close(gradient, model[0].weight.grad)


def test_under_no_sync_nothing_is_sent_and_gradients_are_ones_own():
    def work(group):
        group = traced(group)
        model = DistributedDataParallel(model_of(), group)
        before = sum(total.calls for total in group.totals.values())
        with model.no_sync():
            inputs, labels = rows(0, 6 * group.rank, 6)
            F.cross_entropy(model(inputs), labels).backward()
        assert sum(total.calls for total in group.totals.values()) == before
        return model.module[0].weight.grad.clone()

    first, second = run_threads(2, work)
    assert not torch.equal(first, second)


def test_state_has_the_names_of_torchs_wrapper():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        assert not model.eval().module.training
        assert model.train().module.training
        names = list(model.state_dict())
        model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()})
        return names, model.module[0].bias.detach().tolist()

    for names, bias in run_threads(2, work):
        assert names == [f"module.{name}" for name in model_of().state_dict()]
        assert bias == [1.0] * 8


def test_alone_no_hook_is_installed():
    group = traced(ThreadGroup.world(1)[0])
    model = shoal.DistributedDataParallel(model_of(), group)
    inputs, labels = rows(0, 0, BATCH)
    with model.batch(num_samples=BATCH), model.no_sync():
        F.cross_entropy(model(inputs), labels).backward()
    assert not group.totals
    assert all(param._post_accumulate_grad_hooks is None for param in model.parameters())


def test_a_pass_after_an_exchange_begins_with_rank_0s_buffers_and_leaves_each_worker_its_own():
    def work(group):
        norm = nn.BatchNorm1d(6, momentum=0.5).double()
        model = DistributedDataParallel(nn.Sequential(norm, nn.Linear(6, 5).double()), group)
        means = []
        for step in range(2):
            inputs, labels = rows(step, 6 * group.rank, 6)
            F.cross_entropy(model(inputs), labels).backward()
            means.append((norm.running_mean.clone(), inputs.mean(0)))
        return means, norm.num_batches_tracked.item()

    (ours, count), (theirs, other_count) = run_threads(2, work)
    assert count == other_count == 2
    for means in (ours, theirs):
        torch.testing.assert_close(means[0][0], 0.5 * means[0][1])
        torch.testing.assert_close(means[1][0], 0.5 * ours[0][0] + 0.5 * means[1][1])


def broadcasts_of(module, loop):
    """How many broadcasts `loop(model, inputs)` makes, on each of two workers."""

    def work(group):
        group = traced(group)
        model = DistributedDataParallel(module(), group)
        inputs = rows(0, 6 * group.rank, 6)[0].float()
        model(inputs).mean().backward()
        before = group.totals["broadcast"].calls
        loop(model, inputs)
        return group.totals["broadcast"].calls - before

    return run_threads(2, work)


def three_steps(model, inputs):
    for _ in range(3):
        model(inputs).mean().backward()


def test_buffers_of_all_types_travel_in_one_broadcast_and_no_buffers_in_none():
    assert broadcasts_of(lambda: nn.BatchNorm1d(6), three_steps) == [3, 3]
    assert broadcasts_of(lambda: nn.Linear(6, 2), three_steps) == [0, 0]


def test_a_pass_of_one_worker_alone_is_an_error_that_names_the_fix():
    def work(group):
        model = DistributedDataParallel(nn.BatchNorm1d(6), group)
        inputs = rows(0, 6 * group.rank, 6)[0].float()
        if group.rank == 0:
            with torch.no_grad():
                model.module.eval()(inputs)
                with pytest.raises(MismatchError, match=r"model\.module"):
                    model.eval()(inputs)
        else:
            with pytest.raises(MismatchError):
                group.barrier().wait()

    run_threads(2, work)


def test_a_worker_without_samples_takes_part_in_the_copy_of_buffers():
    def loop(model, inputs):
        for empty in (0, 1):
            here = 0 if model._group.rank == empty else len(inputs)
            with model.batch(num_samples=here):
                if here:
                    with model.no_sync():
                        (model(inputs).mean() / 2).backward()
                    (model(inputs).mean() / 2).backward()
        three_steps(model, inputs)

    assert broadcasts_of(lambda: nn.BatchNorm1d(6), loop) == [5, 5]


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, inputs):
        return self.used(inputs)


@pytest.mark.parametrize("overlaps", [False, True])
def test_backward_itself_names_a_parameter_without_gradient(overlaps):
    def work(group):
        group.overlaps = overlaps
        model = DistributedDataParallel(model_of(network=Forked), group, bucket_cap_mb=1e-4)
        inputs, labels = rows(0, 0, 6)
        F.cross_entropy(model(inputs), labels).backward()

    with pytest.raises(ConfigError, match=r"no gradient reached 'unused.weight', 'unused.bias' on rank \d"):
        run_threads(2, work)


def test_find_unused_parameters_allows_it_and_leaves_it_alone():
    def work(group):
        model = DistributedDataParallel(model_of(network=Forked), group, find_unused_parameters=True)
        inputs, labels = rows(0, 6 * group.rank, 6)
        F.cross_entropy(model(inputs), labels).backward()
        return model.module.unused.weight.grad, model.module.used.weight.grad

    (unused, used), (other_unused, other_used) = run_threads(2, work)
    assert unused is None
    assert other_unused is None
    assert torch.equal(used, other_used)


def test_models_that_differ_are_refused_with_both_sides():
    def work(group):
        DistributedDataParallel(nn.Linear(4, 3 + group.rank), group)

    with pytest.raises(
        MismatchError, match=r"rank 1 has another model: .* weight \(4, 4\).*; on rank 0 .* \(3, 4\)"
    ):
        run_threads(2, work)


def test_a_batch_without_backward_is_refused():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        with model.batch(num_samples=5):
            pass

    with pytest.raises(ConfigError, match=r"batch\(num_samples=5\) ended without an exchange"):
        run_threads(2, work)


ACCEPTED = {
    "device_ids": None,
    "output_device": None,
    "dim": 0,
    "broadcast_buffers": True,
    "process_group": None,
    "bucket_cap_mb": 25,
    "find_unused_parameters": True,
    "check_reduction": False,
    "gradient_as_bucket_view": True,
    "static_graph": True,
}


def test_torchs_keywords_are_taken():
    assert DistributedDataParallel(nn.Linear(2, 2), **ACCEPTED)(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mixed_precision": 1}, "mixed_precision=1 is not supported"),
        ({"device_mesh": object()}, "device_mesh="),
        ({"dim": 1}, "dim=1"),
        ({"output_device": 1}, "output_device=1"),
        ({"device_ids": [0, 1]}, "a worker computes on one device"),
        ({"device_ids": [0]}, "device_ids names cuda:0, but parameter 'weight' is on cpu"),
        ({"bucket_cap": 3}, "unknown option 'bucket_cap'"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        DistributedDataParallel(nn.Linear(2, 2), **options)


def test_a_module_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="ReLU has no parameter that requires a gradient"):
        DistributedDataParallel(nn.ReLU())


@pytest.mark.parametrize("bucket_mb", [25, 1e-4])
def test_a_hook_makes_the_aggregate_and_sees_what_torchs_sees(bucket_mb):
    """Summing it by the group itself, and dividing, is what happens without a hook."""
    seen = {}

    def train(group, hooked):
        model = DistributedDataParallel(model_of(), group, bucket_cap_mb=bucket_mb)
        plain = traced(group)

        def hook(state, bucket):
            for param, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                assert param.shape == gradient.shape
            seen.setdefault(group.rank, []).append((state, bucket.index(), bucket.is_last()))
            whole = bucket.buffer().clone()
            plain.all_reduce(whole).wait()
            future = torch.futures.Future()
            future.set_result(whole / group.size)
            return future

        if hooked:
            model.register_comm_hook("mine", hook)
        inputs, labels = rows(0, 6 * group.rank, 6)
        F.cross_entropy(model(inputs), labels).backward()
        return [param.grad.clone() for param in model.parameters()]

    with_hook = run_threads(2, lambda group: train(group, True))
    without = run_threads(2, lambda group: train(group, False))
    for ours, theirs in zip(with_hook[0] + with_hook[1], without[0] + without[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    count = len(seen[0])
    assert seen[0] == [("mine", index, index == count - 1) for index in range(count)]
    assert (count == 1) == (bucket_mb == 25)


def test_programs_may_switch_the_exchange_off_by_torchs_attribute():
    def work(group):
        model = DistributedDataParallel(nn.Linear(2, 1), group)
        model.require_backward_grad_sync = False
        model(torch.full((1, 2), 1.0 + group.rank)).sum().backward()
        alone = model.module.weight.grad.clone()
        model.require_backward_grad_sync = True
        model(torch.zeros(1, 2)).sum().backward()
        return alone, model.module.weight.grad, model.require_backward_grad_sync

    for rank, (alone, together, exchanges) in enumerate(run_threads(2, work)):
        assert torch.equal(alone, torch.full((1, 2), 1.0 + rank))
        assert torch.equal(together, torch.full((1, 2), 1.5))
        assert exchanges


def test_torchs_second_argument_is_taken_for_what_it_is_there():
    with pytest.raises(ConfigError, match="device_ids names cuda:1, but parameter 'weight' is on cpu"):
        DistributedDataParallel(nn.Linear(2, 2), [1])
    with pytest.raises(ConfigError, match="expected a Group, a list or none, got 3"):
        DistributedDataParallel(nn.Linear(2, 2), 3)


# Loops that end at different times.

LENGTHS = (2, 4, 1)


def with_running_mean():
    return nn.Sequential(network(), nn.BatchNorm1d(5, affine=False))


def ending_early(group, lengths=LENGTHS, **options):
    model = DistributedDataParallel(model_of(seed=group.rank, network=with_running_mean), group)
    optimizer = optimizer_of(model)
    with model.join(**options):
        for step in range(lengths[group.rank]):
            inputs, labels = rows(step, 4 * group.rank, 4)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


@pytest.mark.parametrize("by_all", [True, False])
def test_workers_that_end_early_are_zeros_and_end_with_the_model_of_the_last(by_all):
    members = run_threads(3, lambda group: ending_early(group, divide_by_initial_world_size=by_all))
    replicas = [model_of(seed=0, network=with_running_mean) for _ in LENGTHS]
    optimizers = [optimizer_of(replica) for replica in replicas]
    for step in range(max(LENGTHS)):
        present = [rank for rank, length in enumerate(LENGTHS) if step < length]
        statistics = {name: buffer.clone() for name, buffer in replicas[present[-1]].named_buffers()}
        for rank in present:
            replicas[rank].load_state_dict(replicas[rank].state_dict() | statistics)
            inputs, labels = rows(step, 4 * rank, 4)
            optimizers[rank].zero_grad()
            F.cross_entropy(replicas[rank](inputs), labels).backward()
        divisor = len(LENGTHS) if by_all else len(present)
        columns = zip(*(replicas[rank].parameters() for rank in present), strict=True)
        for column in [list(each) for each in columns]:
            mean = sum(param.grad for param in column) / divisor
            for param in column:
                param.grad.copy_(mean)
        for rank in present:
            optimizers[rank].step()
    expected = replicas[LENGTHS.index(max(LENGTHS))].state_dict()
    for member in members:
        for name, tensor in expected.items():
            torch.testing.assert_close(member[name], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("clears", [True, False])
def test_a_worker_that_ends_early_keeps_no_gradients_of_the_others(clears):
    """A loop that clears gradients after the update would add them to those of its next first step."""

    def work(group):
        model = DistributedDataParallel(nn.Linear(3, 2, bias=False), group)
        with model.join():
            for step in range(1 + group.rank):
                model(torch.full((1, 3), 1.0 + step)).sum().backward()
                if clears:
                    model.zero_grad()
        grad = model.module.weight.grad
        return None if grad is None else grad.unique().tolist()

    # Not cleared, rank 1's second gradient, 2, is added to the first, 1, and averaged with nothing of rank 0.
    assert run_threads(2, work) == ([None, None] if clears else [[1.0], [1.5]])


def test_a_worker_that_ends_early_is_named_where_none_may():
    def work(group):
        with pytest.raises(GroupError, match="rank 2 ran out of inputs before rank 0"):
            ending_early(group, throw_on_early_termination=True)

    run_threads(3, work)


def test_exact_batches_are_not_for_loops_that_end_early():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        with pytest.raises(ConfigError, match="not supported inside join"), model.join(), model.batch(3):
            pass

    run_threads(2, work)


def test_alone_or_switched_off_joining_changes_nothing():
    (alone,) = run_threads(1, lambda group: ending_early(group, lengths=(3,)))
    pair = run_threads(2, lambda group: ending_early(group, lengths=(3, 3), enable=False))
    together = run_threads(2, lambda group: ending_early(group, lengths=(3, 3)))
    assert alone.keys() == pair[0].keys()
    for name, _ in with_running_mean().named_parameters():
        assert torch.equal(pair[0][name], together[0][name])


# What programs do with torch's wrapper besides training.


def test_copies_share_the_group_and_only_meet_when_they_are_trained():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        inputs, labels = rows(0, 6 * group.rank, 6)
        if group.rank == 0:  # alone: the best model so far, kept to be evaluated
            with torch.no_grad():
                copy.deepcopy(model)(inputs)
        twin = copy.deepcopy(model)
        F.cross_entropy(twin(inputs), labels).backward()
        assert model.module[0].weight.grad is None
        F.cross_entropy(model(inputs), labels).backward()
        return twin.module[0].weight.grad, model.module[0].weight.grad

    for twins, models in run_threads(2, work):
        assert torch.equal(twins, models)


def test_a_copy_of_a_module_leaves_the_group_of_its_batch_norms_behind():
    def work(group):
        module = SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)))
        model = DistributedDataParallel(module.double(), group)
        copied = copy.deepcopy(model.module)
        if group.rank == 0:  # alone
            copied(rows(0, 0, 6)[0])
        return module[1].group is group, copied[1].group

    assert run_threads(2, work) == [(True, None)] * 2


def test_a_wrapper_that_was_saved_and_loaded_needs_a_group_that_can_be_found():
    model = pickle.loads(pickle.dumps(DistributedDataParallel(model_of())))
    inputs, labels = rows(0, 0, BATCH)
    F.cross_entropy(model(inputs), labels).backward()
    (group,) = ThreadGroup.world(1)
    lost = pickle.loads(pickle.dumps(DistributedDataParallel(model_of(), group)))
    with torch.no_grad():
        lost(inputs)
    with pytest.raises(ConfigError, match=r"had a group of its own.*\n.*Wrap its module again"):
        lost(inputs)


def test_a_module_outlives_its_wrapper_and_trains_alone():
    def work(group):
        module = model_of()
        model = DistributedDataParallel(module, group)
        inputs, labels = rows(0, 6 * group.rank, 6)
        F.cross_entropy(model(inputs), labels).backward()
        del model
        assert all(not param._post_accumulate_grad_hooks for param in module.parameters())

    run_threads(2, work)


class Assigning(nn.Module):
    """Replaces its buffer, and has another one that no state tells of."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("scale", torch.rand(6), persistent=False)

    def forward(self, inputs):
        self.mean = 0.5 * self.mean + 0.5 * inputs.mean(0)
        return self.layer((inputs - self.mean) * self.scale)

    def get_extra_state(self):
        return {"not": "a tensor"}

    def set_extra_state(self, state):
        del state


def test_buffers_are_rank_0s_also_if_they_are_replaced_or_not_in_the_state():
    def work(group):
        module = model_of(network=Assigning)
        torch.nn.init.constant_(module.scale, 1.0 + group.rank)
        model = DistributedDataParallel(module, group)
        scale = module.scale.clone()
        means = []
        for step in range(2):
            inputs, labels = rows(step, 6 * group.rank, 6)
            F.cross_entropy(model(inputs), labels).backward()
            means.append(module.mean.clone())
        return scale, *means

    (scale, first, _), (other_scale, _, second) = run_threads(2, work)
    assert torch.equal(scale, other_scale)
    torch.testing.assert_close(second, 0.5 * first + 0.5 * rows(1, 6, 6)[0].mean(0))


def test_buffers_that_are_not_shared_are_ones_own_from_the_start():
    def work(group):
        norm = nn.BatchNorm1d(6)
        torch.nn.init.constant_(norm.running_mean, float(group.rank))
        DistributedDataParallel(norm, group, broadcast_buffers=False)
        own = norm.running_mean.clone()
        model = DistributedDataParallel(norm, group, forward_sync_buffers=False)
        assert not model.broadcast_buffers
        assert not model.will_sync_module_buffers()
        return own[0].item(), norm.running_mean[0].item()

    assert run_threads(2, work) == [(0.0, 0.0), (1.0, 0.0)]


def test_a_graph_that_holds_buffers_survives_an_exchange():
    def work(group):
        module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 5)).double()
        model = DistributedDataParallel(module, group).eval()
        outputs = model(rows(0, 6 * group.rank, 6)[0])
        outputs.mean().backward(retain_graph=True)
        outputs.square().mean().backward()

    run_threads(2, work)


def test_parameters_that_the_module_ignores_are_not_exchanged():
    def work(group):
        module = nn.Linear(2, 1)
        torch.nn.init.constant_(module.bias, float(group.rank))
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["bias"])
        model = DistributedDataParallel(module, group)
        ((1 + group.rank) * model(torch.ones(1, 2))).sum().backward()
        return module.bias.item(), module.bias.grad.item(), module.weight.grad.tolist()

    assert run_threads(2, work) == [(0.0, 1.0, [[1.5, 1.5]]), (1.0, 2.0, [[1.5, 1.5]])]


def test_gradients_that_a_program_keeps_are_not_written_over():
    def work(group):
        model = DistributedDataParallel(nn.Linear(2, 1), group)
        model(torch.ones(1, 2)).sum().backward()
        before = [param.grad for param in model.parameters()]
        model.zero_grad()
        model(torch.full((1, 2), 3.0)).sum().backward()
        return before[0].tolist(), model.module.weight.grad.tolist()

    assert run_threads(2, work) == [([[1.0, 1.0]], [[3.0, 3.0]])] * 2


@pytest.mark.parametrize("late", [False, True])
def test_a_static_graph_may_have_parameters_that_no_gradient_reaches(late):
    def work(group):
        model = DistributedDataParallel(model_of(network=Forked), group, static_graph=not late)
        if late:
            model._set_static_graph()
        assert model.static_graph
        inputs, labels = rows(0, 6 * group.rank, 6)
        F.cross_entropy(model(inputs), labels).backward()
        return model.module.unused.weight.grad, model.module.used.weight.grad

    (unused, used), (_, other) = run_threads(2, work)
    assert unused is None
    assert torch.equal(used, other)


def test_means_of_three_are_as_exact_as_the_gradients():
    def work(group):
        weight = nn.ParameterList([nn.Parameter(torch.ones(1, dtype=torch.complex128))])
        model = DistributedDataParallel(_Scaled(weight), group)
        model(torch.ones(1)).real.sum().backward()
        return weight[0].grad.item()

    assert run_threads(3, work) == [pytest.approx(1.0, abs=1e-15)] * 3


class _Scaled(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, inputs):
        return inputs * self.weights[0]


def test_what_programs_ask_of_torchs_wrapper_is_answered():
    model = DistributedDataParallel(nn.BatchNorm1d(2), find_unused_parameters=True)
    assert model.device_ids is model.output_device is model.process_group is None
    assert (model.device, model.device_type) == (torch.device("cpu"), "cpu")
    assert model.find_unused_parameters
    assert model.broadcast_buffers
    assert not model.static_graph
    logged = model._get_ddp_logging_data()
    assert (logged["world_size"], logged["rank"], logged["module_name"]) == (1, 0, "BatchNorm1d")
    assert not logged.get("can_set_static_graph"), "Lightning would advise to set it"
    with pytest.raises(ConfigError, match=r"this program has none\n.*with model.join"):
        Join([model])


def test_checkpoints_of_torch_have_the_names_of_the_module():
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    module = network()
    model = DistributedDataParallel(module)
    state = get_model_state_dict(model)
    assert list(state) == list(module.state_dict())
    set_model_state_dict(model, {name: tensor + 1 for name, tensor in state.items()})
    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in state.items())
    nested = nn.ModuleDict({"part": DistributedDataParallel(nn.Linear(2, 1))})
    assert list(get_model_state_dict(nested)) == ["part.weight", "part.bias"]


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.LazyLinear(3), "parameter 'weight' has no shape yet"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2)),
            r"layer '1' is torch's SyncBatchNorm.*\n.*shoal\.Sync",
        ),
    ],
)
def test_layers_that_cannot_be_trained_so_are_named(module, sentence):
    with pytest.raises(ConfigError, match=sentence):
        DistributedDataParallel(module)


def test_a_hook_around_a_hook_may_hand_on_another_dtype():
    def work(group):
        def rounded(state, bucket):
            bucket.set_buffer(bucket.buffer().to(torch.float16))
            future = inner(state, bucket)
            return future.then(lambda done: bucket.buffer().copy_(done.value()))

        def inner(state, bucket):
            assert bucket.buffer().dtype is torch.float16
            group.all_reduce(bucket.buffer()).wait()
            future = torch.futures.Future()
            future.set_result(bucket.buffer() / group.size)
            return future

        model = DistributedDataParallel(nn.Linear(2, 1), group)
        model.register_comm_hook(None, rounded)
        model(torch.full((1, 2), 1.0 + 2.0**-14)).sum().backward()
        return model.module.weight.grad.tolist()

    assert run_threads(2, work) == [[[1.0, 1.0]]] * 2


def test_the_first_step_that_only_one_worker_makes_is_an_error_that_says_so():
    def work(group):
        model = DistributedDataParallel(model_of(), group)
        for step in range(3 - group.rank):  # rank 1 makes one step less
            inputs, labels = rows(step, 0, BATCH)
            with model.batch(num_samples=len(labels)):
                F.cross_entropy(model(inputs), labels).backward()

    with pytest.raises(MemberError, match="rank 1 finished earlier, before all_reduce #") as caught:
        run_threads(2, work)
    assert "unequal numbers of steps" in caught.value.hint
    assert "join()" in caught.value.hint
