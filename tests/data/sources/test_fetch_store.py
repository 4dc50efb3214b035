import hashlib
import stat

import pytest

from shoal.data.sources.catalogue import DataFile
from shoal.data.sources.fetch import store
from shoal.errors import DataError

CONTENT = b"what was published"
FILE = DataFile("file", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def ignore(name, done, total):
    pass


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def chunks():
        yield CONTENT[:5]
        assert target.read_bytes() == b"old"
        yield CONTENT[5:]
        assert target.read_bytes() == b"old"

    assert store(chunks(), "here", FILE, tmp_path, ignore) == target
    assert target.read_bytes() == CONTENT


def test_a_wrong_sum_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(DataError, match="here is not the published file"):
        store([b"x" * len(CONTENT)], "here", FILE, tmp_path, ignore)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_others_may_read_what_was_stored(tmp_path):
    stored = store([CONTENT], "here", FILE, tmp_path, ignore)
    reference = tmp_path / "reference"
    reference.write_bytes(b"made the ordinary way")
    assert stat.S_IMODE(stored.stat().st_mode) == stat.S_IMODE(reference.stat().st_mode)
