"""Composites that a module computes in parts, found by what the nodes compute, never by a class's name.

Nodes are read in order, so the operands of a node have been lifted before it. A rule returns the value that
takes the place of the node's first result, or None; it is an identity of real numbers, and the check at the
end of a capture holds all of them together to the module. What no output needs any more is dropped.
"""
from __future__ import annotations

import math
from .find import Finder, Rule, core, either, made_by, near, row_reduced, same, scaled, uncast
from .heads import HEADS
from .lower import Lowering
from .program import Node, Program, Val

NAMES = ("attention", "cross_entropy", "gelu", "layer_norm", "rms_norm", "rope", "softmax", "swiglu")


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
    """How often each composite was found."""
    ops = [node.op for node in program.nodes]
    ops = ["gelu" if name == "gelu_erf" else name for name in ops]
    return {name: ops.count(name) for name in NAMES if name in ops}


def plain_norm(f: Finder, node: Node) -> Val | None:
    """An RMS norm, x / √(mean(x²) + eps), or a layer norm if x is minus its mean."""
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
    """A norm without weight, perhaps rounded, that is multiplied by a weight."""
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
    """A layer norm to which a shift is added."""
    for y, other in either(node):
        norm, bias = made_by(y, "layer_norm"), f.weight(other, y.shape[-1]) if y.rank else None
        if norm and bias is not None and len(norm.inputs) == 2 and bias.dtype == norm.inputs[1].dtype \
                and y is norm.outputs[0] and not made_by(other, "layer_norm") and not _is_row(f, other):
            return _norm(f, norm, norm.inputs[0], norm.inputs[1], bias)
    return None


def _is_row(f: Finder, v: Val) -> bool:
    return v.rank > 1 and core(v).node is not None and core(v).node.op not in ("cast", "affine")  # type: ignore[union-attr]


def narrow_norm(f: Finder, node: Node) -> Val | None:
    """A norm of widened rows whose result is rounded to the dtype that they had."""
    norm = node.inputs[0].node
    if norm is None or norm.op not in ("rms_norm", "layer_norm") or node.inputs[0] is not norm.outputs[0]:
        return None
    x = uncast(norm.inputs[0])
    if x is norm.inputs[0] or x.dtype != node.outputs[0].dtype or norm.inputs[0].dtype != "f32":
        return None
    return None if f.is_ones(norm.inputs[1]) else _norm(f, norm, x, *norm.inputs[1:])


# --- activations, softmax, loss -------------------------------------------------------------------
def swiglu(f: Finder, node: Node) -> Val | None:
    """SwiGLU as silu(gate) · up; x · sigmoid(x) becomes silu first."""
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
            if terms and not terms[0] and not terms[2] and near(terms[1], math.sqrt(2 / math.pi)) \
                    and near(terms[3], 0.044715 * math.sqrt(2 / math.pi)):
                return f.p.unary("gelu", x)
    return None


def stopped(v: Val) -> Val:
    """The value without a stop of gradients and without ops that keep the shape."""
    v = core(v)
    while node := made_by(v, "stop_gradient"):
        v = core(node.inputs[0])
    return v


def less_maximum(v: Val) -> Val | None:
    """The z of which v is z minus the maximum of its row."""
    node = made_by(v, "sub")
    if node and (x := row_reduced(stopped(node.inputs[1]), "max")) is not None and same(x, node.inputs[0]):
        return node.inputs[0]
    return None


def softmax(f: Finder, node: Node) -> Val | None:
    """A softmax as exp(z - max) divided by its sum."""
    top = made_by(node.inputs[0], "exp")
    bottom = row_reduced(node.inputs[1], "sum")
    if top and bottom is not None and same(bottom, node.inputs[0]) and (z := less_maximum(top.inputs[0])) is not None:
        return f.p.softmax(z)
    return None


def exponent_sum(v: Val) -> Val | None:
    """The s of which v is log Σ exp(s), minus the maximum of the row or as the op."""
    if op := made_by(core(v), "log_sum_exp"):
        return op.inputs[0]
    log = made_by(core(v), "log")
    exp = row_reduced(log.inputs[0], "sum") if log else None
    found = made_by(exp, "exp")
    return found.inputs[0] if found and less_maximum(found.inputs[0]) is not None else None


def row_loss(v: Val) -> tuple[Val, Val] | None:
    """(z, targets) if v is log Σ exp(z) - z[target]; a common shift of both terms cancels."""
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


RULES: list[tuple[str, str, Rule]] = [
    ("mul", "rms_norm", plain_norm), ("div", "rms_norm", plain_norm), ("mul", "rms_norm", weighted_norm),
    ("mul", "layer_norm", weighted_norm), ("add", "layer_norm", shifted_norm), ("cast", "rms_norm", narrow_norm),
    ("cast", "layer_norm", narrow_norm), ("mul", "swiglu", swiglu), ("mul", "gelu", gelu), ("div", "softmax", softmax),
    ("affine", "cross_entropy", cross_entropy), ("neg", "cross_entropy", cross_entropy),
    *HEADS]
