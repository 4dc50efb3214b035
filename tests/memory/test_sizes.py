"""The numbers in the formulas, from settings and models."""

from shoal.config.read import read
from shoal.data.load import load
from shoal.memory.sized_pass import without_memory
from shoal.memory.sizes import samples_per_step, sizes_of, small_run


def sizes(flags, is_gpu=False):
    config = small_run(read(None, flags.split()))
    model = without_memory(config, load(config.data))
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    return sizes_of(config, model, params, is_gpu, True)


def test_optimizer_state_is_counted_for_each_parameter():
    linear = 784 * 10 + 10
    for flags, each in {"sgd": 0, "sgd --momentum 0.9": 4, "adam": 8, "torch.optim:RMSprop": 4}.items():
        found = sizes(f"--model linear --optimizer {flags}")
        assert (found.num_params, found.weights, found.state) == (linear, 4 * linear, each * linear)


def test_units_and_the_state_of_one_slice():
    found = sizes(
        "--model mlp --model.hidden 512,512 --strategy zero --strategy.unit_mib 1 --workers 2 --optimizer adam"
    )
    assert (found.num_units, found.workers, found.offload_window) == (3, 2, 0)
    assert found.unit >= 4 * 784 * 512
    on_gpu = sizes("--model linear --strategy zero --strategy.offload memory --optimizer adam", is_gpu=True)
    assert on_gpu.offload_window == 2 * 4 * 7840


def test_temporaries_are_those_of_the_readable_step():
    assert sizes("--model linear --optimizer adam").temporaries == 0
    assert sizes("--model linear --optimizer adam --optimizer.fast false").temporaries == 4 * 7840
    assert sizes("--model linear --optimizer torch.optim:RMSprop").temporaries is None
    decay = "--model linear --optimizer sgd --optimizer.fast false --weight-decay 0.1"
    assert sizes(decay).temporaries == 4 * 7840


def test_a_step_has_one_sample_for_each_worker_and_each_micro_batch():
    for flags, count in {
        "--strategy ddp --workers 3": 3,
        "--strategy ddp --workers 2 --batch-size 64 --micro-batch 8": 4,
        "--strategy dp --workers 3": 3,
        "--strategy tensor --workers 2": 1,
        "--mesh data=2,pipeline=2 --workers 4 --pipeline.microbatches 4": 8,
    }.items():
        assert samples_per_step(read(None, f"--model mlp {flags}".split())) == count


def test_a_gradient_of_a_part_is_added_where_there_are_several():
    run = "--model mlp --model.hidden 64 --batch-size 64"
    assert sizes(run).added == 0
    assert sizes(f"{run} --micro-batch 8").added == 4 * 784 * 64


def test_leaves_are_those_of_the_fullest_worker():
    invariant = "--model mlp --reduction invariant --micro-batch 8 --batch-size"
    for flags, leaves in {
        f"{invariant} 64 --strategy single": 8,
        f"{invariant} 44 --strategy single": 6,
        f"{invariant} 44 --strategy ddp --workers 2": 4,
        f"{invariant} 44 --strategy ddp --workers 8": 1,
        "--model mlp --strategy ddp --workers 2": 0,
    }.items():
        found = sizes(flags)
        assert found.leaves == leaves
        workers = max(1, found.workers)
        if leaves:
            assert samples_per_step(small_run(read(None, flags.split()))) == workers * leaves


def test_frozen_parameters_and_buffers_are_fixed():
    assert sizes("--model linear").fixed == 0
    resnet = sizes("--model resnet18 --model.width 8")
    channels = 8 * (5 + (4 + 1) * (2 + 4 + 8))  # of all batch norms: the stem, four blocks, shortcuts
    assert resnet.fixed == channels * 2 * 4 + 20 * 8, "mean, variance, and a count each"


def test_fresh_gradients_are_the_largest_and_the_small():
    flags = "--model mlp --model.hidden 512,512 --strategy ddp --workers 2"
    small = 4 * (512 + 512 + 512 * 10 + 10)
    assert sizes(flags).largest == small, "large linear layers compute theirs where they stay"
    for copied in ("--micro-batch 8", "--precision bf16", "--strategy zero"):
        assert sizes(f"{flags} {copied}").largest == 4 * 784 * 512 + small, copied
    static = sizes(f"{flags} --engine static")
    assert static.largest == static.weights


def test_storage_of_state_and_parameters():
    """784 · 64 + 64 · 10 weights; those of the second layer and the biases are too few to be stored in fewer bits."""
    run, large, small = "--model mlp --model.hidden 64 --optimizer adam", 784 * 64, 64 + 640 + 10
    for flags, weights, state in (
        ("", 4 * (large + small), 8 * (large + small)),
        ("--memory.state_bits 8", 4 * (large + small), 2 * (large + large // 64) + 8 * small),
        ("--memory.parameters bf16", 2 * large + 4 * small, 8 * (large + small)),
        (
            "--memory.parameters bf16 --memory.state_bits 8",
            2 * large + 4 * small,
            2 * (large + large // 64) + 8 * small,
        ),
    ):
        found = sizes(f"{run} {flags}")
        assert (found.num_params, found.weights, found.state) == (large + small, weights, state)


def test_gradients_that_are_updated_in_backward():
    run = "--model mlp --model.hidden 64 --memory.step_in_backward"
    assert sizes(run).updated_in_backward == 4 * 784 * 64
    whole = 4 * (784 * 64 + 64 + 640 + 10)
    assert sizes(f"{run} --strategy ddp --workers 2").updated_in_backward == whole
    in_small_buckets = sizes(f"{run} --strategy ddp --workers 2 --strategy.bucket_mib 0.001")
    assert in_small_buckets.updated_in_backward == 4 * (784 * 64 + 64)
