import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.data.sources.formats import decode_idx, encode_idx
from shoal.errors import DataError


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_what_was_encoded_is_decoded(shape):
    array = torch.arange(torch.tensor(shape).prod()).to(torch.uint8).view(shape)
    assert torch.equal(decode_idx(encode_idx(array), len(shape), "file"), array)


def test_the_bytes_are_those_of_the_published_format():
    assert encode_idx(torch.tensor([[7, 8, 9]], dtype=torch.uint8)).hex() == "000008020000000100000003070809"


CONTENT = encode_idx(torch.zeros((3, 2, 2), dtype=torch.uint8))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (CONTENT[:-1], r"file is truncated: 27 bytes, but its header \(3 × 2 × 2\) says 28"),
        (CONTENT + b"!", "file is too long: 29 bytes"),
        (CONTENT[:9], "file is truncated: 9 bytes, but the header alone has 16"),
        (encode_idx(torch.zeros(3, dtype=torch.uint8)), "starts with 0x00000801, expected 0x00000803"),
        (bytearray(b"hello"), "not an IDX file of 3 dimensions"),
        (encode_idx(torch.zeros((0, 2, 2), dtype=torch.uint8)), "file holds no samples"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(content, sentence):
    with pytest.raises(DataError, match=sentence):
        decode_idx(content, dims=3, where="file")
