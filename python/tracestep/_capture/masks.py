"""Masks that are exactly those of attention: everything, the past, or the past within a window."""
from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Seen:
    """What a mask shows. `causal`: columns j <= i + (columns - rows) of row i; `window`: only the last so many of
    these, 0: all.
    """

    causal: bool
    window: int = 0


def causal_window(x: torch.Tensor) -> Seen | None:
    """The kind of `x` [rows, columns], True where a row sees a column, if it is causal, with or without a window; else
    None.
    """
    rows, columns = x.shape
    if columns < rows or rows < 1 or (rows == 1 and bool(x.all())):
        return None
    ahead = columns - rows
    ones = torch.ones_like(x)
    past = ones.tril(ahead)
    if torch.equal(x, past):
        return Seen(True)
    window = int(x[-1].sum())
    return Seen(True, window) if window and torch.equal(x, past & ones.triu(ahead - window + 1)) else None


def seen(mask: torch.Tensor) -> torch.Tensor | None:
    """A mask that is added or selects, as bool [..., rows, columns] without the dimensions along which it
    is the same; None: it is neither 0 nor as good as -inf somewhere, so that it has to be added."""
    for axis in range(mask.dim() - 2):
        if mask.shape[axis] > 1:
            if not bool((mask == mask.narrow(axis, 0, 1)).all()):
                return None
            mask = mask.narrow(axis, 0, 1)
    mask = mask.reshape(mask.shape[-2:])
    if mask.dtype == torch.bool:
        return mask
    is_seen = mask == 0
    return is_seen if bool((is_seen | (mask < -1e4)).all()) else None


def kind_of(mask: torch.Tensor) -> Seen | None:
    """The attributes of attention that hide what a constant mask hides, or None."""
    is_seen = seen(mask)
    if is_seen is None:
        return None
    if bool(is_seen.all()):
        return Seen(False)
    return causal_window(is_seen)
