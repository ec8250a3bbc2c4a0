"""Products, convolutions over patches, norms and attention: ATen's whole nodes as our composites.

Where the pattern of a composite is off, or the node differs from it, it is written by its parts.
"""
from __future__ import annotations

import math
from typing import Any

import torch

from . import masks
from .lower import DTYPES_BACK, Lowering, op
from .program import WIDE, Val


# --- products -------------------------------------------------------------------------------------
@op("linear")
def linear(w: Lowering, x: Any, weight: Any, bias: Any = None) -> Val:
    """x · weightᵀ + bias."""
    y = w.p.linear(w.val(x), w.val(weight), None if bias is None else w.val(bias))
    return w.p.reshape(y, w.shape)


@op("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(w: Lowering, a: Any, b: Any) -> Val:
    """A product of matrices; a vector becomes a matrix of one row or column."""
    a, b = w.val(a), w.val(b)
    a = w.p.reshape(a, (1, *a.shape)) if a.rank == 1 else a
    b = w.p.reshape(b, (*b.shape, 1)) if b.rank == 1 else b
    return w.p.reshape(w.p.matmul(a, b), w.shape)


@op("addmm", "baddbmm", "addmv")
def addmm(w: Lowering, c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Val:
    """beta · c + alpha · a · b."""
    if (beta, alpha) == (1, 1) and w.val(c).rank == 1 and w.val(b).rank == 2:
        return w.p.linear(w.val(a), w.val(b), w.val(c), transpose_b=False)
    y = w.p.affine(matmul(w, a, b), alpha)
    return w.p.binary("add", w.p.affine(w.val(c), beta), y) if beta else y


@op("outer", "ger")
def outer(w: Lowering, a: Val, b: Val) -> Val:
    """The outer product of two vectors."""
    return w.p.binary("mul", w.p.reshape(w.val(a), (*a.shape, 1)), w.val(b))


@op("einsum")
def einsum(w: Lowering, text: str, operands: list[Any], **_: Any) -> Val:
    """An einsum, from left to right: each pair of operands by permutations and one product."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    values = [w.val(x) for x in operands]
    spare = iter(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in text)
    ranks = [v.rank - len(t.replace("...", "")) for t, v in zip(terms, values)]
    more = "".join(next(spare) for _ in range(max(ranks)))  # what "..." stands for
    terms = [t.replace("...", more[len(more) - n:]) for t, n in zip(terms, ranks)]
    if not arrow:
        letters = "".join(terms)
        right = more + "".join(sorted(c for c in set(letters) - set(more) if letters.count(c) == 1))
    right = right.replace("...", more)
    term, y = terms[0], values[0]
    if any(len(set(t)) < len(t) for t in terms):
        raise w.refuse(f"{w.target} {text!r}: a diagonal has no counterpart")
    for i in range(1, len(terms)):
        later = set("".join(terms[i + 1:]) + right)
        term, y = _pair(w, term, y, terms[i], values[i], later)
    y = w.p.reduce("sum", y, [term.index(c) for c in term if c not in right])
    term = "".join(c for c in term if c in right)
    return w.p.permute(y, [term.index(c) for c in right])


def _pair(w: Lowering, s: str, a: Val, t: str, b: Val, later: set[str]) -> tuple[str, Val]:
    p = w.p
    a = p.reduce("sum", a, [i for i, c in enumerate(s) if c not in t and c not in later])
    s = "".join(c for c in s if c in t or c in later)
    b = p.reduce("sum", b, [i for i, c in enumerate(t) if c not in s and c not in later])
    t = "".join(c for c in t if c in s or c in later)
    sizes = {c: n for term, v in ((s, a), (t, b)) for c, n in zip(term, v.shape) if n != 1}
    size = lambda letters: tuple(sizes.get(c, 1) for c in letters)
    batch = [c for c in s if c in t and c in later]
    inner = [c for c in s if c in t and c not in later]
    rows, columns = ([c for c in term if c not in other] for term, other in ((s, t), (t, s)))
    a = p.broadcast(a, size(s))
    b = p.broadcast(b, size(t))
    a = p.permute(a, [s.index(c) for c in (*batch, *rows, *inner)])
    b = p.permute(b, [t.index(c) for c in (*batch, *inner, *columns)])
    if not inner:
        a = p.reshape(a, (*size(batch), *size(rows), *(1,) * len(columns)))
        b = p.reshape(b, (*size(batch), *(1,) * len(rows), *size(columns)))
        return "".join((*batch, *rows, *columns)), p.binary("mul", a, b)
    flat = [math.prod(size(x)) for x in (batch, rows, inner, columns)]
    lead = (flat[0],) if batch else ()
    y = p.matmul(p.reshape(a, (*lead, flat[1], flat[2])), p.reshape(b, (*lead, flat[2], flat[3])))
    return "".join((*batch, *rows, *columns)), p.reshape(y, size((*batch, *rows, *columns)))


@op("conv1d", "conv2d", "conv3d", "convolution")
def patches(w: Lowering, x: Val, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
            dilation: Any = 1, *rest: Any) -> Val:
    """A convolution whose windows lie side by side is a product of patches."""
    p, weight = w.p, w.val(weight)
    n = weight.rank - 2
    wide = lambda v: [v] * n if isinstance(v, int) else list(v) * (n if len(v) == 1 else 1)
    kernel, groups = list(weight.shape[2:]), rest[-1] if rest else 1
    is_apart = wide(stride) == kernel or all(k == s for k, s in zip(kernel, x.shape[2:]))
    if (not is_apart or padding not in (0, "valid") and any(wide(padding)) or groups != 1 or rest[:1] == (True,)
            or any(d > 1 and k > 1 for d, k in zip(wide(dilation), kernel))):
        raise w.refuse(f"{w.target} is not over patches (stride = kernel, no padding, one group): it has no counterpart")
    x = p.reshape(x, (1, *x.shape)) if x.rank == n + 1 else x
    counts = [size // k for size, k in zip(x.shape[2:], kernel)]
    for axis, (count, k) in enumerate(zip(counts, kernel), 2):
        x = p.slice(x, axis, 0, count * k)
    x = p.reshape(x, (*x.shape[:2], *(m for pair in zip(counts, kernel) for m in pair)))
    x = p.permute(x, [0, *range(2, 2 * n + 2, 2), 1, *range(3, 2 * n + 2, 2)])
    rows = p.reshape(x, (x.shape[0] * math.prod(counts), math.prod(weight.shape[1:])))
    y = p.linear(rows, p.reshape(weight, (weight.shape[0], rows.shape[1])), None if bias is None else w.val(bias))
    y = p.reshape(y, (x.shape[0], *counts, weight.shape[0]))
    return p.reshape(p.permute(y, [0, n + 1, *range(1, n + 1)]), w.shape)


# --- norms ----------------------------------------------------------------------------------------
def _rows(w: Lowering, x: Val, sizes: list[int], *weights: Any) -> tuple[Val, list[Val | None]]:
    """The axes that are normalised together, and their weights."""
    width = math.prod(sizes)
    rows = w.p.reshape(x, (*x.shape[:x.rank - len(sizes)], width))
    return rows, [None if v is None else w.p.reshape(w.val(v), (width,)) for v in weights]


def rms_normed(w: Lowering, x: Val, weight: Val | None, eps: float) -> Val:
    """RMS norm over the last axis."""
    p, wide = w.p, WIDE.get(x.dtype, x.dtype)
    if "rms_norm" in w.patterns:
        weight = weight or p.fill(1, x.dtype, (x.shape[-1],))
        return p.call("rms_norm", (x, weight), (x.dtype, x.shape), (wide, x.shape[:-1]), eps=eps)
    xw = p.cast(x, wide)
    y = p.binary("mul", xw, p.unary("rsqrt", p.affine(p.mean(p.unary("square", xw), [-1], True), 1, eps)))
    return p.cast(p.binary("mul", y, p.cast(weight, wide)) if weight else y, x.dtype)


def layer_normed(w: Lowering, x: Val, weight: Val | None, bias: Val | None, eps: float) -> Val:
    """Layer norm over the last axis."""
    p, wide = w.p, WIDE.get(x.dtype, x.dtype)
    if "layer_norm" in w.patterns:
        weight = weight or p.fill(1, bias.dtype if bias else x.dtype, (x.shape[-1],))
        operands = (x, weight, *([bias] if bias else []))
        return p.call("layer_norm", operands, (x.dtype, x.shape), (wide, x.shape[:-1]), (wide, x.shape[:-1]), eps=eps)
    xw = p.cast(x, wide)
    apart = p.binary("sub", xw, p.mean(xw, [-1], True))
    y = p.binary("mul", apart, p.unary("rsqrt", p.affine(p.mean(p.unary("square", apart), [-1], True), 1, eps)))
    y = p.binary("mul", y, p.cast(weight, wide)) if weight else y
    return p.cast(p.binary("add", y, p.cast(bias, wide)) if bias else y, x.dtype)


@op("layer_norm", "native_layer_norm")
def layer_norm(w: Lowering, x: Val, sizes: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
               *_: Any) -> Any:
    """Layer norm over the last axes."""
    rows, (weight, bias) = _rows(w, x, sizes, weight, bias)
    y = w.p.reshape(layer_normed(w, rows, weight, bias, eps), x.shape)
    return (y, None, None) if "native" in w.target else y


@op("rms_norm", "_fused_rms_norm")
def rms_norm(w: Lowering, x: Val, sizes: list[int], weight: Any = None, eps: float | None = None) -> Any:
    """RMS norm over the last axes."""
    if eps is None:
        eps = torch.finfo(DTYPES_BACK[WIDE.get(x.dtype, x.dtype)]).eps
    rows, (weight,) = _rows(w, x, sizes, weight)
    y = w.p.reshape(rms_normed(w, rows, weight, eps), x.shape)
    return (y, None) if "fused" in w.target else y


@op("_weight_norm")
def weight_norm(w: Lowering, v: Val, g: Val, dim: int = 0) -> Val:
    """g · v / |v|, each slice along `dim` by itself; of all of v for -1."""
    p = w.p
    axes = [axis for axis in range(v.rank) if axis != dim]
    count = math.prod(v.shape[axis] for axis in axes)
    length = p.unary("sqrt", p.affine(p.mean(p.unary("square", v), axes, True), count, 0))
    return p.binary("mul", v, p.binary("div", g, length))


@op("group_norm")
def group_norm(w: Lowering, x: Val, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
               *_: Any) -> Val:
    """A layer norm of each group, with a weight for each channel."""
    p = w.p
    y = p.reshape(layer_normed(w, p.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups)), None, None, eps),
                  x.shape)
    for operation, v in (("mul", weight), ("add", bias)):
        if v is not None:
            y = p.binary(operation, y, p.reshape(w.val(v), (x.shape[1], *(1,) * (x.rank - 2))))
    return y


@op("_native_batch_norm_legit_no_training", "batch_norm")
def batch_norm(w: Lowering, x: Val, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    """Batch norm with fixed statistics, as after eval()."""
    p, wide = w.p, WIDE.get(x.dtype, x.dtype)
    is_whole = "legit" not in w.target
    if is_whole and rest[0] or mean is None:
        raise w.refuse(f"{w.target} with the statistics of the batch has no counterpart: call eval()")
    column = lambda v: p.cast(p.reshape(w.val(v), (x.shape[1], *(1,) * (x.rank - 2))), wide)
    y = p.binary("mul", p.binary("sub", p.cast(x, wide), column(mean)),
                 p.unary("rsqrt", p.affine(column(variance), 1, rest[-1 if not is_whole else 2])))
    y = p.binary("mul", y, column(weight)) if weight is not None else y
    y = p.cast(p.binary("add", y, column(bias)) if bias is not None else y, x.dtype)
    return y if is_whole else (y, None, None)


# --- attention ------------------------------------------------------------------------------------
@op("scaled_dot_product_attention")
def attention(w: Lowering, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False,
              *, scale: float | None = None, enable_gqa: bool = False) -> Val:
    """Writes attention as our op if the mask is constant and hides the future, a window or nothing; else in parts."""
    q, k, v = w.val(q), w.val(k), w.val(v)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    kind = masks.Seen(False) if mask is None else None
    if isinstance(mask, torch.Tensor):
        kind = masks.kind_of(mask.expand(*mask.shape[:-2], q.shape[-2], k.shape[-2]))
    if kind and k.shape == v.shape and k.shape[-1] == q.shape[-1] and not dropout and "attention" in w.patterns:
        return attended(w, q, k, v, scale, kind)
    return by_parts(w, q, k, v, mask if kind != masks.Seen(False) else None, scale, dropout)


def attended(w: Lowering, q: Val, k: Val, v: Val, scale: float, kind: masks.Seen, cap: float = 0.0) -> Val:
    """Writes the op, over [batch, heads, positions, width]; a batch of 1 is repeated, and dimensions before heads are
    joined.
    """
    p = w.p
    rank = max(q.rank, k.rank)
    q, k, v = (p.reshape(x, (1,) * (rank - x.rank) + x.shape) for x in (q, k, v))
    if rank > 2:
        lead = tuple(max(m, n) for m, n in zip(q.shape[:-3], k.shape[:-3]))
        q, k, v = (p.broadcast(x, lead + x.shape[-3:]) for x in (q, k, v))
    shape = q.shape
    if rank > 4:
        q, k, v = (p.reshape(x, (math.prod(x.shape[:-3]), *x.shape[-3:])) for x in (q, k, v))
    attrs = {"scale": float(scale), "causal": kind.causal}
    attrs.update({"cap": float(cap)} if cap else {}, **({"window": kind.window} if kind.window else {}))
    return p.reshape(p.call("attention", (q, k, v), (q.dtype, q.shape), **attrs), shape)


def by_parts(w: Lowering, q: Val, k: Val, v: Val, mask: Any, scale: float, dropout: float = 0.0) -> Val:
    """Writes scores, mask, softmax, dropout and values as separate ops; a row that sees nothing becomes 0, as in
    PyTorch.
    """
    p = w.p
    dropped = lambda weights: w.dropped(weights, dropout) if dropout else weights
    if k.rank > 2 and k.shape[-3] != q.shape[-3] and k.shape[-3] > 1:
        group = q.shape[-3] // k.shape[-3]
        spread = lambda x: p.reshape(p.broadcast(p.reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])),
                                                 (*x.shape[:-2], group, *x.shape[-2:])),
                                     (*x.shape[:-3], x.shape[-3] * group, *x.shape[-2:]))
        k, v = spread(k), spread(v)
    scores = p.affine(p.matmul(q, k, transpose_b=True), scale)
    if mask is None:
        return p.matmul(dropped(p.softmax(scores)), v)
    if isinstance(mask, torch.Tensor) and (is_seen := masks.seen(mask)) is not None:
        mask = is_seen
    mask = w.val(mask)
    if mask.dtype != "bool":
        return p.matmul(dropped(p.softmax(p.binary("add", scores, p.cast(mask, scores.dtype)))), v)
    hidden = torch.finfo(DTYPES_BACK[scores.dtype]).min
    weights = p.softmax(p.select(mask, scores, p.fill(hidden, scores.dtype)))
    return p.matmul(dropped(p.select(mask, weights, p.fill(0, weights.dtype))), v)
