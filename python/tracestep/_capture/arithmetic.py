"""ATen's arithmetic, comparisons and reductions as nodes of a program, with every promotion of types a cast."""
from __future__ import annotations

import math
from typing import Any

import torch

from .lower import DTYPES_BACK, Complex, Lowering, op
from .program import FLOATS, Program, Val


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


# Of one operand: the ops of a program that make it. log1p and expm1 lose digits where x is tiny.
FORMULAS = {
    "erf": lambda p, x: p.affine(p.unary("normal_cdf", p.affine(x, math.sqrt(2))), 2, -1),
    "log1p": lambda p, x: p.unary("log", p.affine(x, 1, 1)),
    "log2": lambda p, x: p.affine(p.unary("log", x), 1 / math.log(2)),
    "log10": lambda p, x: p.affine(p.unary("log", x), 1 / math.log(10)),
    "expm1": lambda p, x: p.affine(p.unary("exp", x), 1, -1),
    "exp2": lambda p, x: p.unary("exp", p.affine(x, math.log(2))),
    "hardsigmoid": lambda p, x: _sixth(p, x),
    "hardswish": lambda p, x: p.binary("mul", x, _sixth(p, x)),
    "log_sigmoid": lambda p, x: p.unary("neg", soft_plus(p, p.unary("neg", x))),
    "mish": lambda p, x: p.binary("mul", x, p.unary("tanh", soft_plus(p, x)))}


def soft_plus(p: Program, x: Val) -> Val:
    """Computes log(1 + e^x), shifted so that nothing overflows."""
    small = p.unary("log", p.affine(p.unary("exp", p.affine(p.unary("abs", x), -1)), 1, 1))
    return p.binary("add", p.unary("relu", x), small)


def _sixth(p: Program, x: Val) -> Val:
    """min(max(x + 3, 0), 6) / 6."""
    y = p.binary("minimum", p.binary("maximum", p.affine(x, 1, 3), p.fill(0, x.dtype)), p.fill(6, x.dtype))
    return p.affine(y, 1 / 6)


for _name, _formula in FORMULAS.items():
    op(_name)(lambda w, x, _formula=_formula: _formula(w.p, w.val(x, w.dtype)))


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
    """Logical "and" as the product of truth values, "or" as their sum."""
    return w.p.binary("add" if is_or else "mul", truth(w, a), truth(w, b))


def truth(w: Lowering, x: Any) -> Val:
    """x ≠ 0."""
    x = w.val(x, "bool") if isinstance(x, (bool, int)) else w.val(x)
    return x if x.dtype == "bool" else w.p.negate(w.p.binary("eq", x, w.p.fill(0, x.dtype)))


@op("logical_and", "bitwise_and", "__and__", "__iand__", "logical_or", "bitwise_or", "__or__", "__ior__")
def conjunction(w: Lowering, a: Any, b: Any) -> Val:
    """Logical "and" of truth values."""
    if w.dtype != "bool":
        _only_floats(w)
    return w.p.broadcast(logical(w, a, b, is_or="or" in w.node.target._schema.name), w.shape)


@op("logical_xor", "bitwise_xor", "__xor__", "__ixor__")
def exclusive(w: Lowering, a: Any, b: Any) -> Val:
    """Logical "exclusive or" of truth values."""
    if w.dtype != "bool":
        _only_floats(w)
    return w.p.broadcast(w.p.negate(w.p.binary("eq", truth(w, a), truth(w, b))), w.shape)


@op("any", "all")
def any_or_all(w: Lowering, x: Any, dims: Any = None, keepdim: bool = False) -> Val:
    """"any" or "all" of truth values along axes; all are true unless one is false."""
    x, p = truth(w, x), w.p
    is_all = w.node.target._schema.name.endswith("all")
    some = p.reduce("max", p.cast(p.negate(x) if is_all else x, "f32"), axes_of(x, dims), keepdim)
    return p.binary("eq" if is_all else "lt", p.fill(0, "f32"), some)


@op("isnan", "isinf", "isfinite")
def special(w: Lowering, x: Any) -> Val:
    """NaN differs from itself; what is finite lies below infinity."""
    p, kind = w.p, w.node.target._schema.name.split("::")[1]
    if not x.is_floating:
        return p.fill(kind == "isfinite", "bool", w.shape)
    if kind == "isnan":
        return p.negate(p.binary("eq", x, x))
    return p.binary("eq" if kind == "isinf" else "lt", p.unary("abs", x), p.fill(math.inf, x.dtype))


