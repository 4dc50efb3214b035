"""Rules: every sample has exactly one owner, whatever the numbers; and each rule keeps its own promise."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.data.division.partition import PARTITIONS, divide
from shoal.errors import ConfigError, DataError

WORLD = st.tuples(st.integers(1, 50), st.integers(1, 12))


def options_for(name, workers):
    return {"speeds": range(1, workers + 1)} if name == "speed" else {}


def assert_everyone_once(parts, num_samples, workers):
    assert len(parts) == workers
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(num_samples))


@pytest.mark.parametrize("name", PARTITIONS)
@given(WORLD, st.integers(0, 5), st.data())
def test_every_sample_has_exactly_one_owner(name, world, seed, data):
    num_samples, workers = world
    labels = torch.tensor(data.draw(st.lists(st.integers(-2, 6), min_size=num_samples, max_size=num_samples)))
    assume(name != "label" or len(labels.unique()) >= workers)
    parts = divide(
        name,
        num_samples,
        workers,
        labels=labels.long(),
        seed=seed,
        allow_empty=True,
        **options_for(name, workers),
    )
    assert_everyone_once(parts, num_samples, workers)


@pytest.mark.parametrize("name", PARTITIONS)
def test_parts_depend_on_the_arguments_alone_and_leave_torchs_state_alone(name):
    labels = torch.arange(60) % 6
    state = torch.random.get_rng_state()
    first = divide(name, 60, 3, labels=labels, seed=4, **options_for(name, 3))
    assert torch.equal(state, torch.random.get_rng_state())
    torch.rand(5)
    again = divide(name, 60, 3, labels=labels, seed=4, **options_for(name, 3))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("name", ["random", "speed", "stratified", "label", "dirichlet"])
def test_another_seed_gives_other_parts(name):
    labels = torch.arange(60) % 6
    parts = [divide(name, 60, 3, labels=labels, seed=seed, **options_for(name, 3))[0] for seed in (0, 1)]
    assert sorted(parts[0].tolist()) != sorted(parts[1].tolist())


@pytest.mark.parametrize("name", ["random", "contiguous", "stratified"])
@given(st.integers(1, 200), st.integers(1, 12))
def test_parts_are_even_to_within_one(name, num_samples, workers):
    labels = torch.arange(num_samples) % 3
    sizes = [len(part) for part in divide(name, num_samples, workers, labels=labels, allow_empty=True)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ["random", "contiguous", "stratified"])
def test_sizes_are_whole_numbers_or_fractions(name):
    labels = torch.arange(100) % 4
    for sizes in ((70, 20, 10), (0.7, 0.2, 0.1)):
        parts = divide(name, 100, 3, labels=labels, sizes=sizes)
        assert [len(part) for part in parts] == [70, 20, 10]


def test_contiguous_parts_are_stretches():
    assert [part.tolist() for part in divide("contiguous", 7, 3)] == [[0, 1, 2], [3, 4], [5, 6]]


def test_the_random_parts_are_the_same_in_every_version():
    assert [part.tolist() for part in divide("random", 8, 2, seed=0)] == [[1, 6, 7, 3], [4, 5, 2, 0]]


def test_the_faster_worker_owns_more():
    parts = divide("speed", 1000, 3, speeds=(2.0, 1.0, 1.0))
    assert [len(part) for part in parts] == [500, 250, 250]


# ── hash ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 100), st.integers(0, 60), st.integers(1, 9))
def test_growing_the_data_set_moves_no_sample(num_samples, more, workers):
    before = divide("hash", num_samples, workers, allow_empty=True, seed=1)
    after = divide(
        "hash", num_samples + more, workers, allow_empty=True, seed=2
    )  # the seed has no say either
    for part, grown in zip(before, after, strict=True):
        assert set(part.tolist()) == {index for index in grown.tolist() if index < num_samples}


def test_a_further_worker_takes_samples_over_and_moves_no_others():
    before, after = divide("hash", 10_000, 4), divide("hash", 10_000, 5)
    assert all(set(new.tolist()) <= set(old.tolist()) for old, new in zip(before, after, strict=False))
    assert len(after[4]) == pytest.approx(2000, abs=200)


def test_hashed_parts_are_even_on_average():
    assert all(len(part) == pytest.approx(1250, abs=150) for part in divide("hash", 10_000, 8))


def test_by_key_a_sample_keeps_its_owner_wherever_it_stands():
    keys = [f"picture-{number}.png" for number in range(50)]
    owner = {
        keys[index]: rank
        for rank, part in enumerate(divide("hash", 50, 4, keys=keys))
        for index in part.tolist()
    }
    turned = keys[::-1]
    for rank, part in enumerate(divide("hash", 50, 4, keys=turned)):
        assert all(owner[turned[index]] == rank for index in part.tolist())


def test_numbers_as_keys_are_numbers():
    assert all(
        torch.equal(a, b)
        for a, b in zip(divide("hash", 20, 2), divide("hash", 20, 2, keys=list(range(20))), strict=True)
    )


# ── a rule of the user's own ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_of_the_users_own_gets_what_it_names():
    def odd_and_even(num_samples, workers, seed, first=0):
        assert seed == 7
        return [range((rank + first) % workers, num_samples, workers) for rank in range(workers)]

    assert [part.tolist() for part in divide(odd_and_even, 5, 2, seed=7, first=1)] == [[1, 3], [0, 2, 4]]


def test_a_rule_in_a_file_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text(
        "def backwards(num_samples, workers):\n"
        "    return [list(range(num_samples))[::-1][rank::workers] for rank in range(workers)]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert [part.tolist() for part in divide("my_rules:backwards", 4, 2)] == [[3, 1], [2, 0]]
    with pytest.raises(ConfigError, match="did you mean 'backwards'"):
        divide("my_rules:backward", 4, 2)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (None, "did not return a list of samples for each worker"),
        (["ab", "cd"], "did not return a list of samples for each worker"),
        ([[0, 1, 2]], "returned 1 parts for 2 workers"),
        ([[0, 1], [2, 4]], "returned sample 4, but samples are 0 to 3"),
        ([[0, 1], [-1, 3]], "returned sample -1"),
        ([[0, 1], [3]], "assigns 1 of 4 samples to no worker; the first is 2"),
        ([[0, 1, 2], [2, 3]], "assigns 1 of 4 samples more than once; the first is 2"),
        ([[0, 1, 2, 3], []], "leaves worker 1 without samples"),
    ],
)
def test_a_rule_that_is_no_partition_is_found_out(parts, sentence):
    def mine():
        return parts

    with pytest.raises(ConfigError, match=sentence):
        divide(mine, 4, 2)


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PARTITIONS)
def test_more_workers_than_samples_is_an_error_unless_parts_may_be_empty(name):
    with pytest.raises(ConfigError, match="3 samples are too few for 4 workers"):
        divide(name, 3, 4, labels=torch.arange(3))


@pytest.mark.parametrize(
    ("num_samples", "workers", "sentence"),
    [(0, 2, "cannot divide a data set without samples"), (5, 0, "≥ 1, got 0")],
)
def test_nothing_cannot_be_divided_nor_among_no_workers(num_samples, workers, sentence):
    with pytest.raises(ConfigError, match=sentence):
        divide("random", num_samples, workers, allow_empty=True)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("dirichlt", {}, "unknown partition 'dirichlt': did you mean 'dirichlet'"),
        ("random", {"alpha": 0.1}, "partition 'random' has no option 'alpha': it belongs to dirichlet"),
        ("hash", {"sizes": [5, 5]}, "partition 'hash' has no option 'sizes': it belongs to random"),
        ("contiguous", {"colour": 1}, "partition 'contiguous' has no option 'colour'"),
        ("dirichlet", {"alpha": 0.0}, "alpha must be > 0, got 0"),
        ("dirichlet", {"alpha": float("nan")}, "alpha must be > 0, got nan"),
        ("speed", {}, "partition speed: 0 speeds for 2 workers"),
        ("speed", {"speeds": (1, -1)}, "weights must be numbers ≥ 0"),
        ("random", {"sizes": [3, 3]}, "add up to 6, but the data set has 10 samples"),
        ("random", {"sizes": [0.3, 0.3]}, "fractions that add up to 0.6, expected 1"),
        ("random", {"sizes": [11, -1]}, "sizes must be ≥ 0"),
        ("random", {"sizes": [10]}, "1 sizes (10) for 2 workers"),
        ("hash", {"keys": ["a"]}, "1 keys for 10 samples"),
    ],
)
def test_bad_input_is_one_sentence(name, options, sentence):
    with pytest.raises(ConfigError) as caught:
        divide(name, 10, 2, labels=torch.arange(10) % 2, **options)
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (None, "requires labels, but the data set has none"),
        (torch.zeros(9), "9 labels for 10 samples"),
        (torch.zeros(10), "needs one integer per sample, but the labels are float32 of shape (10,)"),
        (torch.zeros(10, 2, dtype=torch.int64), "the labels are int64 of shape (10, 2)"),
    ],
)
@pytest.mark.parametrize("name", ["stratified", "label", "dirichlet"])
def test_labels_that_will_not_do_are_refused(name, labels, sentence):
    with pytest.raises(DataError) as caught:
        divide(name, 10, 2, labels=labels)
    assert sentence in caught.value.message


def test_a_rule_of_the_users_own_that_cannot_be_called_is_explained():
    def needy(num_samples, radius):
        return []

    with pytest.raises(ConfigError, match="cannot be called with num_samples: missing a required argument"):
        divide(needy, 4, 2)


def test_a_function_that_does_not_tell_its_parameters_is_refused():
    with pytest.raises(ConfigError, match="partition hypot has no signature"):
        divide("math:hypot", 4, 2)
