"""ATen's casts, views and indices as nodes of a program."""
from __future__ import annotations

import math
from typing import Any

import torch

from .lower import Complex, Lowering, op
from .program import Val

Dim = int | None


# --- nothing happens ------------------------------------------------------------------------------
@op("alias", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "to", "_to_copy", "type_as", "float",
    "double", "half", "bfloat16", "view_as", "copy", "requires_grad_", "resolve_conj", "resolve_neg", "positive")
def converted(w: Lowering, x: Any, *others: Any, **options: Any) -> Any:
    """A cast, where the dtype differs; `copy` is its second operand in the shape of the first."""
    if isinstance(x, Complex):
        return x
    if w.node.target._schema.name == "aten::copy":
        x = others[0]
    return w.p.broadcast(w.val(x, w.dtype), w.shape)


@op("detach", "detach_")
def detach(w: Lowering, x: Val) -> Val:
    """A view through which no gradient flows."""
    return w.p.stop_gradient(x)


@op("dropout", "dropout_", "native_dropout")
def dropout(w: Lowering, x: Any, p: float, train: bool | None = True) -> Any:
    """Dropout with p = 0 or after eval(), which changes nothing; its mask must not be read."""
    y = x if not p or train is False else w.dropped(x, p)
    return (y, None) if "native" in w.target else y


# --- views ----------------------------------------------------------------------------------------
@op("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_copy", "ravel",
    "_reshape_alias", "atleast_1d", "atleast_2d")
def reshape(w: Lowering, x: Any, *_: Any) -> Any:
    """A reshape to the shape of the result."""
    if isinstance(x, Complex):
        return Complex(*(w.p.reshape(part, w.shape) for part in x.parts))
    return w.p.reshape(x, w.shape)


@op("permute", "movedim", "moveaxis", "transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT", "adjoint")
def permute(w: Lowering, x: Val, *to: Any) -> Any:
    """Axes in another order."""
    if isinstance(x, Complex):
        return Complex(*(permute(w, part, *to) for part in x.parts))
    name = w.node.target._schema.name.split("::")[1]
    axes = list(range(x.rank))
    if name == "permute":
        axes = to[0]
    elif name in ("movedim", "moveaxis"):
        axes = _moved(x.rank, *to)
    elif name in ("t", "numpy_T"):
        axes.reverse()
    else:
        a, b = to or (-1, -2)
        axes[a], axes[b] = axes[b], axes[a]
    return w.p.permute(x, axes)


def _moved(rank: int, source: Any, target: Any) -> list[int]:
    sources, targets = ([a % rank for a in ([x] if isinstance(x, int) else x)] for x in (source, target))
    rest = iter(a for a in range(rank) if a not in sources)
    return [sources[targets.index(i)] if i in targets else next(rest) for i in range(rank)]


@op("expand", "broadcast_to", "expand_as", "expand_copy")
def expand(w: Lowering, x: Val, *_: Any, **__: Any) -> Val:
    """A tensor repeated without a copy."""
    return w.p.broadcast(x, w.shape)


@op("repeat", "tile")
def repeat(w: Lowering, x: Val, times: list[int]) -> Val:
    """The whole tensor repeated a number of times along each axis."""
    sizes = (1,) * (len(times) - x.rank) + x.shape
    times = [1] * (len(sizes) - len(times)) + list(times)
    pairs = [n for t, s in zip(times, sizes) for n in (t, s)]
    x = w.p.reshape(x, [n for s in sizes for n in (1, s)]) if max(times) > 1 else x
    return w.p.reshape(w.p.broadcast(x, pairs) if max(times) > 1 else x, w.shape)


@op("repeat_interleave")
def repeat_interleave(w: Lowering, x: Val, times: int, dim: Dim = None, **_: Any) -> Val:
    """Each element repeated a number of times."""
    if not isinstance(times, int):
        raise w.refuse(f"{w.target} with counts in a tensor has no counterpart")
    x = w.p.reshape(x, (math.prod(x.shape),)) if dim is None else x
    at = (dim or 0) % x.rank
    x = w.p.reshape(x, (*x.shape[:at + 1], 1, *x.shape[at + 1:]))
    return w.p.reshape(w.p.broadcast(x, (*x.shape[:at + 1], times, *x.shape[at + 2:])), w.shape)


