"""What PyTorch's CUDA kernels allocate for themselves, which no dispatch shows: bytes by op and shapes."""
from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten._addmm_activation, aten._scaled_mm)


def takes_workspace(func: Any) -> bool:
    """True for an op that runs in cuBLAS."""
    return func.overloadpacket in PRODUCTS


class Scratch:
    """Sizes of what a kernel takes before its results, and of what it takes after them."""

    def of(self, func: Any, args: Any, kwargs: Any, out: Any) -> tuple[list[int], list[int]]:
        """Bytes, in the order in which they are allocated; all are free again behind the op."""
        return [], []
