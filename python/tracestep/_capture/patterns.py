"""Composites that a module computes in parts, found by what the nodes compute, never by a class's name.

Nodes are read in order, so the operands of a node have been lifted before it. A rule returns the value that
takes the place of the node's first result, or None; it is an identity of real numbers, and the check at the
end of a capture holds all of them together to the module. What no output needs any more is dropped.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import torch

from . import masks
from .composites import attended
from .lower import DTYPES_BACK, Lowering
from .program import Node, Program, Val

NAMES = ("attention", "cross_entropy", "gelu", "layer_norm", "rms_norm", "rope", "softmax", "swiglu")
Rule = Callable[["Finder", Node], "Val | None"]


def lift(program: Program, w: Lowering) -> None:
    """Replaces nodes by the composites that are wanted."""
    for _ in range(2 if w.patterns else 0):  # attention is found in the first round, its heads in the second
        _round(program, w)


def _round(program: Program, w: Lowering) -> None:
    find, old, new = Finder(w), program.nodes, {}
    rules = [(op, name, rule) for op, name, rule in RULES if name in w.patterns]
    program.nodes, program.merged = [], {}
    for node in old:
        node.inputs = tuple(new.get(id(v), v) for v in node.inputs)
        program.place = node.place
        for op, name, rule in rules:
            if node.op == op and (y := rule(find, node)) is not None:
                new[id(node.outputs[0])] = y
                break
        else:
            program.nodes.append(node)
    program.outputs = {name: new.get(id(v), v) for name, v in program.outputs.items()}


def lifted_in(program: Program) -> dict[str, int]:
    """How many of each composite there are."""
    ops = [node.op for node in program.nodes]
    ops = ["gelu" if name == "gelu_erf" else name for name in ops]
    return {name: ops.count(name) for name in NAMES if name in ops}


def made_by(v: Val | None, op: str) -> Node | None:
    """The node of that op that made it."""
    return v.node if v is not None and v.node is not None and v.node.op == op else None


def core(v: Val) -> Val:
    """Without repetition, and without sizes of 1 that were added."""
    while v.node and (v.node.op == "broadcast" or v.node.op == "reshape"
                      and [n for n in v.shape if n != 1] == [n for n in v.node.inputs[0].shape if n != 1]):
        v = v.node.inputs[0]
    return v


def same(a: Val, b: Val, depth: int = 6) -> bool:
    """The same value, by the same computation."""
    if a is b:
        return True
    x, y = a.node, b.node
    return (depth > 0 and x is not None and y is not None and x.op == y.op and x.attrs == y.attrs
            and len(x.inputs) == len(y.inputs) and all(same(s, t, depth - 1) for s, t in zip(x.inputs, y.inputs)))


def scaled(v: Val) -> tuple[Val, float, float]:
    """x, scale and shift, where v is scale · x + shift."""
    scale, shift = 1.0, 0.0
    while (node := v.node) and node.op in ("affine", "neg"):
        shift += scale * node.attrs.get("shift", 0.0)
        scale *= node.attrs.get("scale", -1.0)
        v = node.inputs[0]
    return v, scale, shift


def uncast(v: Val) -> Val:
    """Before casts between floating dtypes."""
    while (node := made_by(v, "cast")) and node.inputs[0].is_floating:
        v = node.inputs[0]
    return v


def near(a: float, b: float) -> bool:
    """But for rounding."""
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def either(node: Node) -> list[tuple[Val, Val]]:
    """The operands in both orders."""
    a, b = node.inputs
    return [(a, b), (b, a)]


def row_reduced(v: Val, op: str) -> Val | None:
    """x of a reduction over its last axis."""
    node = made_by(core(v), op)
    return node.inputs[0] if node and node.attrs["axes"] == (node.inputs[0].rank - 1,) else None


class Finder:
    """What rules ask for more than nodes."""

    def __init__(self, w: Lowering) -> None:
        self.w, self.p = w, w.program

    def tensor(self, v: Val) -> torch.Tensor | None:
        """The values of a constant, in the shape of v, repeated without a copy."""
        shape = v.shape
        while v.constant is None and v.node and (v.node.op == "broadcast" or core(v) is not v):
            v = v.node.inputs[0]
        x = v.constant
        if x is None and (fill := made_by(v, "fill")):
            x = torch.tensor(fill.attrs["value"], dtype=DTYPES_BACK[v.dtype])
        if x is None:
            return None
        while x.dim() > len(shape) and x.shape[0] == 1:
            x = x[0]
        try:
            return x.expand(shape)
        except RuntimeError:
            return None

    # --- norms ------------------------------------------------------------------------------------
    def is_ones(self, v: Val) -> bool:
        """A weight that does nothing."""
        node = made_by(core(v), "fill")
        return node is not None and node.attrs["value"] == 1.0

    def mean_square(self, v: Val) -> tuple[Val, float] | None:
        """x and eps, where v is mean(x²) + eps over the last axis."""
        total, scale, eps = scaled(core(v))
        squares = row_reduced(total, "sum")
        if squares is None or not near(scale * squares.shape[-1], 1.0):
            return None
        node = squares.node
        if node and (node.op == "square" or node.op == "mul" and node.inputs[0] is node.inputs[1]):
            return node.inputs[0], eps
        return None

    def normed(self, node: Node) -> tuple[Val, float] | None:
        """x and eps, where the node is x / √(mean(x²) + eps)."""
        for x, other in either(node) if node.op == "mul" else [node.inputs]:
            root = core(other)
            if node.op == "mul" and (inverse := made_by(root, "reciprocal")):
                root = core(inverse.inputs[0])
                found = made_by(root, "sqrt")
            else:
                found = made_by(root, "rsqrt" if node.op == "mul" else "sqrt")
            parts = self.mean_square(found.inputs[0]) if found else None
            if parts and same(parts[0], x):
                return x, parts[1]
        return None

    def weight(self, v: Val, width: int) -> Val | None:
        """A vector that is repeated over the rows."""
        x = core(v)
        return self.p.reshape(x, (width,)) if x.is_floating and x.shape[-1:] == (width,) and x.rank and \
            all(n == 1 for n in x.shape[:-1]) else None


def plain_norm(f: Finder, node: Node) -> Val | None:
    """x / √(mean(x²) + eps), with x less its mean a layer norm."""
    found = f.normed(node)
    if not found:
        return None
    x, eps = found
    if (apart := made_by(x, "sub")) and (whole := row_reduced(scaled(core(apart.inputs[1]))[0], "sum")) is not None:
        _, scale, shift = scaled(core(apart.inputs[1]))
        if same(whole, apart.inputs[0]) and near(scale * x.shape[-1], 1.0) and not shift and "layer_norm" in f.w.patterns:
            x = apart.inputs[0]
            ones = f.p.fill(1, x.dtype, x.shape[-1:])
            return f.p.call("layer_norm", (x, ones), (x.dtype, x.shape), (x.dtype, x.shape[:-1]),
                            (x.dtype, x.shape[:-1]), eps=eps)
    ones = f.p.fill(1, x.dtype, x.shape[-1:])
    return f.p.call("rms_norm", (x, ones), (x.dtype, x.shape), (x.dtype, x.shape[:-1]), eps=eps)


def weighted_norm(f: Finder, node: Node) -> Val | None:
    """A norm without weight, or rounded before it, times a weight."""
    for y, other in either(node):
        norm = uncast(y).node if uncast(y).dtype == y.dtype or uncast(y).dtype == "f32" else None
        if not norm or norm.op not in ("rms_norm", "layer_norm") or not f.is_ones(norm.inputs[1]) or len(norm.inputs) > 2:
            continue
        weight = f.weight(other, y.shape[-1])
        x = norm.inputs[0]
        x = uncast(x) if uncast(x).dtype == y.dtype else x
        if weight is None or x.dtype != node.outputs[0].dtype:
            continue
        return _norm(f, norm, x, weight)
    return None


def _norm(f: Finder, norm: Node, x: Val, *weights: Val) -> Val:
    return f.p.call(norm.op, (x, *weights), (x.dtype, x.shape), *((v.dtype, v.shape) for v in norm.outputs[1:]),
                    **norm.attrs)


def shifted_norm(f: Finder, node: Node) -> Val | None:
    """A layer norm without shift, and one."""
    for y, other in either(node):
        norm, bias = made_by(y, "layer_norm"), f.weight(other, y.shape[-1]) if y.rank else None
        if norm and bias is not None and len(norm.inputs) == 2 and bias.dtype == norm.inputs[1].dtype \
                and y is norm.outputs[0] and not made_by(other, "layer_norm") and not _is_row(f, other):
            return _norm(f, norm, norm.inputs[0], norm.inputs[1], bias)
    return None


def _is_row(f: Finder, v: Val) -> bool:
    return v.rank > 1 and core(v).node is not None and core(v).node.op not in ("cast", "affine")  # type: ignore[union-attr]


def narrow_norm(f: Finder, node: Node) -> Val | None:
    """A norm of rows that were widened, rounded to the dtype they had."""
    norm = node.inputs[0].node
    if norm is None or norm.op not in ("rms_norm", "layer_norm") or node.inputs[0] is not norm.outputs[0]:
        return None
    x = uncast(norm.inputs[0])
    if x is norm.inputs[0] or x.dtype != node.outputs[0].dtype or norm.inputs[0].dtype != "f32":
        return None
    return None if f.is_ones(norm.inputs[1]) else _norm(f, norm, x, *norm.inputs[1:])


# --- activations, softmax, loss -------------------------------------------------------------------
def swiglu(f: Finder, node: Node) -> Val | None:
    """silu(gate) · up; x · sigmoid(x) is silu first."""
    for a, b in either(node):
        if (gate := made_by(b, "sigmoid")) and gate.inputs[0] is a:
            return f.p.unary("silu", a)
    for a, b in either(node):
        if (gate := made_by(a, "silu")) and b.shape == a.shape and not made_by(b, "broadcast"):
            return f.p.call("swiglu", (gate.inputs[0], b), (a.dtype, a.shape))
    return None


def polynomial(v: Val, x: Val, depth: int = 8) -> list[float] | None:
    """Coefficients by power, where v is a polynomial of x of a degree below 4."""
    if v is x:
        return [0.0, 1.0, 0.0, 0.0]
    node = v.node
    if node is None or depth == 0 or node.op not in ("affine", "add", "mul", "square"):
        return None
    parts = [polynomial(core(u), x, depth - 1) for u in node.inputs]
    if any(p is None for p in parts):
        return None
    a, b = parts[0], parts[-1]
    if node.op == "affine":
        scale, shift = node.attrs["scale"], node.attrs["shift"]
        return [scale * c + (shift if i == 0 else 0.0) for i, c in enumerate(a)]  # type: ignore[arg-type]
    if node.op == "add":
        return [c + d for c, d in zip(a, b)]  # type: ignore[arg-type]
    product = [sum(a[i] * b[n - i] for i in range(4) if 0 <= n - i < 4) for n in range(7)]  # type: ignore[index]
    return product[:4] if not any(product[4:]) else None


def gelu(f: Finder, node: Node) -> Val | None:
    """x · Φ(x), or x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    for a, b in either(node):
        (x, outer, none), (gate, scale, shift) = scaled(a), scaled(b)
        if none or x.shape != node.outputs[0].shape:
            continue
        if (cdf := made_by(gate, "normal_cdf")) and abs(shift) < 1e-9 and near(outer * scale, 1.0):
            argument, wide, off = scaled(cdf.inputs[0])
            if argument is x and near(wide, 1.0) and not off:
                return f.p.unary("gelu_erf", x)
        if (tanh := made_by(gate, "tanh")) and near(scale, shift) and near(outer * scale, 0.5):
            terms = polynomial(tanh.inputs[0], x)
            if terms and not terms[0] and not terms[2] and abs(terms[1] - math.sqrt(2 / math.pi)) < 1e-7 \
                    and abs(terms[3] - 0.044715 * math.sqrt(2 / math.pi)) < 1e-8:
                return f.p.unary("gelu", x)
    return None