@op("slice", "slice_copy", "narrow")
def slice_(w: Lowering, x: Val, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1) -> Val:
    """Every step-th element of an axis."""
    size = x.shape[dim]
    if w.node.target._schema.name.endswith("narrow"):
        start, stop = start % max(size, 1), start % max(size, 1) + stop
    start, stop, step = slice(start, stop, step).indices(size)
    if step == 1:
        return w.p.slice(x, dim, start, max(start, stop))
    dim, count = dim % x.rank, -(-(stop - start) // step)
    at = start % step if start - start % step + count * step <= size else 0  # of each group
    whole = start - at + count * step
    if whole > size:  # the last group is short
        pad = w.p.fill(0, x.dtype, (*x.shape[:dim], whole - size, *x.shape[dim + 1:]))
        x = w.p.concat([x, pad], dim)
    x = w.p.slice(x, dim, start - at, whole)
    x = w.p.reshape(x, (*x.shape[:dim], count, step, *x.shape[dim + 1:]))
    return w.p.pick(x, dim + 1, at)


@op("select", "select_copy")
def select(w: Lowering, x: Val, dim: int, index: int) -> Val:
    """One element of an axis."""
    return w.p.pick(x, dim, index % x.shape[dim])


@op("split", "split_with_sizes", "chunk", "unbind", "tensor_split", "unsafe_split", "unsafe_chunk")
def split(w: Lowering, x: Val, *args: Any, **kwargs: Any) -> list[Val]:
    """A split into the sizes of the results."""
    name = w.node.target._schema.name
    dim = kwargs.get("dim", args[-1] if len(args) == (1 if "unbind" in name else 2) else 0) % x.rank
    if "unbind" in name:
        return [w.p.pick(x, dim, i) for i in range(x.shape[dim])]
    parts, at = [], 0
    for result in w.of(w.node):
        size = result.shape[dim]
        parts.append(w.p.slice(x, dim, at, at + size))
        at += size
    return parts


@op("cat", "concat", "concatenate")
def cat(w: Lowering, xs: list[Any], dim: int = 0) -> Val:
    """Tensors joined along an axis."""
    vals = [w.val(x, w.dtype) for x in xs]
    return w.p.concat([v for v in vals if v.shape != (0,)] or vals, dim)


@op("stack")
def stack(w: Lowering, xs: list[Any], dim: int = 0) -> Val:
    """Tensors joined along a new axis."""
    dim %= len(w.shape)
    shape = (*w.shape[:dim], 1, *w.shape[dim + 1:])
    return w.p.concat([w.p.reshape(w.val(x, w.dtype), shape) for x in xs], dim)


@op("hstack", "vstack")
def along(w: Lowering, xs: list[Any]) -> Val:
    """By columns or rows."""
    vals = [w.val(x, w.dtype) for x in xs]
    return w.p.concat(vals, 0 if "vstack" in w.target or vals[0].rank == 1 else 1)


@op("pad", "constant_pad_nd")
def pad(w: Lowering, x: Val, pads: list[int], *more: Any, value: Any = None) -> Val:
    """Adds a constant before and behind; a negative count removes elements of x."""
    mode, value = ("constant", more[0]) if more and not isinstance(more[0], str) else (
        more[0] if more else "constant", more[1] if len(more) > 1 else value)
    if mode != "constant":
        raise w.refuse(f"{w.target} in mode {mode} has no counterpart")
    for i in range(0, len(pads), 2):
        axis, (before, after) = x.rank - 1 - i // 2, pads[i:i + 2]
        size = x.shape[axis]
        x = w.p.slice(x, axis, max(0, -before), size - max(0, -after))
        sides = [w.p.fill(value or 0, x.dtype, (*x.shape[:axis], max(n, 0), *x.shape[axis + 1:]))
                 for n in (before, after)]
        x = w.p.concat([sides[0], x, sides[1]], axis) if before > 0 or after > 0 else x
    return x


@op("flip")
def flip(w: Lowering, x: Val, dims: list[int]) -> Val:
    """The elements along axes in reverse order."""
    for dim in dims:
        x = rows_at(w, x, dim, torch.arange(x.shape[dim] - 1, -1, -1))
    return x


@op("roll")
def roll(w: Lowering, x: Val, shifts: list[int], dims: list[int] = ()) -> Val:  # type: ignore[assignment]
    """The elements along axes rotated by some positions."""
    if not dims:
        return w.p.reshape(roll(w, w.p.reshape(x, (math.prod(x.shape),)), shifts, [0]), w.shape)
    for shift, dim in zip(shifts, dims):
        cut = -shift % x.shape[dim]
        x = w.p.concat([w.p.slice(x, dim, cut, x.shape[dim]), w.p.slice(x, dim, 0, cut)], dim)
    return x


@op("select_scatter", "slice_scatter")
def scatter(w: Lowering, x: Any, y: Any, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1) -> Val:
    """x with a part of an axis replaced."""
    x, y, dim = w.val(x), w.val(y, w.dtype), dim % len(w.shape)
    if "select" in w.target:
        start %= w.shape[dim]
        stop, y = start + 1, w.p.reshape(y, (*w.shape[:dim], 1, *w.shape[dim + 1:]))
    start, stop, step = slice(start, stop, step).indices(w.shape[dim])
    if step != 1:
        raise w.refuse(f"{w.target} with step {step} has no counterpart")
    return w.p.concat([w.p.slice(x, dim, 0, start), y, w.p.slice(x, dim, stop, w.shape[dim])], dim)


# --- indices --------------------------------------------------------------------------------------
def rows_at(w: Lowering, x: Val, dim: int, index: Any) -> Val:
    """x at indices along one axis: a gather of rows, or slices where the indices are constant and count up."""
    dim %= x.rank
    if isinstance(index, torch.Tensor):
        index = torch.where(index < 0, index + x.shape[dim], index)
        flat = index.reshape(-1)
        if len(flat) and bool((flat == flat[0]).all()):
            one = w.p.slice(x, dim, int(flat[0]), int(flat[0]) + 1)
            one = w.p.reshape(one, (*x.shape[:dim], *(1,) * index.dim(), *x.shape[dim + 1:]))
            return w.p.broadcast(one, (*x.shape[:dim], *index.shape, *x.shape[dim + 1:]))
        rows = index.reshape(-1, index.shape[-1]) if index.dim() else flat.reshape(1, 1)
        line = rows[0]
        if bool((rows == line).all()) and torch.equal(line, line[0] + torch.arange(len(line))):
            part = w.p.slice(x, dim, int(line[0]), int(line[0]) + len(line))
            part = w.p.reshape(part, (*x.shape[:dim], *(1,) * (index.dim() - 1), len(line), *x.shape[dim + 1:]))
            return w.p.broadcast(part, (*x.shape[:dim], *index.shape, *x.shape[dim + 1:]))
    index = w.val(index)
    rest = [a for a in range(x.rank) if a != dim]
    table = w.p.permute(x, [dim, *rest])
    width = math.prod(table.shape[1:])
    y = w.p.gather(w.p.reshape(table, (x.shape[dim], width)), index)
    y = w.p.reshape(y, (*index.shape, *table.shape[1:]))
    n = index.rank
    return w.p.permute(y, [*range(n, n + dim), *range(n), *range(n + dim, y.rank)])


@op("embedding")
def embedding(w: Lowering, table: Any, index: Any, padding: int = -1, *_: Any) -> Val:
    """Rows of a table; the row of the padding index gets no gradient."""
    if padding < 0 or isinstance(index, torch.Tensor) and not bool((index == padding).any()):
        return rows_at(w, w.val(table), 0, index)
    return w.p.gather(w.val(table), w.val(index), padding)


@op("index_select")
def index_select(w: Lowering, x: Any, dim: int, index: Any) -> Val:
    """x at indices of one axis."""
    return rows_at(w, w.val(x), dim, index)


@op("index")
def index_(w: Lowering, x: Any, indices: list[Any]) -> Val:
    """x at indices of one axis, or of neighbouring axes, which are treated as one."""
    x = w.val(x)
    axes = [i for i, index in enumerate(indices) if index is not None]
    if axes != list(range(axes[0], axes[-1] + 1)) or any(
            getattr(indices[a], "dtype", None) in ("bool", "u8", torch.bool, torch.uint8) for a in axes):
        raise w.refuse(f"{w.target} by a mask, or along axes that are no neighbours, has no counterpart")
    if len(axes) == 1:
        return rows_at(w, x, axes[0], indices[axes[0]])
    flat: Any = None
    for a in axes:
        index = indices[a]
        if isinstance(index, torch.Tensor):
            index = torch.where(index < 0, index + x.shape[a], index)
        if flat is None:
            flat = index
        elif isinstance(flat, torch.Tensor) and isinstance(index, torch.Tensor):
            flat = flat * x.shape[a] + index
        else:
            flat = w.p.binary("add", w.p.binary("mul", w.val(flat, "i64"), w.p.fill(x.shape[a], "i64")),
                              w.val(index, "i64"))
    joined = (*x.shape[:axes[0]], math.prod(x.shape[a] for a in axes), *x.shape[axes[-1] + 1:])
    return rows_at(w, w.p.reshape(x, joined), axes[0], flat)


@op("gather")
def gather(w: Lowering, x: Any, dim: int, index: Any, **_: Any) -> Val:
    """One element of each row; of a constant whose rows are equal, any number of them."""
    if isinstance(x, torch.Tensor) and x.numel():
        if bool((x == x.reshape(-1)[0]).all()):
            return w.p.broadcast(w.val(x.reshape(-1)[0]), w.shape)
        line = x.movedim(dim, -1).reshape(-1, x.shape[dim])
        if bool((line == line[0]).all()):
            return rows_at(w, w.val(line[0]), 0, index)
    x, index = w.val(x), w.val(index)
    if index.shape[dim] != 1 or any(m != n for i, (m, n) in enumerate(zip(x.shape, index.shape)) if i != dim % x.rank):
        raise w.refuse(f"{w.target} of more than one element of each row has no counterpart")
    axes = [*(a for a in range(x.rank) if a != dim % x.rank), dim % x.rank]
    rows = w.p.permute(x, axes)
    return w.p.reshape(w.p.take_along(rows, w.p.reshape(index, rows.shape[:-1])), w.shape)
