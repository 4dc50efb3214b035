import gzip
import os
import socket
import threading
import time
from dataclasses import replace

import pytest
import torch

from shoal.config.sections.data import Cifar10Config, MnistConfig
from shoal.data.load import load
from shoal.data.sources.fetch import fetch
from shoal.data.sources.files import find, verify
from shoal.errors import DataError

FIRST = "train-images-idx3-ubyte"


def serve(mirror, published, below="", change=None):
    """Let the mirror have MNIST in miniature, gzip'ed, its first file changed."""
    for name, content in published.contents["mnist"].items():
        packed = gzip.compress(content)
        mirror.serve(f"{below}{name}.gz", change(packed) if change and name == FIRST else packed)


def get(published, name="mnist", **options):
    return fetch(name, catalogue=published.catalogue, timeout_s=5, **options)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def cached(tmp_path):
    return tmp_path / "cache" / "shoal"


def test_what_was_fetched_loads_and_is_not_fetched_again(published, mirror, cached):
    serve(mirror, published)
    grown = []
    rows = get(published, mirrors=[mirror.address], progress=lambda *row: grown.append(row))
    assert [row.name for row in rows] == list(published.contents["mnist"])
    assert all(row.source.startswith(mirror.address) for row in rows)
    assert names_in(cached / "mnist") == sorted(published.contents["mnist"])
    assert (FIRST, 616, 616) in grown
    assert len(load(MnistConfig(), catalogue=published.catalogue).train) == 30

    asked = len(mirror.asked)
    again = get(published, mirrors=[mirror.address])
    assert [row.source for row in again] == ["already here"] * 4
    assert len(mirror.asked) == asked


def test_a_damaged_file_is_fetched_again_and_the_others_are_not(published, mirror, cached):
    serve(mirror, published)
    published.write("mnist", cached / "mnist")
    (cached / "mnist" / FIRST).write_bytes(bytes(616))
    get(published, mirrors=[mirror.address])
    assert mirror.asked == [f"/{FIRST}.gz"]
    assert not any(state.problem for state in verify("mnist", catalogue=published.catalogue))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda packed: packed[:-30], "is truncated: its gzip data end too early"),
        (lambda packed: gzip.compress(bytes(616)), "is not the published file: sha256 .*, published "),
        (lambda packed: gzip.compress(bytes(600)), "is truncated: 600 of 616 bytes"),
        (lambda packed: gzip.compress(bytes(10_000_000)), "holds more than the expected 616 bytes"),
        (lambda packed: b"<html>Welcome to the hotel</html>", "is a web page, not data"),
        (lambda packed: b"", "is empty"),
    ],
    ids=["truncated", "sum", "short", "bomb", "web page", "empty"],
)
def test_a_bad_answer_is_named_and_leaves_nothing_and_the_next_mirror_is_asked(
    published, mirror, cached, change, sentence
):
    serve(mirror, published, "bad/", change)
    with pytest.raises(DataError, match=sentence) as caught:
        get(published, mirrors=[f"{mirror.address}bad/"])
    assert f"{mirror.address}bad/{FIRST}.gz" in caught.value.message
    assert names_in(cached / "mnist") == []

    serve(mirror, published, "good/")
    rows = get(published, mirrors=[f"{mirror.address}bad/", f"{mirror.address}good/"])
    assert rows[0].source == f"{mirror.address}good/{FIRST}.gz"
    assert not any(state.problem for state in verify("mnist", catalogue=published.catalogue))


def test_a_connection_that_breaks_off_is_named(published, mirror, cached):
    packed = gzip.compress(published.contents["mnist"][FIRST])
    mirror.serve(f"{FIRST}.gz", packed[:100], promised=len(packed))
    with pytest.raises(DataError, match=f"connection lost after 100 of {len(packed)} bytes"):
        get(published, mirrors=[mirror.address])
    assert names_in(cached / "mnist") == []


def test_a_server_that_refuses_is_quoted(published, mirror):
    mirror.serve(f"{FIRST}.gz", b"", status=403)
    with pytest.raises(DataError, match="HTTP 403 Forbidden"):
        get(published, mirrors=[mirror.address])


def test_without_a_network_it_says_which_files_which_folder_and_which_command(published):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        unreachable = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(DataError, match="cannot fetch mnist from any mirror: cannot reach") as caught:
            get(published, mirrors=[unreachable])
    for word in ("Without a network", FIRST, "shoal data fetch mnist --from FOLDER", "--data-dir FOLDER"):
        assert word in caught.value.hint


def test_a_server_that_never_answers_is_given_up(published):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(DataError, match="timed out"):
            fetch("mnist", mirrors=[address], timeout_s=0.2, catalogue=published.catalogue)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_from_a_folder_of_files(published, tmp_path, cached, packed):
    source = published.write("mnist", tmp_path / "stick" / "MNIST" / "raw", packed)
    rows = get(published, from_dir=str(tmp_path / "stick"))
    assert all(row.source.startswith(str(source)) for row in rows)
    assert names_in(cached / "mnist") == sorted(published.contents["mnist"])
    assert not any(state.problem for state in verify("mnist", catalogue=published.catalogue))


