"""Questions about a program's values that rules for composites ask: what made them, casts, scales, repeated parts."""
from __future__ import annotations

from collections.abc import Callable

import torch

from .lower import DTYPES_BACK, Lowering
from .program import Node, Val

Rule = Callable[["Finder", Node], "Val | None"]

def made_by(v: Val | None, op: str) -> Node | None:
    """The node of this op that made the value, or None."""
    return v.node if v is not None and v.node is not None and v.node.op == op else None


def core(v: Val) -> Val:
    """The value before it was repeated, and without added dimensions of size 1."""
    while v.node and (v.node.op == "broadcast" or v.node.op == "reshape"
                      and [n for n in v.shape if n != 1] == [n for n in v.node.inputs[0].shape if n != 1]):
        v = v.node.inputs[0]
    return v


def same(a: Val, b: Val, depth: int = 6) -> bool:
    """True if both are the same value, or are computed in the same way."""
    if a is b:
        return True
    x, y = a.node, b.node
    return (depth > 0 and x is not None and y is not None and x.op == y.op and x.attrs == y.attrs
            and len(x.inputs) == len(y.inputs) and all(same(s, t, depth - 1) for s, t in zip(x.inputs, y.inputs)))


def scaled(v: Val) -> tuple[Val, float, float]:
    """(x, scale, shift) if v is scale · x + shift."""
    scale, shift = 1.0, 0.0
    while (node := v.node) and node.op in ("affine", "neg"):
        shift += scale * node.attrs.get("shift", 0.0)
        scale *= node.attrs.get("scale", -1.0)
        v = node.inputs[0]
    return v, scale, shift


def uncast(v: Val) -> Val:
    """The value before casts between floating dtypes, except one from float64, whose rounding nothing undoes."""
    while (node := made_by(v, "cast")) and node.inputs[0].is_floating and node.inputs[0].dtype != "f64":
        v = node.inputs[0]
    return v


def near(a: float, b: float) -> bool:
    """True if two numbers are equal except for rounding."""
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def either(node: Node) -> list[tuple[Val, Val]]:
    """The operands in either order."""
    a, b = node.inputs
    return [(a, b), (b, a)]


def row_reduced(v: Val, op: str) -> Val | None:
    """The operand of a reduction over its last axis."""
    node = made_by(core(v), op)
    return node.inputs[0] if node and node.attrs["axes"] == (node.inputs[0].rank - 1,) else None


class Finder:
    """Answers questions that need more than single nodes."""

    def __init__(self, w: Lowering) -> None:
        self.w, self.p = w, w.program

    def tensor(self, v: Val) -> torch.Tensor | None:
        """The values of a constant in the shape of v, repeated without a copy."""
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
        """True for a weight of ones, which changes nothing."""
        node = made_by(core(v), "fill")
        return node is not None and node.attrs["value"] == 1.0

    def mean_square(self, v: Val) -> tuple[Val, float] | None:
        """(x, eps) if v is mean(x²) + eps over the last axis."""
        total, scale, eps = scaled(core(v))
        squares = row_reduced(total, "sum")
        if squares is None or not near(scale * squares.shape[-1], 1.0):
            return None
        node = squares.node
        if node and (node.op == "square" or node.op == "mul" and node.inputs[0] is node.inputs[1]):
            return node.inputs[0], eps
        return None

    def normed(self, node: Node) -> tuple[Val, float] | None:
        """(x, eps) if the node is x / √(mean(x²) + eps)."""
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
        """A vector that is repeated over the rows, or None."""
        x = core(v)
        return self.p.reshape(x, (width,)) if x.is_floating and x.shape[-1:] == (width,) and x.rank and \
            all(n == 1 for n in x.shape[:-1]) else None
