"""ATen's views, arithmetic and reductions as nodes of a program, with every promotion of types a cast."""
from __future__ import annotations

import math
from typing import Any

import torch

from .lower import DTYPES_BACK, Complex, Lowering, op
from .program import FLOATS, Val

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
    """Gradients stop."""
    return w.p.stop_gradient(x)


@op("dropout", "dropout_", "feature_dropout", "alpha_dropout")
def dropout(w: Lowering, x: Any, p: float, train: bool = True) -> Any:
    """Nothing, with p = 0 or behind eval()."""
    if not (p and train):
        return x
    if w.node.target._schema.name.split("::")[1] in ("feature_dropout", "alpha_dropout"):
        raise w.refuse(f"{w.target} with p={p:g} while training has no counterpart; dropout of single elements has")
    return w.dropped(x, p)


# --- views ----------------------------------------------------------------------------------------
@op("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_copy", "ravel",
    "_reshape_alias", "atleast_1d", "atleast_2d")
def reshape(w: Lowering, x: Any, *_: Any) -> Any:
    """Of the shape that the result has."""
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
    """Repeated without a copy."""
    return w.p.broadcast(x, w.shape)


@op("repeat", "tile")
def repeat(w: Lowering, x: Val, times: list[int]) -> Val:
    """The whole tensor so many times along each axis."""
    sizes = (1,) * (len(times) - x.rank) + x.shape
    times = [1] * (len(sizes) - len(times)) + list(times)
    pairs = [n for t, s in zip(times, sizes) for n in (t, s)]
    x = w.p.reshape(x, [n for s in sizes for n in (1, s)]) if max(times) > 1 else x
    return w.p.reshape(w.p.broadcast(x, pairs) if max(times) > 1 else x, w.shape)


@op("repeat_interleave")
def repeat_interleave(w: Lowering, x: Val, times: int, dim: Dim = None, **_: Any) -> Val:
    """Each element so many times."""
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
    """Of the sizes that the results have."""
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
    """One behind the other."""
    vals = [w.val(x, w.dtype) for x in xs]
    return w.p.concat([v for v in vals if v.shape != (0,)] or vals, dim)


@op("stack")
def stack(w: Lowering, xs: list[Any], dim: int = 0) -> Val:
    """Along an axis of its own."""
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
    """A constant before and behind, or less of x where a count is negative."""
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
    """The other way round."""
    for dim in dims:
        x = rows_at(w, x, dim, torch.arange(x.shape[dim] - 1, -1, -1))
    return x


@op("roll")
def roll(w: Lowering, x: Val, shifts: list[int], dims: list[int] = ()) -> Val:  # type: ignore[assignment]
    """Turned round along axes."""
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
    """Rows of a table; that of the padding has no gradient."""
    if padding < 0 or isinstance(index, torch.Tensor) and not bool((index == padding).any()):
        return rows_at(w, w.val(table), 0, index)
    return w.p.gather(w.val(table), w.val(index), padding)


@op("index_select")
def index_select(w: Lowering, x: Any, dim: int, index: Any) -> Val:
    """x at indices of one axis."""
    return rows_at(w, w.val(x), dim, index)


@op("index")
def index_(w: Lowering, x: Any, indices: list[Any]) -> Val:
    """x at indices of one axis, or of neighbours: these are counted as one."""
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


# --- arithmetic -----------------------------------------------------------------------------------
def _arithmetic(name: str) -> Any:
    def write(w: Lowering, a: Any, b: Any, *, alpha: float = 1, rounding_mode: Any = None) -> Any:
        if isinstance(a, Complex) or isinstance(b, Complex):
            return _complex(w, name, a, b)
        dtype = w.dtype
        if rounding_mode or (dtype not in FLOATS and name == "div"):
            raise w.refuse(f"{w.target} of integers has no counterpart")
        if dtype == "bool" and name in ("add", "mul"):
            return logical(w, a, b, is_or=name == "add")
        first, second = w.number(a), w.number(b)
        if dtype not in FLOATS:
            y = w.p.binary("mul", w.val(b, dtype), w.p.fill(alpha, dtype)) if alpha != 1 else w.val(b, dtype)
            return w.p.broadcast(w.p.binary(name, w.val(a, dtype), y), w.shape)
        if second is not None:
            second *= alpha
            x = w.val(a, dtype)
            y = (w.p.affine(x, 1.0, second) if name == "add" else w.p.affine(x, 1.0, -second) if name == "sub"
                 else w.p.affine(x, second) if name == "mul" else w.p.affine(x, 1.0 / second))
        elif first is not None:
            x = w.val(b, dtype)
            y = (w.p.affine(x, alpha, first) if name == "add" else w.p.affine(x, -alpha, first) if name == "sub"
                 else w.p.affine(x, first) if name == "mul" else w.p.affine(w.p.unary("reciprocal", x), first))
        else:
            x = w.p.affine(w.val(b, dtype), alpha)
            y = w.p.binary(name, w.val(a, dtype), x)
        return w.p.broadcast(y, w.shape)
    return write