@op("nan_to_num")
def nan_to_num(w: Lowering, x: Val, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Val:
    """Replaces NaN and infinities by numbers; infinities by the largest number unless one is given."""
    p, largest = w.p, torch.finfo(DTYPES_BACK[x.dtype]).max
    for value, is_there in ((nan or 0.0, p.negate(p.binary("eq", x, x))),
                            (largest if posinf is None else posinf, p.binary("eq", x, p.fill(math.inf, x.dtype))),
                            (-largest if neginf is None else neginf, p.binary("eq", x, p.fill(-math.inf, x.dtype)))):
        x = p.select(is_there, p.fill(value, x.dtype), x)
    return x


@op("logical_not", "bitwise_not")
def negation(w: Lowering, x: Any) -> Val:
    """Logical "not" of a truth value."""
    return w.p.negate(truth(w, x)) if w.dtype == "bool" else _only_floats(w)


@op("where")
def where(w: Lowering, condition: Any, a: Any, b: Any) -> Val:
    """Chooses a where the condition holds, else b."""
    return w.p.broadcast(w.p.select(truth(w, condition), w.val(a, w.dtype), w.val(b, w.dtype)), w.shape)


@op("masked_fill")
def masked_fill(w: Lowering, x: Any, mask: Any, value: Any) -> Val:
    """Replaces elements by a number where the mask is true."""
    return where(w, mask, value, x)


@op("fill")
def fill(w: Lowering, x: Any, value: Any) -> Val:
    """A tensor filled with one number."""
    return w.p.broadcast(w.val(value, w.dtype), w.shape)


@op("tril", "triu")
def triangle(w: Lowering, x: Val, diagonal: int = 0) -> Val:
    """Sets elements above or below a diagonal to zero."""
    ones = torch.ones(x.shape[-2:], dtype=torch.bool)
    kept = ones.tril(diagonal) if "tril" in w.target else ones.triu(diagonal)
    return w.p.select(w.val(kept), x, w.p.fill(0, x.dtype))


@op("maximum", "minimum")
def larger(w: Lowering, a: Any, b: Any) -> Val:
    """The larger or the smaller of two."""
    return w.p.binary("maximum" if "max" in w.target else "minimum", w.val(a, w.dtype), w.val(b, w.dtype))


@op("clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "relu6")
def clamp(w: Lowering, x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Val:
    """Limits x to the given bounds."""
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
    """The axes that a reduction names; all axes if it names none."""
    if dims is None or dims == []:
        return list(range(x.rank))
    return [dims] if isinstance(dims, int) else list(dims)


@op("sum", "mean")
def total(w: Lowering, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Val:
    """A sum in the dtype of its result. Of truth values it is their count, which float32 holds exactly up to 2^24."""
    if "sum" in w.target and isinstance(x, Val) and x.dtype == "bool" and w.dtype not in FLOATS:
        return count(w, x, dims, keepdim)
    if w.dtype not in FLOATS:
        raise w.refuse(f"{w.target} of integers has no counterpart; take the sum of floating numbers")
    x = w.val(x, w.dtype)
    axes = axes_of(x, dims)
    return w.p.mean(x, axes, keepdim) if "mean" in w.target else w.p.reduce("sum", x, axes, keepdim)


def count(w: Lowering, x: Val, dims: Any, keepdim: bool = False) -> Val:
    """Counts the true elements."""
    axes = axes_of(x, dims)
    if math.prod(x.shape[a] for a in axes) > 2**24:
        raise w.refuse(f"{w.target} of more than 2^24 truth values has no counterpart; take the sum of floating numbers")
    return w.p.cast(w.p.reduce("sum", w.p.cast(x, "f32"), axes, keepdim), w.dtype)


@op("count_nonzero")
def count_nonzero(w: Lowering, x: Any, dims: Any = None) -> Val:
    """Counts the elements that are not 0."""
    return count(w, truth(w, x), dims)


@op("var", "std", "var_mean")
def variance(w: Lowering, x: Val, dims: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = None) -> Any:
    """The variance: first the mean, then the squares of the differences from it."""
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
    """Stands for the indices of a maximum, which a program does not have."""


@op("max", "min", "amax", "amin")
def extreme(w: Lowering, x: Val, dims: Any = None, keepdim: bool = False) -> Any:
    """The maximum or minimum along axes, or of two tensors; reading its indices is refused."""
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
    """A running sum along the last axis; another axis is moved there first."""
    x = w.val(x, w.dtype)
    axes = list(range(x.rank))
    axes[dim], axes[-1] = axes[-1], axes[dim]
    return w.p.permute(w.p.unary("cumsum", w.p.permute(x, axes)), axes)