def stopped(v: Val) -> Val:
    """Without a stop of gradients, and what keeps the shape."""
    v = core(v)
    while node := made_by(v, "stop_gradient"):
        v = core(node.inputs[0])
    return v


def less_maximum(v: Val) -> Val | None:
    """z, where v is z less the maximum of its row."""
    node = made_by(v, "sub")
    if node and (x := row_reduced(stopped(node.inputs[1]), "max")) is not None and same(x, node.inputs[0]):
        return node.inputs[0]
    return None


def softmax(f: Finder, node: Node) -> Val | None:
    """exp(z - max) over its sum."""
    top = made_by(node.inputs[0], "exp")
    bottom = row_reduced(node.inputs[1], "sum")
    if top and bottom is not None and same(bottom, node.inputs[0]) and (z := less_maximum(top.inputs[0])) is not None:
        return f.p.softmax(z)
    return None


def exponent_sum(v: Val) -> Val | None:
    """s, where v is log Σ exp(s) of rows less their maximum, or the op."""
    if op := made_by(core(v), "log_sum_exp"):
        return op.inputs[0]
    log = made_by(core(v), "log")
    exp = row_reduced(log.inputs[0], "sum") if log else None
    found = made_by(exp, "exp")
    return found.inputs[0] if found and less_maximum(found.inputs[0]) is not None else None