for _name in ("add", "sub", "mul", "div"):
    op(_name, {"add": "add_", "sub": "subtract", "mul": "multiply", "div": "true_divide"}[_name])(_arithmetic(_name))


@op("rsub")
def rsub(w: Lowering, a: Any, b: Any, alpha: float = 1) -> Any:
    """b - a."""
    return _arithmetic("sub")(w, b, a, alpha=alpha)


@op("addcmul", "addcdiv")
def addcmul(w: Lowering, x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    """x + value · a · b, or a / b."""
    y = w.p.binary("mul" if "mul" in w.target else "div", w.val(a, w.dtype), w.val(b, w.dtype))
    return w.p.binary("add", w.val(x, w.dtype), w.p.affine(y, value))


@op("lerp")
def lerp(w: Lowering, a: Any, b: Any, t: Any) -> Val:
    """a + t · (b - a)."""
    a = w.val(a)
    apart = w.p.binary("sub", w.val(b), a)
    step = w.p.affine(apart, w.number(t)) if w.number(t) is not None else w.p.binary("mul", w.val(t), apart)  # type: ignore[arg-type]
    return w.p.binary("add", a, step)


def _complex(w: Lowering, name: str, a: Any, b: Any) -> Complex:
    def parts(x: Any) -> tuple[Val, Val | None]:
        if isinstance(x, Complex):
            return x.parts
        if isinstance(x, torch.Tensor) and x.is_complex():
            dtype = {torch.complex64: "f32", torch.complex128: "f64"}[w.of(w.node).dtype]
            return w.val(x.real.contiguous(), dtype), w.val(x.imag.contiguous(), dtype)
        return w.val(x), None
    (ar, ai), (br, bi) = parts(a), parts(b)
    p = w.p
    if name != "mul" or ai is None or bi is None:
        raise w.refuse(f"{w.target} of complex numbers has no counterpart; a product as in rotary positions has")
    return Complex(p.binary("sub", p.binary("mul", ar, br), p.binary("mul", ai, bi)),
                   p.binary("add", p.binary("mul", ar, bi), p.binary("mul", ai, br)))


@op("view_as_complex")
def view_as_complex(w: Lowering, x: Val) -> Complex:
    """The last axis has real and imaginary parts."""
    return Complex(w.p.pick(x, -1, 0), w.p.pick(x, -1, 1))


@op("view_as_real")
def view_as_real(w: Lowering, x: Complex) -> Val:
    """Real and imaginary parts along a new last axis."""
    return w.p.concat([w.p.reshape(v, (*v.shape, 1)) for v in x.parts], -1)


@op("pow", "square")
def power(w: Lowering, x: Any, n: Any = 2) -> Val:
    """Whole and half powers by squares, products and roots; a positive constant to the power x by exp."""
    p, base = w.p, w.number(x)
    if base is not None and base > 0:
        return p.unary("exp", p.affine(w.val(n, w.dtype), math.log(base)))
    exponent, n = n, w.number(n)
    x = w.val(x, w.dtype)
    roots = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", 2: "square"}
    if n in roots:
        return p.unary(roots[n], x)
    if n is None or n * 2 != int(n * 2) or not 0 < abs(n) <= 16:
        exponent = w.val(exponent, w.dtype)
        return p.broadcast(p.binary("pow", x, exponent), w.shape) if w.dtype in FLOATS else _only_floats(w)
    y, square, left = None, x, int(abs(n))
    while left:
        if left % 2:
            y = square if y is None else p.binary("mul", y, square)
        left //= 2
        square = p.unary("square", square) if left else square
    if abs(n) % 1:
        y = p.binary("mul", y, p.unary("sqrt", x)) if y else p.unary("sqrt", x)
    return p.unary("reciprocal", y) if n < 0 else y  # type: ignore[arg-type, return-value]


for _name in ("neg", "abs", "reciprocal", "exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "relu", "silu"):
    op(_name)(lambda w, x, _name=_name: w.p.unary(_name, w.val(x, w.dtype)) if w.dtype in FLOATS
              else w.p.binary("sub", w.p.fill(0, w.dtype), x) if _name == "neg" else _only_floats(w))


def _only_floats(w: Lowering) -> Val:
    raise w.refuse(f"{w.target} of integers has no counterpart")


@op("erf")
def erf(w: Lowering, x: Val) -> Val:
    """2 Φ(√2 x) - 1."""
    return w.p.affine(w.p.unary("normal_cdf", w.p.affine(x, math.sqrt(2))), 2, -1)


@op("log1p", "log2", "log10", "expm1", "exp2")
def near_log(w: Lowering, x: Val) -> Val:
    """By log and exp; log1p and expm1 lose digits where x is tiny."""
    name = w.node.target._schema.name.split("::")[1]
    p = w.p
    if name == "log1p":
        return p.unary("log", p.affine(x, 1, 1))
    if name == "expm1":
        return p.affine(p.unary("exp", x), 1, -1)
    if name == "exp2":
        return p.unary("exp", p.affine(x, math.log(2)))
    return p.affine(p.unary("log", x), 1 / math.log(2 if name == "log2" else 10))


# --- comparisons, selection -------------------------------------------------------------------------
def _compared(name: str) -> Any:
    def write(w: Lowering, a: Any, b: Any) -> Val:
        meta = [torch.empty(x.shape, dtype=DTYPES_BACK[x.dtype], device="meta") if isinstance(x, Val) else x
                for x in (a, b)]
        dtype = w.name_of(torch.result_type(*meta))
        a, b = w.val(a, dtype), w.val(b, dtype)
        a, b = (b, a) if name in ("gt", "ge") else (a, b)
        y = w.p.binary({"gt": "lt", "ge": "le", "ne": "eq"}.get(name, name), a, b)
        return w.p.broadcast(w.p.negate(y) if name == "ne" else y, w.shape)
    return write


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    op(_name, {"eq": "equal_", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
               "ge": "greater_equal"}[_name])(_compared(_name))


def logical(w: Lowering, a: Any, b: Any, is_or: bool) -> Val:
    """Both, or one of two."""
    a, b = truth(w, a), truth(w, b)
    return w.p.select(a, w.p.fill(1, "bool"), b) if is_or else w.p.select(a, b, w.p.fill(0, "bool"))


def truth(w: Lowering, x: Any) -> Val:
    """x ≠ 0."""
    x = w.val(x, "bool") if isinstance(x, (bool, int)) else w.val(x)
    return x if x.dtype == "bool" else w.p.negate(w.p.binary("eq", x, w.p.fill(0, x.dtype)))


@op("logical_and", "bitwise_and", "__and__", "logical_or", "bitwise_or", "__or__")
def conjunction(w: Lowering, a: Any, b: Any) -> Val:
    """Of truth values."""
    if w.dtype != "bool":
        _only_floats(w)
    return logical(w, a, b, is_or="or" in w.node.target._schema.name)


@op("logical_not", "bitwise_not")
def negation(w: Lowering, x: Any) -> Val:
    """Of truth values."""
    return w.p.negate(truth(w, x)) if w.dtype == "bool" else _only_floats(w)


@op("where")
def where(w: Lowering, condition: Any, a: Any, b: Any) -> Val:
    """a or b."""
    return w.p.broadcast(w.p.select(truth(w, condition), w.val(a, w.dtype), w.val(b, w.dtype)), w.shape)


@op("masked_fill")
def masked_fill(w: Lowering, x: Any, mask: Any, value: Any) -> Val:
    """A number where the mask is true."""
    return where(w, mask, value, x)


@op("fill")
def fill(w: Lowering, x: Any, value: Any) -> Val:
    """A number everywhere."""
    return w.p.broadcast(w.val(value, w.dtype), w.shape)


@op("tril", "triu")
def triangle(w: Lowering, x: Val, diagonal: int = 0) -> Val:
    """Zeros above or below a diagonal."""
    ones = torch.ones(x.shape[-2:], dtype=torch.bool)
    kept = ones.tril(diagonal) if "tril" in w.target else ones.triu(diagonal)
    return w.p.select(w.val(kept), x, w.p.fill(0, x.dtype))


@op("maximum", "minimum")
def larger(w: Lowering, a: Any, b: Any) -> Val:
    """Of two."""
    return w.p.binary("maximum" if "max" in w.target else "minimum", w.val(a, w.dtype), w.val(b, w.dtype))


@op("clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "relu6")
def clamp(w: Lowering, x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Val:
    """Within bounds."""
    name = w.node.target._schema.name.split("::")[1]
    low, high = (low if min is None else min), (high if max is None else max)
    if name == "clamp_max":
        low, high = None, low
    if name == "hardtanh":
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    if name == "relu6":
        low, high = 0.0, 6.0
    x = w.val(x, w.dtype)
    for bound, which in ((low, "maximum"), (high, "minimum")):
        x = x if bound is None else w.p.binary(which, x, w.val(bound, w.dtype))
    return x


# --- reductions -----------------------------------------------------------------------------------
def axes_of(x: Val, dims: Any) -> list[int]:
    """All, where none are named."""
    if dims is None or dims == []:
        return list(range(x.rank))
    return [dims] if isinstance(dims, int) else list(dims)


@op("sum", "mean")
def total(w: Lowering, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Val:
    """In the dtype of the result."""
    if w.dtype not in FLOATS:
        raise w.refuse(f"{w.target} of integers has no counterpart; take the sum of floating numbers")
    x = w.val(x, w.dtype)
    axes = axes_of(x, dims)
    return w.p.mean(x, axes, keepdim) if "mean" in w.target else w.p.reduce("sum", x, axes, keepdim)


@op("var", "std", "var_mean")
def variance(w: Lowering, x: Val, dims: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = None) -> Any:
    """The mean first, then the squares of what differs from it."""
    if isinstance(dims, bool):
        dims, unbiased = None, dims
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    axes, p = axes_of(x, dims), w.p
    count = math.prod(x.shape[a] for a in axes)
    mean = p.mean(x, axes, True)
    squares = p.unary("square", p.binary("sub", x, mean))
    y = p.affine(p.reduce("sum", squares, axes, keepdim), 1.0 / (count - correction))
    if "var_mean" in w.target:
        return y, p.reshape(mean, y.shape)
    return p.unary("sqrt", y) if "std" in w.target else y


class _Unread:
    """Indices of a maximum: there are none in a program."""


@op("max", "min", "amax", "amin")
def extreme(w: Lowering, x: Val, dims: Any = None, keepdim: bool = False) -> Any:
    """Along axes, or of two; the indices are refused where they are read."""
    if isinstance(dims, (Val, torch.Tensor)):
        return larger(w, x, dims)
    name, p = w.node.target._schema.name.split("::")[1], w.p
    is_min = "min" in name
    if not x.is_floating:
        raise w.refuse(f"{w.target} of integers has no counterpart")
    y = p.reduce("max", p.unary("neg", x) if is_min else x, axes_of(x, dims), keepdim)
    y = p.unary("neg", y) if is_min else y
    return y if name.startswith("a") or dims is None else (y, _Unread())


@op("linalg_vector_norm", "norm", "linalg_norm", "frobenius_norm")
def norm(w: Lowering, x: Val, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Val:
    """The root of the sum of squares."""
    if w.number(2 if order is None else order) != 2:
        raise w.refuse(f"{w.target} of order {order} has no counterpart")
    x = w.val(x, w.dtype)
    return w.p.unary("sqrt", w.p.reduce("sum", w.p.unary("square", x), axes_of(x, dims), keepdim))


@op("cumsum")
def cumsum(w: Lowering, x: Val, dim: int, **_: Any) -> Val:
    """Along the last axis, to which another is moved."""
    x = w.val(x, w.dtype)
    axes = list(range(x.rank))
    axes[dim], axes[-1] = axes[-1], axes[dim]
    return w.p.permute(w.p.unary("cumsum", w.p.permute(x, axes)), axes)


# --- activations ----------------------------------------------------------------------------------
@op("gelu")
def gelu(w: Lowering, x: Val, approximate: str = "none") -> Val:
    """Both forms are ops."""
    return w.p.unary("gelu" if approximate == "tanh" else "gelu_erf", x)


def soft_plus(w: Lowering, x: Val) -> Val:
    """log(1 + e^x), shifted so that nothing overflows."""
    p = w.p
    small = p.unary("log", p.affine(p.unary("exp", p.affine(p.unary("abs", x), -1)), 1, 1))
    return p.binary("add", p.unary("relu", x), small)


@op("softplus", "log_sigmoid", "mish")
def softplus(w: Lowering, x: Val, beta: float = 1, threshold: float = 20) -> Val:
    """By log and exp."""
    name, p = w.node.target._schema.name.split("::")[1], w.p
    if name == "log_sigmoid":
        return p.unary("neg", soft_plus(w, p.unary("neg", x)))
    if name == "mish":
        return p.binary("mul", x, p.unary("tanh", soft_plus(w, x)))
    return p.affine(soft_plus(w, p.affine(x, beta)), 1 / beta)


@op("leaky_relu", "prelu", "_prelu_kernel")
def leaky(w: Lowering, x: Val, slope: Any = 0.01) -> Val:
    """x where it is positive, else a multiple of it, which may be learned for each channel."""
    p = w.p
    if w.number(slope) is None or isinstance(slope, Val):
        weight = w.val(slope)
        if weight.rank == 1 and x.rank > 1:
            weight = p.reshape(weight, (1, weight.shape[0], *(1,) * (x.rank - 2)))
        other = p.binary("mul", weight, x)
    else:
        other = p.affine(x, w.number(slope))  # type: ignore[arg-type]
    return p.select(p.binary("lt", p.fill(0, x.dtype), x), x, other)


@op("elu", "celu", "selu")
def elu(w: Lowering, x: Val, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Val:
    """x where it is positive, else alpha · (e^x - 1)."""
    name, p = w.node.target._schema.name.split("::")[1], w.p
    zero = p.fill(0, x.dtype)
    if name == "selu":
        alpha, scale = 1.6732632423543772, 1.0507009873554805
    if name == "celu":
        input_scale = 1 / alpha
    is_above = p.binary("lt", zero, x)
    below = p.affine(p.select(is_above, zero, x), input_scale)  # e^x of large x is not taken
    return p.affine(p.select(is_above, x, p.affine(p.unary("exp", below), alpha, -alpha)), scale)


@op("hardsigmoid", "hardswish")
def hard(w: Lowering, x: Val) -> Val:
    """min(max(x + 3, 0), 6) / 6, times x."""
    p = w.p
    y = p.binary("minimum", p.binary("maximum", p.affine(x, 1, 3), p.fill(0, x.dtype)), p.fill(6, x.dtype))
    y = p.affine(y, 1 / 6)
    return p.binary("mul", x, y) if "swish" in w.target else y


@op("glu")
def glu(w: Lowering, x: Val, dim: int = -1) -> Val:
    """The first half of an axis, gated by the second."""
    half = x.shape[dim] // 2
    gate = w.p.unary("sigmoid", w.p.slice(x, dim, half, 2 * half))
    return w.p.binary("mul", w.p.slice(x, dim, 0, half), gate)


@op("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax")
def softmax(w: Lowering, x: Any, dim: int, *_: Any, **__: Any) -> Val:
    """Over the last axis, to which another is moved."""
    p, x = w.p, w.val(x, w.dtype)
    axes = list(range(x.rank))
    axes[dim], axes[-1] = axes[-1], axes[dim]
    y = p.permute(x, axes)
    if "log" in w.target:
        y = p.binary("sub", y, p.reshape(p.log_sum_exp(y), (*y.shape[:-1], 1)))
    else:
        y = p.softmax(y)
    return p.permute(y, axes)


@op("logsumexp")
def logsumexp(w: Lowering, x: Val, dims: Any, keepdim: bool = False) -> Val:
    """Over one axis."""
    axes = [a % x.rank for a in axes_of(x, dims)]
    order = [*(a for a in range(x.rank) if a not in axes), *axes]
    rows = w.p.permute(x, order)
    kept = rows.shape[:x.rank - len(axes)]
    return w.p.reshape(w.p.log_sum_exp(w.p.reshape(rows, (*kept, math.prod(rows.shape[len(kept):])))), w.shape)
