"""Tensors as one row of elements, which is how groups move them."""

from torch import Tensor


def flat(tensor: Tensor) -> Tensor:
    """The elements in one row: the tensor's own memory where its strides allow that, else a copy."""
    if tensor.dim() == 1 and tensor.is_contiguous():
        return tensor
    return tensor.contiguous().view(-1)


def write_back(tensor: Tensor, row: Tensor) -> None:
    """Copy the elements of `row` to `tensor`, unless they share memory."""
    if row is not tensor and row.data_ptr() != tensor.data_ptr():
        tensor.copy_(row.view(tensor.shape))
