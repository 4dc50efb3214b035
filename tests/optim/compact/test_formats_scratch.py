"""Memory for temporaries that is used again."""

import torch

from shoal.optim.compact.formats import Scratch


def test_a_name_has_one_memory_that_grows():
    scratch = Scratch()
    small = scratch("a", torch.empty(10, dtype=torch.uint8))
    assert small.dtype == torch.float32
    assert scratch("a", small).data_ptr() == small.data_ptr() != scratch("b", small).data_ptr()
    assert len(scratch("a", torch.empty(20))) == 20
    assert len(scratch("a", small)) == 10
