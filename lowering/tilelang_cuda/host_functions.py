"""Functions of the host that generated wrappers carry with them; `python_host.library` reads this
file as text."""

# mypy: ignore-errors

import torch


def streams(*tensors):
    """Whether the copy engine of the chip, which Hopper and later ones have, can fetch tiles of
    these tensors: rows begin at multiples of 16 bytes."""
    if torch.cuda.get_device_capability(tensors[0].device)[0] < 9:
        return False
    return all(
        tensor.numel() > 0
        and max(tensor.shape) < 2**31
        and tensor.data_ptr() % 16 == 0
        and tensor.shape[-1] * tensor.element_size() % 16 == 0
        for tensor in tensors
    )


def lanes_at_once(lanes, sizes, *tensors):
    """How many lanes kernels move at once: `lanes` where these divide the sizes, and the tensors
    begin at multiples of 16 bytes, else 1."""
    whole = all(size % lanes == 0 for size in sizes)
    return lanes if whole and all(tensor.data_ptr() % 16 == 0 for tensor in tensors) else 1


def turns_held(lanes, share, most):
    """The turns in which threads take `share` lanes at a time, where they can hold the lanes of so
    many in registers: at most `most`, else 0."""
    turns = -(-lanes // share)
    return turns if turns <= most else 0
