"""ATen's activations, softmax and losses: whole nodes as our composites, or their parts."""
from __future__ import annotations

import math
from typing import Any

from .arithmetic import axes_of, soft_plus
from .lower import Lowering, op
from .program import WIDE, Val


# --- activations ----------------------------------------------------------------------------------
@op("gelu")
def gelu(w: Lowering, x: Val, approximate: str = "none") -> Val:
    """GELU; both of its forms are ops of a program."""
    return w.p.unary("gelu" if approximate == "tanh" else "gelu_erf", x)


@op("softplus")
def softplus(w: Lowering, x: Val, beta: float = 1, threshold: float = 20) -> Val:
    """log(1 + e^(beta x)) / beta."""
    return w.p.affine(soft_plus(w.p, w.p.affine(x, beta)), 1 / beta)


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


@op("glu")
def glu(w: Lowering, x: Val, dim: int = -1) -> Val:
    """The first half of an axis, gated by the second."""
    half = x.shape[dim] // 2
    gate = w.p.unary("sigmoid", w.p.slice(x, dim, half, 2 * half))
    return w.p.binary("mul", w.p.slice(x, dim, 0, half), gate)


@op("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax")
def softmax(w: Lowering, x: Any, dim: int, *_: Any, **__: Any) -> Val:
    """A softmax over the last axis; another axis is moved there first."""
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
    """log Σ exp(x) over one axis."""
    axes = [a % x.rank for a in axes_of(x, dims)]
    order = [*(a for a in range(x.rank) if a not in axes), *axes]
    rows = w.p.permute(x, order)
    kept = rows.shape[:x.rank - len(axes)]
    return w.p.reshape(w.p.log_sum_exp(w.p.reshape(rows, (*kept, math.prod(rows.shape[len(kept):])))), w.shape)


# --- losses ---------------------------------------------------------------------------------------
def _reduced(w: Lowering, x: Val, reduction: int) -> Val:
    return x if reduction == 0 else w.p.mean(x, axes_of(x, None)) if reduction == 1 else w.p.reduce("sum", x, axes_of(x, None))


def _classes_last(w: Lowering, x: Val) -> Val:
    """Moves the classes last: [N, V] from [V], [N, V] or [N, V, …]."""
    y = w.p.permute(x, [0, *range(2, x.rank), 1]) if x.rank > 2 else x
    return w.p.reshape(y, (math.prod(y.shape[:-1]), y.shape[-1]))


@op("cross_entropy_loss")
def cross_entropy(w: Lowering, x: Any, target: Any, weight: Any = None, reduction: int = 1, ignored: int = -100,
                  smoothing: float = 0.0) -> Val:
    """The op for a mean over rows; class weights, smoothing and other kinds of targets are written in parts."""
    p, x, target = w.p, w.val(x), w.val(target)
    wide = WIDE.get(x.dtype, x.dtype)
    rows = _classes_last(w, x)
    if target.is_floating:
        rows = p.cast(rows, wide)
        log_p = p.binary("sub", rows, p.reshape(p.log_sum_exp(rows), (rows.shape[0], 1)))
        hits = p.cast(_classes_last(w, target), wide)
        hits = p.affine(hits, 1 - smoothing, smoothing / rows.shape[1]) if smoothing else hits
        hits = p.binary("mul", hits, p.cast(w.val(weight), wide)) if weight is not None else hits
        losses = p.unary("neg", p.reduce("sum", p.binary("mul", hits, log_p), [1]))
        y = losses if reduction == 0 else p.affine(p.reduce("sum", losses, [0]), 1 / rows.shape[0] if reduction == 1 else 1)
        return p.cast(p.reshape(y, w.shape), w.dtype)
    target = p.reshape(target, (rows.shape[0],))
    if not smoothing and weight is None and reduction and "cross_entropy" in w.patterns:
        return p.cast(_row_losses(w, rows, target, reduction, ignored), w.dtype)
    rows = p.cast(rows, wide)
    lse = p.log_sum_exp(rows)
    picked = w.targets_of(target, ignored)
    losses = p.binary("sub", lse, p.take_along(rows, picked))
    if smoothing:
        even = p.binary("sub", lse, p.mean(rows, [1]))
        losses = p.binary("add", p.affine(losses, 1 - smoothing), p.affine(even, smoothing))
    if smoothing and weight is not None:
        raise w.refuse(f"{w.target} with both class weights and smoothing has no counterpart")
    return _of_rows(w, losses, target, picked, weight, reduction, ignored)


