"""The nodes of an exported graph, one by one, as nodes of a program.

What depends on no input and no parameter is computed by PyTorch (`folded`); where a node that stays reads
it, it becomes a generator if it is one, else a leaf of kind constant. The ops are in ops.py and its
neighbours, each under the name that ATen has for it.
"""
from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .._program import UsageError
from .masks import causal_window
from .program import Program, Shape, Val, word

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16",
          torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}
OPS: dict[str, Callable[..., Any]] = {}
# Their values are whatever memory held; those of random numbers have a tag.
UNSET = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
BATCH = "dropout.batch"  # the input that dropout depends on
# Of an operand, they read the shape only.
SHAPED = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "numel", "sym_size")


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the function that writes ATen's ops of these names (without overload)."""
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        OPS.update(dict.fromkeys(names, function))
        return function
    return add


# Loops over positions, which a program would have to unroll.
LOOPS = ("lstm", "gru", "rnn_tanh", "rnn_relu", "quantized_lstm")


def is_known(target: torch._ops.OpOverload) -> bool:
    """Whether an op is written as it is, or refused as it is."""
    name = target._schema.name.rpartition("::")[2]
    return name in OPS or name in SHAPED or name in UNSET or name in LOOPS or target.namespace != "aten"


class Complex:
    """A complex value as two real ones, because programs have no complex dtype."""

    def __init__(self, real: Val, imaginary: Val) -> None:
        self.parts = (real, imaginary)