def row_loss(v: Val) -> tuple[Val, Val] | None:
    """z and targets, where v is log Σ exp(z) - z[target]; what both terms are shifted by cancels."""
    node = made_by(v, "sub")
    if node and (taken := made_by(core(node.inputs[1]), "take_along")):
        z = exponent_sum(node.inputs[0])
        if z is None and (sum_ := made_by(core(node.inputs[0]), "add")):  # log Σ exp(z - max) + max
            for a, b in either(sum_):
                s, largest = exponent_sum(a), row_reduced(stopped(b), "max")
                z = largest if s is not None and largest is not None and less_maximum(s) is largest else z
        if z is not None and same(z, taken.inputs[0]):
            inner = less_maximum(z)
            return (z if inner is None else inner), taken.inputs[1]
    node = made_by(v, "neg")
    if node and (taken := made_by(core(node.inputs[0]), "take_along")) and (log_p := made_by(taken.inputs[0], "sub")):
        z = exponent_sum(log_p.inputs[1])
        if z is not None and same(z, log_p.inputs[0]):
            inner = less_maximum(z)
            return (z if inner is None else inner), taken.inputs[1]
    return None


def cross_entropy(f: Finder, node: Node) -> Val | None:
    """The mean of the loss of rows, in whichever order sign and mean come."""
    total, scale, shift = scaled(node.outputs[0])
    whole = made_by(core(total), "sum")
    if not whole or shift or len(whole.attrs["axes"]) != whole.inputs[0].rank:
        return None
    losses = whole.inputs[0]
    sign = 1.0
    if made_by(core(losses), "take_along"):
        sign, losses = -1.0, Val(losses.dtype, losses.shape, Node("neg", (losses,), {}))
    count = 1
    for n in losses.shape:
        count *= n
    found = row_loss(core(losses) if core(losses).node and core(losses).shape else losses)
    if not found or not near(sign * scale * count, 1.0):
        return None
    z, target = found
    rows = f.p.reshape(z, (count, z.shape[-1]))
    return f.p.call("cross_entropy", (rows, f.p.reshape(target, (count,))), (z.dtype, ()), (z.dtype, (count,)))


