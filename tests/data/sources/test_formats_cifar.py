import pytest
import torch

from shoal.data.sources.formats import RECORD_BYTES, decode_cifar
from shoal.errors import DataError


def test_a_record_is_a_label_then_red_green_and_blue():
    record = bytearray([4]) + bytearray([1] * 1024) + bytearray([2] * 1024) + bytearray([3] * 1024)
    record[1 + 32] = 99  # the first pixel of the second row of red
    pictures, labels = decode_cifar(record * 2, "file")
    assert labels.tolist() == [4, 4]
    assert pictures.shape == (2, 3, 32, 32)
    assert pictures[1, 0, 1, 0] == 99
    assert torch.equal(pictures[0, 2], torch.full((32, 32), 3, dtype=torch.uint8))


@pytest.mark.parametrize("size", [0, 1, RECORD_BYTES - 1, 2 * RECORD_BYTES + 5])
def test_a_broken_record_is_refused(size):
    with pytest.raises(DataError, match=f"file is truncated .* {size:,} bytes"):
        decode_cifar(bytearray(size), "file")
