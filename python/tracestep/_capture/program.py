"""A program as data, and its text (docs/decisions/program.md): values with dtype and shape, and nodes.

Binary functions broadcast by explicit views, and types are written in full: the program that reads the text
infers them again and refuses what differs.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._program import UsageError

Shape = tuple[int, ...]
FLOATS = ("f64", "f32", "bf16", "f16")
WIDE = {"bf16": "f32", "f16": "f32"}  # what sums of 16 bits are in
# Ops without operands of which an equal second one is left out, as of views.
_MERGED = {"fill", "iota", "reshape", "permute", "slice", "broadcast", "cast"}


class DType(str):
    """The name of an element type: an attribute without quotes."""


@dataclass(eq=False)
class Val:
    """A leaf, or a result of a node."""

    dtype: str
    shape: Shape
    node: Node | None = None
    name: str = ""  # of leaves
    kind: str = ""
    constant: Any = None  # the tensor that it always is
    example: Any = None  # of integers: the tensor that it is with the inputs of the example

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_floating(self) -> bool:
        """False for integers and booleans."""
        return self.dtype in FLOATS


@dataclass(eq=False)
class Node:
    """A call of an op; `place` is the module's path, the file and the line that it comes from."""

    op: str
    inputs: tuple[Val, ...]
    attrs: dict[str, Any]
    outputs: tuple[Val, ...] = ()
    place: tuple[str, str, int] = ("", "", 0)


