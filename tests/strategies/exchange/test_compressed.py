"""The compressed exchange: bytes on the wire, state, warm-up, layers, bad numbers."""

import pytest
import torch

from shoal.codecs.build import CODECS, build_codec
from shoal.codecs.codec import Form
from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.comm.traced import Traced
from shoal.config.sections.compression import CompressedConfig
from shoal.errors import ConfigError
from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import TrainingClock

SHAPES = {"fc2.weight": (5, 8), "fc2.bias": (5,), "fc1.weight": (8, 9)}


def gradients(rank, step=0, shapes=SHAPES):
    """One worker's gradients, one after the other in flat memory."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    numel = sum(torch.Size(shape).numel() for shape in shapes.values())
    return torch.randn(numel, generator=draw)


def bucket_of(flat, shapes=SHAPES):
    regions, offset = {}, 0
    for name, shape in shapes.items():
        stride = torch.empty(shape, device="meta").stride()
        regions[name] = Region(offset, shape, stride)
        offset += torch.Size(shape).numel()
    return Bucket(flat[:offset], regions)


def exchanged(config, workers=2, steps=1, change=lambda rank, step, flat: None, exchange=None):
    """The buckets of each worker after every step, and its exchange."""

    def work(group):
        clock = TrainingClock(total_steps=steps)
        mine = exchange(group.rank, clock) if exchange else Compressed(config, clock)
        flats = []
        for clock.step in range(steps):
            flat = gradients(group.rank, clock.step)
            change(group.rank, clock.step, flat)
            mine(group, bucket_of(flat)).wait()
            flats.append(flat)
        return flats, mine

    return run_threads(workers, work)


@pytest.mark.parametrize("codec", CODECS)
def test_the_bytes_on_the_wire_are_the_declared_ones(codec):
    config = CompressedConfig(codec=codec)

    def work(group):
        traced = Traced(group)
        Compressed(config, TrainingClock())(traced, bucket_of(gradients(group.rank))).wait()
        return sum(total.num_bytes for total in traced.totals.values())

    forms = {name: Form(shape, torch.float32) for name, shape in SHAPES.items()}
    declared = sum(
        build_codec(config.encoding_of(name)).fitted(form).num_bytes(form) for name, form in forms.items()
    )
    assert run_threads(2, work) == [declared, declared]


@pytest.mark.parametrize("codec", sorted(CODECS.keys() - {"dgc"}))
def test_what_is_not_in_the_aggregates_is_in_the_residuals(codec):
    feedback = None if codec == "none" else True
    members = exchanged(CompressedConfig(codec=codec, feedback=feedback), workers=3, steps=4)
    sent = sum(members[0][0])
    total = sum(gradients(rank, step) for rank in range(3) for step in range(4))
    rest = sum(
        torch.cat([mine.pieces()[f"residual.{name}"].reshape(-1) for name in SHAPES])
        for _, mine in members
        if codec != "none"
    )
    # Half precision rounds the sum once more.
    assert torch.allclose(sent + rest, total, atol=0.1 if codec in ("fp16", "bf16") else 1e-4)
    for flats, _ in members:
        assert all(map(torch.equal, flats, members[0][0])), "the same bits on all workers"


@pytest.mark.parametrize("codec", ["topk", "dgc", "powersgd", "average", "int8"])
def test_a_restored_exchange_goes_on_with_the_same_bits(codec):
    config = CompressedConfig(codec=codec)
    whole = exchanged(config, steps=4)
    first = exchanged(config, steps=2)

    def restored(rank, clock):
        mine = Compressed(config, clock)
        mine.load(first[rank][1].pieces())
        return mine

    def work(group):
        clock = TrainingClock()
        mine, flats = restored(group.rank, clock), []
        for clock.step in (2, 3):
            flats.append(gradients(group.rank, clock.step))
            mine(group, bucket_of(flats[-1])).wait()
        return flats

    for (flats, _), resumed in zip(whole, run_threads(2, work), strict=True):
        assert all(map(torch.equal, flats[2:], resumed))


def test_memories_of_another_codec_start_fresh():
    saved = exchanged(CompressedConfig(codec="powersgd"), steps=2)
    config = CompressedConfig(codec="dgc")

    def restored(rank, clock):
        mine = Compressed(config, clock)
        mine.load(
            {name: piece for name, piece in saved[rank][1].pieces().items() if name.startswith("memory.")}
        )
        return mine

    fresh, resumed = exchanged(config, steps=2), exchanged(config, steps=2, exchange=restored)
    assert all(map(torch.equal, fresh[0][0], resumed[0][0]))


def test_gradients_in_half_precision_are_refused():
    (alone,) = ThreadGroup.world(1)
    exchange = Compressed(CompressedConfig(codec="int8"), TrainingClock())
    with pytest.raises(ConfigError, match="int8 needs gradients in float32 or float64, but that of 'fc'"):
        exchange(alone, Bucket.of("fc", torch.ones(3, dtype=torch.bfloat16)))


def test_no_bit_depends_on_the_plan_of_buckets():
    config = CompressedConfig(codec="dgc")
    whole = exchanged(config, steps=3)

    def work(group):
        clock = TrainingClock()
        mine, flats = Compressed(config, clock), []
        for clock.step in range(3):
            flat, start = gradients(group.rank, clock.step), 0
            for name, shape in SHAPES.items():
                numel = torch.Size(shape).numel()
                mine(group, Bucket.of(name, flat[start : start + numel].view(shape))).wait()
                start += numel
            flats.append(flat)
        return flats

    for (flats, _), divided in zip(whole, run_threads(2, work), strict=True):
        assert all(map(torch.equal, flats, divided))


@pytest.mark.parametrize("codec", ["topk", "randomk", "powersgd", "int8", "sign"])
def test_bad_numbers_reach_all_workers_and_no_state(codec):
    config = CompressedConfig(codec=codec, feedback=True)

    def spoil(rank, step, flat):
        if rank == 1 and step == 1:
            flat[3] = torch.inf

    before = exchanged(config, steps=1)
    after = exchanged(config, steps=2, change=spoil)
    for (flats, mine), (_, earlier) in zip(after, before, strict=True):
        assert flats[1].isnan().all()
        pieces = mine.pieces()
        assert all(torch.equal(pieces[name], piece) for name, piece in earlier.pieces().items())


def test_powersgd_of_several_workers_is_that_of_their_sum():
    config = CompressedConfig(codec="powersgd", rank=1)
    flats, mine = exchanged(config, workers=3)[0]
    total = sum(gradients(rank) for rank in range(3))
    found, expected = bucket_of(flats[0]).views, bucket_of(total).views
    assert torch.allclose(found[1], expected[1], atol=1e-5), "a bias is sent as it is"
    assert torch.linalg.matrix_rank(found[2], atol=1e-4) == 1
    # The projection of the sum on the columns that were found.
    columns = torch.linalg.qr(found[2][:, :1]).Q
    assert torch.allclose(columns @ columns.T @ expected[2], found[2], atol=1e-4)
    assert mine.pieces()["memory.fc1.weight"].shape == (9, 1)


def test_the_ratio_falls_in_the_warm_up():
    config = CompressedConfig(codec="topk", ratio=0.05, warmup=4, feedback=False)
    (flats, _), _ = exchanged(config, steps=6)
    sent = [int(flat.count_nonzero()) for flat in flats]
    assert sent[0] == flats[0].numel()
    assert sent[:5] == sorted(sent[:5], reverse=True)
    assert torch.allclose(flats[0], gradients(0) + gradients(1))
    # At most the k largest of each worker: 2 of 40, 1 of 5, 4 of 72.
    assert max(sent[4:]) <= 14
    dense, _ = exchanged(CompressedConfig(codec="powersgd", warmup=1), steps=2)[0]
    assert torch.allclose(dense[0], gradients(0) + gradients(1))
    assert not torch.allclose(dense[1], gradients(0, 1) + gradients(1, 1), atol=0.1)


def test_each_layer_may_have_its_own_codec():
    config = CompressedConfig(codec="topk", ratio=0.05, layers=("*.bias=none", "fc1.*=0.25"))
    (flats, _), _ = exchanged(config)
    weight, bias, first = bucket_of(flats[0]).views
    assert torch.allclose(bias, bucket_of(gradients(0) + gradients(1)).views[1])
    assert 2 <= weight.count_nonzero() <= 4
    assert 18 <= first.count_nonzero() <= 36


def test_a_rank_larger_than_the_matrix_is_clamped_with_one_warning():
    with pytest.warns(
        UserWarning, match="rank 6 is larger than the shorter side of a 5 × 8 matrix"
    ) as caught:
        (flats, _), _ = exchanged(CompressedConfig(codec="powersgd", rank=6), steps=2)
    assert len(caught) == 1
    assert torch.allclose(
        bucket_of(flats[0]).views[0], bucket_of(gradients(0) + gradients(1)).views[0], atol=1e-5
    )


def test_sums_in_half_precision_are_finite():
    def enlarge(rank, step, flat):
        flat.mul_(1e9)

    (flats, _), _ = exchanged(CompressedConfig(codec="fp16"), change=enlarge)
    assert flats[0].isfinite().all()
    assert flats[0].abs().max() > 6e4


def test_a_transposed_gradient_is_one_in_the_order_of_memory():
    assert Bucket(torch.zeros(6), {"weight": Region(0, (2, 3), (1, 2))}).extents == [(slice(0, 6), (3, 2))]
