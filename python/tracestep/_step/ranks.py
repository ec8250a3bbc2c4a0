"""Processes of torch.distributed that train one module: what they say to each other, and their sums in host memory."""
from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import distributed as dist

from .. import _library
from .._program import UsageError

DTYPES = {b"f32": (torch.float32, 4), b"f64": (torch.float64, 8)}


def _memory(address: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)


class Ranks:
    """A process group as the struct tracestep_ranks for a session. Small messages, and on a CPU tensors, are sent by
    gloo.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.members = dist.get_process_group_ranks(group)
        self.words = group
        if dist.get_backend(group) != "gloo":
            self.words = dist.new_group(self.members, backend="gloo", use_local_synchronization=True)
        self.interface = _library.ranks(self.rank, self.count, self._gather, self._sum)

    def _gather(self, own: int, everyone: int, size: int) -> None:
        mine, all_of_them = _memory(own, size, torch.uint8), _memory(everyone, size * self.count, torch.uint8)
        dist.all_gather(list(all_of_them.view(self.count, size).unbind()), mine, group=self.words)

    def _sum(self, data: int, count: int, dtype: bytes) -> None:
        kind, size = DTYPES[dtype]
        dist.all_reduce(_memory(data, count * size, kind), group=self.words)

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """The mean over all ranks of a number on the CPU."""
        dist.all_reduce(loss, group=self.words)
        return loss / self.count

    def give(self, tensors: Iterable[torch.Tensor]) -> None:
        """Sends the first rank's values to all."""
        for x in tensors:
            dist.broadcast(x, self.members[0], group=self.words if x.device.type == "cpu" else self.group)

    def agree(self, key: Any) -> None:
        """Raises on all ranks if their calls differ."""
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
        own = torch.frombuffer(bytearray(digest), dtype=torch.int64)
        found = [torch.empty(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(found, own, group=self.words)
        other = [i for i, x in enumerate(found) if not torch.equal(x, found[0])]
        if other:
            raise UsageError(f"[step] rank {other[0]} calls with other shapes, modes or groups than rank 0: the ranks of a "
                             "step run one program; pad batches to one shape", 2)


def ranks_of(group: Any) -> Ranks | None:
    """The ranks of torch.distributed's default group, or of this one; None for False, or if there is a single process.
    """
    if group is False or not dist.is_available() or not dist.is_initialized():
        if group not in (None, False):
            raise UsageError("[step] group: torch.distributed has not been initialized", 2)
        return None
    group = dist.group.WORLD if group is None else group
    return Ranks(group) if dist.get_world_size(group) > 1 else None