# --- attention ------------------------------------------------------------------------------------
def attention(f: Finder, node: Node) -> Val | None:
    """softmax(mask(cap(scale · q kᵀ))) v; an einsum joins the dimensions before rows and columns."""
    weights, v = unjoined(uncast(node.inputs[0])), node.inputs[1]
    soft = made_by(uncast(weights), "softmax")
    if not soft or node.attrs.get("transpose_b"):
        return None
    scores, kind = _masked(f, uncast(soft.inputs[0]))
    scores, scale, shift = scaled(scores)
    cap = 0.0
    if tanh := made_by(scores, "tanh"):
        scores, inner, more = scaled(tanh.inputs[0])
        shift, cap, scale = shift + more, scale, inner * scale
    product = made_by(unjoined(uncast(scores)), "matmul")
    if kind is None or shift or not product or scale <= 0 or cap < 0:
        return None
    q, k = product.inputs
    if not product.attrs.get("transpose_b"):
        k = _turned(f, k)
    if k.shape != v.shape or q.shape[-1] != v.shape[-1] or not q.dtype == k.dtype == v.dtype == node.outputs[0].dtype:
        return None
    lead = weights.shape[:-2]
    if lead != q.shape[:-2]:
        if math.prod(lead) != math.prod(q.shape[:-2]):
            return None
        q, k, v = (f.p.reshape(x, lead + x.shape[-2:]) for x in (q, k, v))
    return f.p.reshape(attended(f.w, q, k, v, scale, kind, cap), node.outputs[0].shape)