def _row_losses(w: Lowering, rows: Val, target: Val, reduction: int, ignored: int) -> Val:
    """Writes the op: a mean over rows, or a sum divided by the number of targets that count."""
    p, wide = w.p, WIDE.get(rows.dtype, rows.dtype)
    operands, attrs = (rows, target), {}
    if reduction != 1 or w.is_ignored(target, ignored):
        count, attrs = p.fill(1, wide), {"ignore_index": ignored}
        if reduction == 1:
            is_ignored = p.binary("eq", target, p.fill(ignored, target.dtype))
            count = p.reduce("sum", p.select(is_ignored, p.fill(0, wide), p.fill(1, wide)), [0])
        operands = (rows, target, count)
    return p.call("cross_entropy", operands, (wide, ()), (wide, rows.shape[:1]), **attrs)


@op("nll_loss_nd", "nll_loss", "nll_loss2d")
def nll_loss(w: Lowering, x: Any, target: Any, weight: Any = None, reduction: int = 1, ignored: int = -100) -> Val:
    """The negative log likelihood, from log probabilities."""
    rows = _classes_last(w, w.val(x))
    target = w.p.reshape(w.val(target), (rows.shape[0],))
    picked = w.targets_of(target, ignored)
    return _of_rows(w, w.p.unary("neg", w.p.take_along(rows, picked)), target, picked, weight, reduction, ignored)


def _of_rows(w: Lowering, losses: Val, target: Val, picked: Val, weight: Any, reduction: int, ignored: int) -> Val:
    p, dtype = w.p, losses.dtype
    one, zero = p.fill(1, dtype), p.fill(0, dtype)
    counts = p.broadcast(one, losses.shape)
    if weight is not None:
        weights = w.val(weight, dtype)
        counts = p.take_along(p.broadcast(weights, (*losses.shape, weights.shape[0])), picked)
    if picked is not target:
        is_ignored = p.binary("eq", target, p.fill(ignored, target.dtype))
        counts = p.select(is_ignored, zero, counts)
        losses = p.select(is_ignored, zero, losses)
    losses = p.binary("mul", losses, counts) if weight is not None else losses
    if reduction:
        losses = p.reduce("sum", losses, [0])
    if reduction == 1:
        losses = p.binary("div", losses, p.reduce("sum", counts, [0]))
    return p.cast(p.reshape(losses, w.shape), w.dtype)


@op("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def distance(w: Lowering, a: Any, b: Any, reduction: int = 1, edge: float = 1.0) -> Val:
    """A loss of differences: their squares, their magnitudes, or squares near 0 and magnitudes beyond."""
    p, name = w.p, w.node.target._schema.name.split("::")[1]
    apart = p.binary("sub", w.val(a, w.dtype), w.val(b, w.dtype))
    if name == "mse_loss":
        return _reduced(w, p.unary("square", apart), reduction)
    far = p.unary("abs", apart)
    if name == "l1_loss":
        return _reduced(w, far, reduction)
    near = p.affine(p.unary("square", apart), 0.5)
    far = p.affine(far, edge, -0.5 * edge * edge)
    y = p.select(p.binary("lt", p.unary("abs", apart), p.fill(edge, apart.dtype)), near, far)
    return _reduced(w, p.affine(y, 1 / edge) if name.startswith("smooth") else y, reduction)


@op("binary_cross_entropy_with_logits")
def binary_cross_entropy(w: Lowering, x: Any, y: Any, weight: Any = None, positive: Any = None, reduction: int = 1) -> Val:
    """log(1 + e^x) - x · y."""
    if positive is not None:
        raise w.refuse(f"{w.target} with pos_weight has no counterpart")
    p, x = w.p, w.val(x, w.dtype)
    losses = p.binary("sub", soft_plus(w.p, x), p.binary("mul", x, w.val(y, w.dtype)))
    return _reduced(w, losses if weight is None else p.binary("mul", losses, w.val(weight, w.dtype)), reduction)