def place_of(node: torch.fx.Node) -> tuple[str, str, int]:
    """The path of the module and the line of the user's source: the innermost one outside of PyTorch."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = re.sub(r"@\d+", "", str(stack[-1][0])) if stack else ""
    path = re.sub(r"^(L\['self'\]|L__self__)?\.?(module(\.|$))?", "", path)
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    here = os.path.dirname(__file__)
    frames = [f for f in frames if f"{os.sep}torch{os.sep}" not in f[0] and not f[0].startswith(here)]
    file, line = frames[-1] if frames else ("", "0")
    return path, os.path.basename(file), int(line)


def refuse(place: tuple[str, str, int], what: str) -> UsageError:
    """Makes the error that names the line and the module."""
    path, file, line = place
    where = f"[{file}:{line}] " if file else ""
    return UsageError(f"{where}{what}" + (f" (in {path})" if path else ""), 2)


class Lowering:
    """Writes one graph into `program`; `node`, `shape` and `dtype` are those of the node being written."""

    def __init__(self, program: Program, patterns: frozenset[str]) -> None:
        self.program = self.p = program
        self.patterns = patterns
        self.constants: dict[str, torch.Tensor] = {}  # of leaves
        self.stored: dict[Any, Val] = {}
        self.node: torch.fx.Node = None  # type: ignore[assignment]
        self.place = ("", "", 0)
        self.batch: Val | None = None  # the number of the batch, where something is dropped
        self.drops = 0

    # --- what the ops ask for ---------------------------------------------------------------------
    def of(self, node: torch.fx.Node) -> Any:
        """The fake tensor that a node computes."""
        return node.meta.get("val")

    @property
    def shape(self) -> Shape:
        """The shape of the node's result."""
        return tuple(self.of(self.node).shape)

    @property
    def dtype(self) -> str:
        """The dtype of the node's result."""
        return self.name_of(self.of(self.node).dtype)

    def name_of(self, dtype: torch.dtype) -> str:
        """The name of a dtype in a program."""
        if dtype not in DTYPES:
            raise self.refuse(f"{self.target} of {str(dtype).removeprefix('torch.')}: a program has no such dtype")
        return DTYPES[dtype]

    @property
    def target(self) -> str:
        """The op's name, for messages."""
        return str(self.node.target)

    def refuse(self, what: str) -> UsageError:
        """Makes the error for the node being written."""
        return refuse(self.place, what)

    def number(self, x: Any) -> float | None:
        """The number in a constant of one element, or None."""
        if isinstance(x, (bool, int, float)):
            return x
        if isinstance(x, torch.Tensor) and x.numel() == 1 and not x.is_complex():
            return x.item()
        return None

    def val(self, x: Any, dtype: str | None = None) -> Val:
        """An operand as a value of the program, in that dtype."""
        if isinstance(x, (bool, int, float)):
            return self.p.fill(x, dtype or self.dtype)
        if isinstance(x, torch.Tensor):
            x = self.constant(x)
        if not isinstance(x, Val):
            raise self.refuse(f"{self.target} of {type(x).__name__} has no counterpart")
        return self.p.cast(x, dtype) if dtype else x

    def dropped(self, x: Val, p: float) -> Val:
        """x with dropout; each call has a random stream of its own."""
        self.batch = self.batch or self.p.leaf("input", BATCH, "i64", (1,))
        self.drops += 1
        return self.p.call("dropout", (x, self.batch), (x.dtype, x.shape), rate=float(p), stream=self.drops)

    # --- constants --------------------------------------------------------------------------------
    def constant(self, x: torch.Tensor, is_table: bool = False) -> Val:
        """A constant as a generator, or as a leaf without the dimensions along which its values repeat; a table is
        always a leaf.
        """
        x = x.detach()
        y = self.stored_leaf(x, self.name_of(x.dtype)) if is_table else self._constant(x)
        y.constant = x
        if y.node and y.node.op == "broadcast" and y.node.inputs[0].rank == x.dim():
            small = y.node.inputs[0].shape  # a wider repetition may begin from there
            y.node.inputs[0].constant = x[tuple(slice(n) for n in small)]
        return y

    def _constant(self, x: torch.Tensor) -> Val:
        p, shape, dtype = self.p, tuple(x.shape), self.name_of(x.dtype)
        for axis, size in enumerate(shape):  # strides of 0 are seen first, without reading
            if size > 1 and (x.stride(axis) == 0 or bool((x == x.narrow(axis, 0, 1)).all())):
                x = x.narrow(axis, 0, 1)
        if x.numel() == 1 and (x.is_floating_point() or abs(x.item()) <= 2**53) and x.item() == x.item():
            return p.fill(x.item(), dtype, shape)
        core = x.squeeze()
        small = tuple(x.shape)
        if core.dim() == 1 and core.dtype in (torch.int64, torch.int32, torch.float32, torch.float64):
            if torch.equal(core, torch.arange(len(core), dtype=core.dtype)):
                return p.broadcast(p.reshape(p.iota(len(core), dtype), small), shape)
        if core.dim() == 2 and core.dtype == torch.bool and (mask := self.mask(core)) is not None:
            return p.broadcast(p.reshape(mask, small), shape)
        return p.broadcast(p.reshape(self.stored_leaf(core, dtype), small), shape)

    def mask(self, x: torch.Tensor) -> Val | None:
        """Writes a causal mask, one with a window, or the opposite of either, by comparing indices."""
        for is_opposite in (False, True):
            found = causal_window(~x if is_opposite else x)
            if not found:
                continue
            p, (rows, columns) = self.p, x.shape
            row = p.reshape(p.iota(rows), (rows, 1))
            row = p.binary("add", row, p.fill(columns - rows, "i64")) if columns != rows else row
            column = p.reshape(p.iota(columns), (1, columns))
            y = p.binary("le", column, row)
            if found.window:
                near = p.binary("lt", row, p.binary("add", column, p.fill(found.window, "i64")))
                y = p.select(near, y, p.fill(0, "bool"))
            return p.negate(y) if is_opposite else y
        return None

    def stored_leaf(self, x: torch.Tensor, dtype: str) -> Val:
        """A leaf whose values are stored; equal tensors share one leaf."""
        x = x.contiguous().clone()
        key = (dtype, tuple(x.shape), hash(x.reshape(-1).view(torch.uint8).numpy().tobytes()))
        if key not in self.stored:
            name = f"constants.{len(self.stored)}"
            self.stored[key] = self.p.leaf("constant", name, dtype, x.shape)
            self.constants[name] = x
        return self.stored[key]

    # --- the graph --------------------------------------------------------------------------------
    def run(self, graph: torch.fx.GraphModule, values: dict[str, Any]) -> tuple[Any, ...]:
        """Writes all nodes, from the values of placeholders by name, and returns the outputs."""
        env: dict[torch.fx.Node, Any] = {}
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                env[node] = values[node.name]
            elif node.op == "get_attr":
                env[node] = operator.attrgetter(node.target)(graph)
            elif node.op == "output":
                return torch.fx.node.map_arg(node.args[0], lambda n: env[n])
            else:
                self.node, self.place = node, place_of(node)
                self.p.place = (word(self.place[0]), self.place[1], self.place[2])
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
                env[node] = self.written(node, args, dict(kwargs))
        raise AssertionError("a graph has an output")

    def written(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An argument of a node as it was written: a value, several, a constant tensor or a number."""
        if node.target is operator.getitem:
            return args[0][args[1]]
        name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
        if isinstance(node.target, torch._ops.OpOverload):
            name = node.target._schema.name.split("::")[1]
        if name.startswith("_assert") or name == "sym_constrain_range_for_size":
            return None
        if isinstance(self.of(node), (torch.SymInt, torch.SymFloat, torch.SymBool)) or any(
                isinstance(x, torch.SymInt) for x in getattr(self.of(node), "shape", ())):
            raise self.refuse(f"{self.target}: a size that depends on values is not known before the step runs")
        tags = getattr(node.target, "tags", ())
        is_random = torch.Tag.nondeterministic_seeded in tags
        if name not in OPS and (name in UNSET or is_random and re.match("rand|normal|bernoulli|uniform|multi|exp", name)):
            is_filled = any(torch.Tag.nondeterministic_seeded in getattr(user.target, "tags", ()) for user in node.users)
            gives = "memory as it was" if name in UNSET and not is_filled else "random numbers"
            raise self.refuse(f"{self.target} gives {gives}; of these a program has dropout of single elements alone")
        if name in SHAPED:
            args = tuple(torch.empty(()).new_empty((1,), dtype=DTYPES_BACK[a.dtype]).expand(a.shape)
                         if isinstance(a, Val) else a for a in args)
        if isinstance(node.target, torch._ops.OpOverload) and not _any_live((args, kwargs)) and not is_random:
            return self.folded(node, args, kwargs)
        if name not in OPS:
            raise self.refuse(f"{self.target} has no counterpart among the ops of a program")
        y = OPS[name](self, *args, **kwargs)
        self.follow(node, args, kwargs, y)
        return y

    def follow(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> None:
        """Computes what an integer value is in the example, because it decides whether targets are ignored."""
        if not isinstance(y, Val) or y.is_floating or not isinstance(node.target, torch._ops.OpOverload):
            return
        known = tree_map(lambda x: x.example if isinstance(x, Val) and x.example is not None else x, (args, kwargs))
        if not _any_live(known):
            y.example = self.folded(node, *known)

    # --- targets ----------------------------------------------------------------------------------
    def is_ignored(self, target: Val, ignored: int) -> bool:
        """False where the example's targets are known and none is ignored."""
        while target.node and target.node.op == "reshape" and target.example is None:
            target = target.node.inputs[0]
        return target.example is None or bool((target.example == ignored).any())

    def targets_of(self, target: Val, ignored: int) -> Val:
        """Targets with 0 in place of ignored ones."""
        if not self.is_ignored(target, ignored):
            return target
        zero, mark = (self.p.fill(n, target.dtype) for n in (0, ignored))
        return self.p.select(self.p.binary("eq", target, mark), zero, target)

    def folded(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes a node by PyTorch, because it depends on constants alone."""
        with torch.no_grad():
            kwargs = {k: (torch.device("cpu") if isinstance(v, torch.device) else v) for k, v in kwargs.items()}
            return node.target(*args, **kwargs)


DTYPES_BACK = {name: dtype for dtype, name in DTYPES.items()}


def _any_live(x: Any) -> bool:
    if isinstance(x, (tuple, list)):
        return any(map(_any_live, x))
    if isinstance(x, dict):
        return _any_live(tuple(x.values()))
    return isinstance(x, (Val, Complex))


@op("wrap_with_set_grad_enabled")
def set_grad_enabled(w: Lowering, enabled: bool, graph: torch.fx.GraphModule, *operands: Any) -> Any:
    """Writes the nodes of a block under torch.no_grad, behind which gradients stop."""
    y = _inlined(w, graph, operands)
    return y if enabled else tuple(w.p.stop_gradient(v) if isinstance(v, Val) else v for v in y)


@op("wrap_with_autocast")
def autocast(w: Lowering, device: str, dtype: Any, enabled: bool, cache: Any, graph: Any, *operands: Any) -> Any:
    """Writes the nodes of a block whose autocast is off."""
    if enabled:
        raise w.refuse("autocast inside of the module: leave it out, and say precision= of what runs the program")
    return _inlined(w, graph, operands)


def _inlined(w: Lowering, graph: torch.fx.GraphModule, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    node, place = w.node, w.place
    y = w.run(graph, dict(zip(names, operands)))
    w.node, w.place = node, place
    return tuple(y) if isinstance(y, (tuple, list)) else (y,)