def unjoined(v: Val) -> Val:
    """Before dimensions in front of the last two were joined or split."""
    while (node := made_by(v, "reshape")) and node.inputs[0].rank > 1 and node.inputs[0].shape[-2:] == v.shape[-2:]:
        v = node.inputs[0]
    return v


def _turned(f: Finder, k: Val) -> Val:
    """With the last two axes exchanged, in front of what joined the others."""
    whole = unjoined(k)
    axes = [*range(whole.rank - 2), whole.rank - 1, whole.rank - 2]
    if node := made_by(whole, "permute"):
        y = f.p.permute(node.inputs[0], [node.attrs["axes"][a] for a in axes])
    else:
        y = f.p.permute(whole, axes)
    return f.p.reshape(y, (*k.shape[:-2], k.shape[-1], k.shape[-2]))


def _masked(f: Finder, scores: Val) -> tuple[Val, masks.Seen | None]:
    """Scores before constant masks, and what these leave together."""
    left: torch.Tensor | None = None
    while found := _mask_of(f, scores):
        scores, is_seen = found[0], masks.seen(found[1])
        if is_seen is None or left is not None and left.shape != is_seen.shape:
            return scores, None
        left = is_seen if left is None else left & is_seen
    return scores, masks.Seen(False) if left is None else masks.kind_of(left)


def _mask_of(f: Finder, scores: Val) -> tuple[Val, torch.Tensor] | None:
    if node := made_by(scores, "add"):
        for a, b in either(node):
            mask = f.tensor(b)
            if mask is not None and mask.dim() >= 2 and mask.numel() > 1:
                return uncast(a), mask
    if node := made_by(scores, "select"):
        condition, a, b = node.inputs
        mask = f.tensor(condition)
        for is_turned, (x, other) in enumerate(((a, b), (b, a))):
            fill = made_by(core(other), "fill")
            if mask is not None and mask.dim() >= 2 and fill and fill.attrs["value"] < -1e4:
                return uncast(x), ~mask if is_turned else mask
    return None


