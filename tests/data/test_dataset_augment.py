import torch

from shoal.data.dataset import Augment
from shoal.data.seeds import hashed

PICTURES = torch.randint(
    0, 256, (500, 3, 8, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
INDICES = torch.arange(500)


def candidates(picture, shift):
    """All results that one picture can have, by slicing: the definition."""
    padded = torch.nn.functional.pad(picture, (shift,) * 4)
    height, width = picture.shape[1:]
    for down in range(2 * shift + 1):
        for right in range(2 * shift + 1):
            window = padded[:, down : down + height, right : right + width]
            yield down, right, False, window
            yield down, right, True, window.flip(-1)


def test_every_picture_is_one_of_its_shifted_or_mirrored_selves_and_all_of_these_occur():
    changed = Augment(shift=1)(PICTURES, INDICES, seed=0, epoch=0)
    seen = set()
    for before, after in zip(PICTURES, changed, strict=True):
        matches = [key for *key, window in candidates(before, 1) if torch.equal(window, after)]
        assert len(matches) == 1
        seen.add(tuple(matches[0]))
    assert len(seen) == 18
    mirrored = sum(mirror for *_, mirror in seen)
    assert mirrored == 9


def test_a_picture_is_changed_alike_however_the_batch_is_divided():
    augment = Augment()
    order = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    whole = augment(PICTURES[order], order, seed=3, epoch=2)
    for workers in (2, 3, 7):
        parts = [augment(PICTURES[part], part, seed=3, epoch=2) for part in order.chunk(workers)]
        assert torch.equal(torch.cat(parts), whole)


def test_epochs_and_seeds_change_it_and_the_global_state_does_not():
    augment = Augment()
    first = augment(PICTURES, INDICES, seed=0, epoch=0)
    torch.manual_seed(5)
    assert torch.equal(first, augment(PICTURES, INDICES, seed=0, epoch=0))
    for seed, epoch in ((0, 1), (1, 0)):
        other = augment(PICTURES, INDICES, seed=seed, epoch=epoch)
        same = (first == other).flatten(1).all(1).sum()
        assert same < 30  # of 500, where chance gives 500 / 162


def test_half_are_mirrored_and_shifts_are_even():
    bits = hashed(torch.arange(200_000), seed=12345)
    for shift in range(64):
        assert abs((bits >> shift & 1).double().mean() - 0.5) < 0.01
    places = ((bits & 0xFFFF) % 9).bincount()
    assert (places / len(bits) - 1 / 9).abs().max() < 0.005


def test_without_shift_and_mirror_nothing_changes():
    assert torch.equal(Augment(shift=0, mirror=False)(PICTURES, INDICES, 0, 0), PICTURES)