@dataclass
class Program:
    """Leaves, nodes in order and outputs; its methods add nodes at the end."""

    name: str
    leaves: list[Val] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Val] = field(default_factory=dict)
    place: tuple[str, str, int] = ("", "", 0)
    merged: dict[Any, Val] = field(default_factory=dict)

    def leaf(self, kind: str, name: str, dtype: str, shape: Iterable[int]) -> Val:
        """Adds an input, parameter or constant."""
        self.leaves.append(Val(dtype, tuple(shape), None, name, kind))
        return self.leaves[-1]

    def call(self, op: str, inputs: Sequence[Val], *types: tuple[str, Shape], **attrs: Any) -> Val:
        """Adds a node with results of these types, and returns the first."""
        key = (op, tuple(map(id, inputs)), repr(attrs)) if op in _MERGED else None
        if key in self.merged:
            return self.merged[key]
        node = Node(op, tuple(inputs), attrs, place=self.place)
        node.outputs = tuple(Val(dtype, tuple(shape), node) for dtype, shape in types)
        self.nodes.append(node)
        if key:
            self.merged[key] = node.outputs[0]
        return node.outputs[0]

    # --- generators and views -------------------------------------------------------------------
    def fill(self, value: float, dtype: str, shape: Iterable[int] = ()) -> Val:
        """One number as a tensor of that shape."""
        one = self.call("fill", (), (dtype, ()), value=float(value), dtype=DType(dtype), shape=())
        return self.broadcast(one, tuple(shape))

    def iota(self, count: int, dtype: str = "i64") -> Val:
        """The numbers 0, 1, 2, … along an axis."""
        return self.call("iota", (), (dtype, (count,)), axis=0, dtype=DType(dtype), shape=(count,))

    def reshape(self, x: Val, shape: Iterable[int]) -> Val:
        """The same elements in row-major order; a reshape of a reshape is one."""
        shape = tuple(shape)
        while x.node and x.node.op == "reshape":
            x = x.node.inputs[0]
        return x if x.shape == shape else self.call("reshape", (x,), (x.dtype, shape), shape=shape)

    def permute(self, x: Val, axes: Iterable[int]) -> Val:
        """Dimension i of the result is dimension axes[i] of x."""
        axes = tuple(a % x.rank for a in axes)
        if axes == tuple(range(x.rank)):
            return x
        return self.call("permute", (x,), (x.dtype, tuple(x.shape[a] for a in axes)), axes=axes)

    def slice(self, x: Val, axis: int, start: int, stop: int) -> Val:
        """The elements start <= i < stop of an axis."""
        axis %= x.rank
        if (start, stop) == (0, x.shape[axis]):
            return x
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1:])
        return self.call("slice", (x,), (x.dtype, shape), axis=axis, start=start, stop=stop)

    def pick(self, x: Val, axis: int, index: int) -> Val:
        """One element of an axis, which is removed."""
        axis %= x.rank
        one = self.slice(x, axis, index, index + 1)
        return self.reshape(one, (*x.shape[:axis], *x.shape[axis + 1:]))

    def broadcast(self, x: Val, shape: Iterable[int]) -> Val:
        """Repeats dimensions of size 1, and adds leading ones."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        while x.node and x.node.op == "broadcast":
            x = x.node.inputs[0]
        return self.call("broadcast", (x,), (x.dtype, shape), shape=shape)

    def concat(self, xs: Sequence[Val], axis: int) -> Val:
        """Joins tensors along an axis; those without elements are left out."""
        axis %= xs[0].rank
        xs = [x for x in xs if x.shape[axis]] or xs[:1]
        if len(xs) == 1:
            return xs[0]
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return self.call("concat", xs, (xs[0].dtype, tuple(shape)), axis=axis)

    def stop_gradient(self, x: Val) -> Val:
        """x, through which no gradient flows."""
        return self.call("stop_gradient", (x,), (x.dtype, x.shape)) if x.is_floating else x

    # --- elementwise ------------------------------------------------------------------------------
    def cast(self, x: Val, dtype: str) -> Val:
        """Casts to another dtype."""
        return x if x.dtype == dtype else self.call("cast", (x,), (dtype, x.shape), dtype=DType(dtype))

    def unary(self, op: str, x: Val) -> Val:
        """Calls an op of one operand."""
        return self.call(op, (x,), (x.dtype, x.shape))

    def affine(self, x: Val, scale: float = 1.0, shift: float = 0.0) -> Val:
        """scale · x + shift."""
        if (scale, shift) == (1.0, 0.0):
            return x
        return self.call("affine", (x,), (x.dtype, x.shape), scale=float(scale), shift=float(shift))

    def together(self, *xs: Val) -> list[Val]:
        """Broadcasts all operands to one shape."""
        rank = max(x.rank for x in xs)
        padded = [(1,) * (rank - x.rank) + x.shape for x in xs]
        # A size of 1 gives way to any other, 0 as well.
        shape = tuple(next((d for d in sizes if d != 1), 1) for sizes in zip(*padded))
        return [self.broadcast(x, shape) for x in xs]

    def binary(self, op: str, a: Val, b: Val) -> Val:
        """Calls an op of two operands of one dtype."""
        a, b = self.together(a, b)
        return self.call(op, (a, b), ("bool" if op in ("eq", "lt", "le") else a.dtype, a.shape))

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        """a where the condition holds, else b."""
        condition, a, b = self.together(condition, a, b)
        return self.call("select", (condition, a, b), (a.dtype, a.shape))

    def negate(self, x: Val) -> Val:
        """Logical "not" of a bool."""
        return self.binary("eq", x, self.fill(0, "bool"))

    # --- reductions and products --------------------------------------------------------------------
    def reduce(self, op: str, x: Val, axes: Iterable[int], keepdims: bool = False) -> Val:
        """A reduction by the op `sum` or `max`."""
        axes = tuple(sorted(a % x.rank for a in axes))
        if not axes:
            return x
        kept = (1 if keepdims else None for _ in axes)
        by_axis = dict(zip(axes, kept))
        shape = tuple(d for d in (by_axis.get(i, n) for i, n in enumerate(x.shape)) if d is not None)
        return self.call(op, (x,), (x.dtype, shape), axes=axes, keepdims=keepdims)

    def mean(self, x: Val, axes: Iterable[int], keepdims: bool = False) -> Val:
        """The sum divided by the number of elements."""
        axes = tuple(axes)
        count = math.prod(x.shape[a] for a in axes)
        return self.affine(self.reduce("sum", x, axes, keepdims), 1.0 / max(count, 1))

    def softmax(self, x: Val) -> Val:
        """A softmax over the last axis."""
        return self.call("softmax", (x,), (x.dtype, x.shape))

    def matmul(self, a: Val, b: Val, transpose_b: bool = False) -> Val:
        """a [..., m, k] by b [..., k, n], or [..., n, k]; the batch broadcasts, and b without one is one product."""
        if b.rank == 2 and a.rank != 2:
            flat = self.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
            y = self.matmul(flat, b, transpose_b)
            return self.reshape(y, (*a.shape[:-1], y.shape[-1]))
        turned = b.node if b.node and b.node.op == "permute" else None
        if turned and turned.attrs["axes"] == (*range(b.rank - 2), b.rank - 1, b.rank - 2):
            b, transpose_b = turned.inputs[0], not transpose_b
        rank = max(a.rank, b.rank)
        a, b = (self.reshape(x, (1,) * (rank - x.rank) + x.shape) for x in (a, b))
        batch = tuple(n if m == 1 else m for m, n in zip(a.shape[:-2], b.shape[:-2]))
        a, b = (self.broadcast(x, batch + x.shape[-2:]) for x in (a, b))
        attrs = {"transpose_b": True} if transpose_b else {}
        columns = b.shape[-2] if transpose_b else b.shape[-1]
        return self.call("matmul", (a, b), (a.dtype, (*batch, a.shape[-2], columns)), **attrs)

    def linear(self, x: Val, weight: Val, bias: Val | None, transpose_b: bool = True) -> Val:
        """x [..., k] by weight [n, k] (else [k, n]), a bias [n] added to each row: one op, as autocast casts it."""
        if bias is None or bias.shape != (weight.shape[0 if transpose_b else 1],):
            y = self.matmul(x, weight, transpose_b)
            return y if bias is None else self.binary("add", y, bias)
        rows = self.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
        attrs = {"transpose_b": True} if transpose_b else {}
        y = self.call("matmul_bias", (rows, weight, bias), (x.dtype, (rows.shape[0], *bias.shape)), **attrs)
        return self.reshape(y, (*x.shape[:-1], *bias.shape))

    def gather(self, table: Val, indices: Val, padding: int = -1) -> Val:
        """Rows of a table [n, d]; the row of the padding index gets no gradient."""
        attrs = {"padding": padding} if padding >= 0 else {}
        return self.call("gather", (table, indices), (table.dtype, (*indices.shape, table.shape[1])), **attrs)

    def take_along(self, x: Val, indices: Val) -> Val:
        """One element of each row of x [..., n], by indices [...]."""
        return self.call("take_along", (x, indices), (x.dtype, indices.shape))

    def log_sum_exp(self, x: Val) -> Val:
        """log Σ exp(x) over the last axis, which is removed."""
        return self.call("log_sum_exp", (x,), (x.dtype, x.shape[:-1]))

    # --- the whole ----------------------------------------------------------------------------------
    def drop_unread(self) -> None:
        """Leaves out nodes, inputs and constants that no output needs; parameters stay, read or not."""
        wanted = {id(v) for v in self.outputs.values()}
        kept = []
        for node in reversed(self.nodes):
            if any(id(v) in wanted for v in node.outputs):
                wanted.update(map(id, node.inputs))
                kept.append(node)
        self.nodes = kept[::-1]
        self.leaves = [v for v in self.leaves if v.kind != "constant" or id(v) in wanted]

    def freeze_untouched(self) -> None:
        """Makes constants of parameters that get no gradient: PyTorch's optimizers leave them as they are."""
        touched = {id(self.outputs["loss"])}
        for node in reversed(self.nodes):
            if node.op != "stop_gradient" and any(id(v) in touched for v in node.outputs):
                touched.update(id(v) for v in node.inputs if v.is_floating)
        for v in self.leaves:
            if v.kind == "parameter" and id(v) not in touched:
                v.kind = "constant"

    def text(self) -> str:
        """The text of the program, which src/ir/parse.h reads."""
        names = {id(v): "%" + v.name for v in self.leaves}
        results = (v for node in self.nodes for v in node.outputs)
        names.update((id(v), f"%{i}") for i, v in enumerate(results))
        lines = [f'program "{word(self.name)}" {{']
        lines += [f"  {v.kind} %{v.name} : {type_of(v)}" for v in self.leaves]
        for node in self.nodes:
            path, file, line = node.place
            if any(isinstance(value, float) and math.isnan(value) for value in node.attrs.values()):
                raise UsageError(f"[{file}:{line}] a constant is NaN, and so is all that it touches" + (f" (in {path})" if path else ""), 2)
            attrs = ", ".join(f"{key}={literal(value)}" for key, value in node.attrs.items())
            lines.append(f"  {', '.join(names[id(v)] for v in node.outputs)} : "
                         f"{', '.join(map(type_of, node.outputs))} = {node.op}"
                         f"({', '.join(names[id(v)] for v in node.inputs)})" + (f" {{{attrs}}}" if attrs else "")
                         + f" @ {word(path) or '.'} forward" + (f" {word(file)}:{line}" if file else ""))
        lines += [f'  output "{name}" = {names[id(v)]}' for name, v in self.outputs.items()]
        return "\n".join([*lines, "}", ""])


def word(text: str) -> str:
    """A name with an underscore in place of each character that the text does not allow."""
    return re.sub(r"[^A-Za-z0-9_.+/-]", "_", text)


def type_of(v: Val) -> str:
    """A type as text: dtype[sizes]."""
    return f"{v.dtype}[{','.join(map(str, v.shape))}]"


def literal(value: Any) -> str:
    """An attribute as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