def shared_heads(f: Finder, node: Node) -> Val | None:
    """Keys and values that were repeated for groups of heads, once; rotary positions by pairs."""
    q, k, v = node.inputs
    single = [_unrepeated(x) for x in (k, v)]
    if all(single) and single[0].shape == single[1].shape:  # type: ignore[union-attr]
        k, v = single  # type: ignore[assignment]
    if "rope" in f.w.patterns and (turned := [_rotated(f, x) for x in (q, k)]) and all(turned):
        q, k = (rotate() for rotate in turned)  # type: ignore[misc]
    if (q, k, v) == node.inputs:
        return None
    return f.p.call("attention", (q, k, v), (q.dtype, q.shape), **node.attrs)


def _unrepeated(x: Val) -> Val | None:
    """[B,H,T,D] of [B,H·g,T,D], where neighbours are equal."""
    wide = made_by(x, "reshape")
    repeated = made_by(wide.inputs[0], "broadcast") if wide else None
    if not repeated or x.rank != 4 or repeated.outputs[0].rank != 5:
        return None
    source, shape = repeated.inputs[0], repeated.outputs[0].shape
    if source.shape != (*shape[:2], 1, *shape[3:]) or shape[1] * shape[2] != x.shape[1]:
        return None
    if (node := made_by(source, "reshape")) and node.inputs[0].shape == (*shape[:2], *shape[3:]):
        return node.inputs[0]
    return None


def _rotated(f: Finder, x: Val) -> Callable[[], Val] | None:
    """How to write x·cos + rotate(x)·sin as the op; whatever is beside it stays."""
    rest: list[Val] = []
    if (parts := made_by(x, "concat")) and parts.attrs["axis"] == x.rank - 1 and len(parts.inputs) == 2:
        x, rest = parts.inputs[0], [parts.inputs[1]]
    if found := _rotated_pairs(f, x):
        return lambda: _rope(f, *found, False, rest)
    total = made_by(x, "add")
    for left, right in either(total) if total else []:
        for source, cos in either(left.node) if made_by(left, "mul") else []:  # type: ignore[arg-type]
            for turned, sin in either(right.node) if made_by(right, "mul") else []:  # type: ignore[arg-type]
                tables = [f.tensor(t) for t in (cos, sin)]
                if any(t is None for t in tables):
                    continue
                by_halves = _is_turned(turned, source)
                flat = [_table(t, by_halves) for t in tables if t is not None] if by_halves is not None else []
                if flat and all(t is not None for t in flat):
                    return lambda: _rope(f, source, flat, bool(by_halves), rest)  # type: ignore[arg-type]
    return None