def test_a_folder_with_the_wrong_files_gives_nothing(published, tmp_path, cached):
    published.write("fashion-mnist", tmp_path / "stick")
    with pytest.raises(DataError, match="is not the published file"):
        get(published, from_dir=str(tmp_path / "stick"))
    assert names_in(cached / "mnist") == []
    with pytest.raises(DataError, match="does not hold data_batch_1.bin"):
        get(published, "cifar10", from_dir=str(tmp_path / "stick"))
    with pytest.raises(DataError, match="folder .*nowhere does not exist"):
        get(published, from_dir=str(tmp_path / "nowhere"))


def test_the_archive_is_unpacked_by_name_and_evil_members_are_not_looked_at(
    published, tmp_path, mirror, cached
):
    """The archive also holds `../evil` and `/tmp/evil`."""
    mirror.serve("cifar-10-binary.tar.gz", published.archive)
    rows = get(published, "cifar10", mirrors=[mirror.address])
    assert len(rows) == 6
    assert names_in(cached / "cifar10") == sorted(published.contents["cifar10"])
    assert not list(tmp_path.rglob("*evil*"))
    assert len(load(Cifar10Config(), catalogue=published.catalogue).train) == 30


def test_the_archive_may_lie_in_a_folder(published, tmp_path, cached):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(published.archive)
    get(published, "cifar10", from_dir=str(tmp_path))
    assert names_in(cached / "cifar10") == sorted(published.contents["cifar10"])


@pytest.mark.parametrize("way", ["mirror", "folder"])
def test_a_damaged_archive_is_refused_before_it_is_opened(published, tmp_path, mirror, cached, way):
    damaged = published.archive[:-1] + b"x"
    mirror.serve("cifar-10-binary.tar.gz", damaged)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(damaged)
    options = {"mirrors": [mirror.address]} if way == "mirror" else {"from_dir": str(tmp_path)}
    with pytest.raises(DataError, match="cifar-10-binary.tar.gz is not the published file: sha256"):
        get(published, "cifar10", **options)
    assert names_in(cached / "cifar10") == []


def archive_with(published, make_tar, members):
    """The catalogue, pinned to another archive: what if even its sum were right?"""
    archive = make_tar(members)
    other = replace(published, archive=archive)
    return other, archive


def test_an_archive_of_the_right_sum_but_wrong_content_gives_nothing(published, make_tar, tmp_path, cached):
    wrong = {f"cifar-10-batches-bin/{name}": bytes(10) for name in published.contents["cifar10"]}
    for members, sentence in (
        (wrong, "data_batch_1.bin in .* is truncated: 10 of"),
        ({"readme": b"hello"}, "does not hold data_batch_1.bin, "),
    ):
        other, archive = archive_with(published, make_tar, members)
        (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive)
        with pytest.raises(DataError, match=sentence):
            get(other, "cifar10", from_dir=str(tmp_path))
        assert names_in(cached / "cifar10") == []


def test_many_at_once_leave_one_whole_data_set(published, mirror, cached):
    serve(mirror, published)
    start, problems = threading.Barrier(6), []

    def worker():
        start.wait()
        try:
            get(published, mirrors=[mirror.address])
            find("mnist", catalogue=published.catalogue)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=worker) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert names_in(cached / "mnist") == sorted(published.contents["mnist"])
    assert not any(state.problem for state in verify("mnist", catalogue=published.catalogue))


def test_interrupted_it_leaves_nothing_half_written(published, mirror, cached):
    serve(mirror, published)

    def interrupt(*row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(published, mirrors=[mirror.address], progress=interrupt)
    assert names_in(cached / "mnist") == []


def test_what_a_killed_process_left_is_swept_away_a_day_later(published, mirror, cached):
    serve(mirror, published)
    folder = cached / "mnist"
    folder.mkdir(parents=True)
    old, young = folder / f".{FIRST}.1-aa.part", folder / f".{FIRST}.2-bb.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 100_000,) * 2)
    get(published, mirrors=[mirror.address])
    assert names_in(folder) == sorted([young.name, *published.contents["mnist"]])


def test_a_folder_that_cannot_be_made_is_named(published, mirror, tmp_path, monkeypatch):
    serve(mirror, published)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match=f"cannot store mnist in {tmp_path}/file/mnist: Not a directory"):
        get(published, mirrors=[mirror.address])


def test_the_environment_says_where_to_put_it(published, mirror, tmp_path, monkeypatch):
    serve(mirror, published)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "big disk"))
    assert get(published, mirrors=[mirror.address])[0].path == tmp_path / "big disk" / "mnist" / FIRST
    data = load(MnistConfig(), catalogue=published.catalogue)
    assert torch.equal(data.train.labels, torch.arange(30) % 10)


def test_shipped_digits_need_no_fetching():
    assert [row.source for row in fetch("digits", mirrors=[])] == ["already here"] * 4
