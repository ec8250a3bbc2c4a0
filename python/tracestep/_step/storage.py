"""Memory that two own: leaves of a program that are tensors of PyTorch's, side by side where the program wants that."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._capture.lower import DTYPES
from .._library import Run, Tensor
from .._program import UsageError

DTYPE_OF = {name: dtype for dtype, name in DTYPES.items()} | {"u8": torch.uint8}
ALIGNMENT = {"cuda": 256}  # bytes; else 64


@dataclass(frozen=True)
class Leaf:
    """What the library knows about a tensor."""

    name: str
    dtype: torch.dtype | None  # None: 8-bit floats, which nobody here reads
    role: int
    shape: tuple[int, ...]
    bytes: int
    block: str
    offset: int

    @staticmethod
    def of(x: Tensor) -> Leaf:
        """Copies a tensor's record, so that it outlives the run."""
        return Leaf(x.name.decode(), DTYPE_OF.get(x.dtype.decode()), x.role, tuple(x.shape[:x.rank]), x.bytes,
                    x.block.decode(), x.offset)


def leaves_of(run: Run) -> list[Leaf]:
    """The leaves of a run."""
    return [Leaf.of(x) for x in run.tensors()]


def in_blocks(leaves: Iterable[Leaf]) -> list[list[Leaf]]:
    """Groups the leaves of each block, in their order in memory."""
    found: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        found.setdefault("block " + leaf.block if leaf.block else "leaf " + leaf.name, []).append(leaf)
    return [sorted(group, key=lambda leaf: leaf.offset) for group in found.values()]


def fits(x: torch.Tensor, leaf: Leaf) -> bool:
    """True if a tensor can be used as the leaf without a copy."""
    return x.dtype == leaf.dtype and tuple(x.shape) == leaf.shape and x.is_contiguous()


def placed(leaves: Sequence[Leaf], tensors: Sequence[torch.Tensor | None], device: torch.device) -> list[torch.Tensor]:
    """The tensors where they are, if they lie side by side; else views of a new block that holds their values.

    None stands for zeros.
    """
    at = tensors[0].data_ptr() if tensors[0] is not None else 1
    is_there = at % ALIGNMENT.get(device.type, 64) == 0
    for leaf, x in zip(leaves, tensors):
        is_there = is_there and x is not None and fits(x, leaf) and x.data_ptr() == at and x.device == device
        at += leaf.bytes
    if is_there:
        return [x for x in tensors if x is not None]
    whole = torch.zeros(sum(leaf.bytes for leaf in leaves) // leaves[0].dtype.itemsize,  # type: ignore[union-attr]
                        dtype=leaves[0].dtype, device=device)
    views = []
    begin = 0
    for leaf, x in zip(leaves, tensors):
        end = begin + leaf.bytes // whole.element_size()
        views.append(whole[begin:end].view(leaf.shape))
        if x is not None:
            views[-1].copy_(x)
        begin = end
    return views


class Parameters:
    """The module's parameters, whose data a program may need in another place."""

    def __init__(self) -> None:
        self.moved: dict[int, tuple[torch.nn.Parameter, tuple[int, ...]]] = {}  # and their strides before

    def place(self, leaves: Sequence[Leaf], parameters: dict[str, torch.nn.Parameter], device: torch.device,
              lend: Callable[[Leaf, torch.Tensor], None]) -> None:
        """Moves each parameter to its place, which frees where it was, and lends it to the session."""
        for group in in_blocks(leaves):
            own = [parameters[leaf.name] for leaf in group]
            for leaf, p in zip(group, own):
                if p.dtype != leaf.dtype or tuple(p.shape) != leaf.shape:
                    raise UsageError(f"[step] {leaf.name} is {p.dtype} {tuple(p.shape)}, the program's {leaf.dtype} {leaf.shape}", 2)
            with torch.no_grad():
                views = placed(group, [p.data for p in own], device)
            for leaf, p, view in zip(group, own, views):
                if p.data_ptr() != view.data_ptr():
                    self.moved.setdefault(id(p), (p, p.data.stride()))
                    p.data = view
                lend(leaf, p.data)

    def release(self) -> None:
        """Moves each parameter back into memory of its own, with its present values."""
        for p, strides in self.moved.values():
            with torch.no_grad():
                p.data = torch.empty_strided(p.shape, strides, dtype=p.dtype, device=p.device).copy_(p.data)
        self.moved.clear()


def address(x: Any) -> int:
    """The address of a tensor's first element."""
    return int(x.data_ptr())