def _rotated_pairs(f: Finder, x: Val) -> tuple[Val, list[torch.Tensor]] | None:
    """x of (a·cos - b·sin, a·sin + b·cos), side by side, for the pairs (a, b) of x."""
    pairs = made_by(x, "reshape")
    whole = made_by(pairs.inputs[0], "concat") if pairs else None
    if not whole or whole.outputs[0].shape != (*x.shape[:-1], x.shape[-1] // 2, 2) or len(whole.inputs) != 2:
        return None
    terms = [n and [made_by(v, "mul") for v in n.inputs]
             for n in (made_by(core(whole.inputs[0]), "sub"), made_by(core(whole.inputs[1]), "add"))]
    if not all(t and all(t) for t in terms):
        return None
    parts: list[dict[int, torch.Tensor]] = []  # of each term: which of the pair, times what
    source: Val | None = None
    for product in (n for t in terms for n in t):  # type: ignore[union-attr]
        for v, table in either(product):
            picked, values = made_by(core(v), "slice"), f.tensor(table)
            split = made_by(picked.inputs[0], "reshape") if picked else None
            if values is None or not split or split.outputs[0].shape != whole.outputs[0].shape \
                    or source not in (None, split.inputs[0]):
                continue
            source = split.inputs[0]
            parts.append({picked.attrs["start"]: _flat(values)})  # type: ignore[union-attr, dict-item]
            break
    if len(parts) != 4 or any(t is None for p in parts for t in p.values()):
        return None
    (cos,), (sin,) = parts[0].values(), parts[1].values()
    first, second = (parts[2], parts[3]) if 0 in parts[2] else (parts[3], parts[2])
    fits = 0 in parts[0] and 1 in parts[1] and 1 in second and 0 in first and \
        torch.equal(first[0], sin) and torch.equal(second[1], cos)
    return (source, [cos, sin]) if fits and source is not None and source.shape == x.shape else None


def _flat(t: torch.Tensor) -> torch.Tensor | None:
    """[T, width] of a table that is the same along whatever comes before."""
    while t.dim() > 2:
        if not bool((t == t[:1]).all()):
            return None
        t = t[0]
    return t


def _is_turned(turned: Val, x: Val) -> bool | None:
    """True: (-second half, first half) of x; False: each pair as (-second, first); None: neither."""
    half = x.shape[-1] // 2
    whole = made_by(turned, "concat")
    if whole and len(whole.inputs) == 2 and (neg := made_by(whole.inputs[0], "neg")):
        second, first = made_by(neg.inputs[0], "slice"), made_by(whole.inputs[1], "slice")
        if second and first and second.inputs[0] is x and first.inputs[0] is x and \
                (first.attrs["start"], first.attrs["stop"]) == (0, half) and second.attrs["start"] == half \
                and whole.attrs["axis"] == first.attrs["axis"] == second.attrs["axis"] == x.rank - 1:
            return True
    pairs = made_by(turned, "reshape")
    whole = made_by(pairs.inputs[0], "concat") if pairs else None
    if not whole or whole.attrs["axis"] != x.rank or len(whole.inputs) != 2 or whole.outputs[0].shape[-1] != 2:
        return None
    neg = made_by(core(whole.inputs[0]), "neg")
    picked = [made_by(core(v), "slice") for v in ((neg.inputs[0] if neg else whole.inputs[0]), whole.inputs[1])]
    sources = [made_by(n.inputs[0], "reshape") for n in picked if n]
    is_pair = neg and len(sources) == 2 and all(
        s and s.inputs[0] is x and s.outputs[0].shape == (*x.shape[:-1], half, 2) for s in sources)
    return False if is_pair and [n.attrs["start"] for n in picked if n] == [1, 0] else None


def _table(t: torch.Tensor, by_halves: bool) -> torch.Tensor | None:
    """[T, D/2] of a table over [..., T, D] of which both of a pair are equal."""
    flat = _flat(t)
    if flat is None:
        return None
    half = flat.shape[1] // 2
    a, b = (flat[:, :half], flat[:, half:]) if by_halves else (flat[:, 0::2], flat[:, 1::2])
    return a if torch.equal(a, b) else None


def _rope(f: Finder, x: Val, tables: list[torch.Tensor], by_halves: bool, rest: list[Val]) -> Val:
    cos, sin = (f.w.constant(t, is_table=True) for t in tables)
    y = f.p.call("rope", (x, cos, sin), (x.dtype, x.shape), **({"halves": True} if by_halves else {}))
    return f.p.concat([y, *rest], -1)


RULES: list[tuple[str, str, Rule]] = [
    ("mul", "rms_norm", plain_norm), ("div", "rms_norm", plain_norm), ("mul", "rms_norm", weighted_norm),
    ("mul", "layer_norm", weighted_norm), ("add", "layer_norm", shifted_norm), ("cast", "rms_norm", narrow_norm),
    ("cast", "layer_norm", narrow_norm), ("mul", "swiglu", swiglu), ("mul", "gelu", gelu), ("div", "softmax", softmax),
    ("affine", "cross_entropy", cross_entropy), ("neg", "cross_entropy", cross_entropy),
    ("matmul", "attention", attention), ("attention", "attention", shared_heads)]
