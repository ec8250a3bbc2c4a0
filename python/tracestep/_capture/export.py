"""A module, its loss and its inputs as one step, exported by PyTorch and written as a program."""
from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import logging
import operator
import re
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._program import UsageError
from . import activations, arithmetic, composites, views  # each registers its ops
from .lower import BATCH, DTYPES, Lowering, is_known, place_of, refuse
from .patterns import lift, lifted_in
from .program import Program, Val, word

assert activations and arithmetic and composites and views


# The names of what a step adds to a module's program: inputs, states and an output.
RESERVED = ("lr", "step_size", "loss", "loss_scale")


@dataclass
class Inputs:
    """The tensors of a call in order, with names; the other arguments stay unchanged."""

    tensors: list[torch.Tensor]
    names: list[str]
    places: list[int]  # of each leaf of the tree, its tensor, or -1
    others: list[Any]
    tree: Any
    targets: int  # how many leaves of the call are the loss's

    @staticmethod
    def of(module: torch.nn.Module, args: Sequence[Any], keywords: dict[str, Any], targets: Sequence[Any]) -> Inputs:
        """Collects the tensors of a call. A tensor that is passed twice is one input."""
        try:
            bound = inspect.signature(module.forward).bind(*args, **keywords).arguments
        except (TypeError, ValueError) as problem:
            raise UsageError(f"the module's forward cannot be called like this: {problem}", 2) from None
        tree = (tuple(args), dict(keywords), tuple(targets))
        names = _names(bound, list(args), keywords) + [
            "targets" if len(targets) == 1 else f"targets.{i}" for i in range(len(targets))]
        leaves, spec = pytree.tree_flatten(tree)
        found = Inputs([], [], [], leaves, spec, len(targets))
        known: dict[int, int] = {}
        taken = set(RESERVED).union(n for n, _ in module.named_parameters(remove_duplicate=False))
        taken.update(n for n, _ in module.named_buffers(remove_duplicate=False))
        paths = [names[i] for i, part in enumerate([*args, *keywords.values(), *targets])
                 for _ in pytree.tree_leaves(part)]
        for leaf, name in zip(leaves, paths):
            if not isinstance(leaf, torch.Tensor):
                found.places.append(-1)
                continue
            if id(leaf) not in known:
                known[id(leaf)] = len(found.tensors)
                found.tensors.append(leaf)
                name = f"input.{name}" if name in taken else name
                numbered = (f"{name}.{i}" for i in itertools.count(1))
                free = (n for n in itertools.chain([name], numbered) if n not in found.names and n not in taken)
                found.names.append(next(free))
            found.places.append(known[id(leaf)])
        return found

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """Arguments, keywords and targets with other tensors in place of the original ones."""
        leaves = [other if at < 0 else tensors[at] for other, at in zip(self.others, self.places)]
        return pytree.tree_unflatten(leaves, self.tree)


def _names(bound: dict[str, Any], args: list[Any], keywords: dict[str, Any]) -> list[str]:
    known = {id(v): name for name, v in reversed(bound.items())}  # of one tensor: the first
    return [word(known.get(id(x), f"input.{i}")) for i, x in enumerate(args)] + [word(n) for n in keywords]


class Step(torch.nn.Module):
    """A module that returns the loss and the logits of the module it holds."""

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any] | None, inputs: Inputs) -> None:
        super().__init__()
        self.module = module
        self.loss = loss
        self.inputs = inputs
        self.training = module.training

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns (loss,), or (loss, logits) if the module returns logits."""
        args, keywords, targets = self.inputs.call(tensors)
        outputs = self.module(*args, **keywords)
        loss = self.loss(outputs, *targets) if self.loss else loss_of(outputs)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            raise UsageError("the step has no loss: loss= takes a function of the outputs (and targets=) that returns "
                             "a scalar; without it the module returns one, alone, in a tuple or as .loss", 2)
        logits = _part(outputs, "logits", lambda x: x.dim() > 0)
        return (loss.reshape(()), logits) if logits is not None else (loss.reshape(()),)


def loss_of(outputs: Any) -> Any:
    """What a module returns as its loss: alone, in a tuple or as `.loss`."""
    return _part(outputs, "loss", lambda x: x.dim() == 0)


def _part(outputs: Any, name: str, fits: Callable[[torch.Tensor], bool]) -> torch.Tensor | None:
    """The output with that name, else the first floating tensor that fits."""
    named = outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)
    candidates = [named] if isinstance(named, torch.Tensor) else (
        list(outputs) if isinstance(outputs, (tuple, list)) else [outputs])
    return next((x for x in candidates if isinstance(x, torch.Tensor) and x.is_floating_point() and fits(x)), None)


class Widened(torch.overrides.TorchFunctionMode):
    """float32, float16 and bfloat16 are float64 wherever a module names them, and nothing is dropped: for the check."""

    NARROW = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64}
    DROPS = (torch.nn.functional.dropout, torch.dropout)
    METHODS = {torch.Tensor.float: torch.Tensor.double, torch.Tensor.half: torch.Tensor.double,
               torch.Tensor.bfloat16: torch.Tensor.double}

    def __enter__(self) -> Any:
        """Makes float64 the default dtype."""
        self.default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        """Restores the default dtype."""
        super().__exit__(*problem)
        torch.set_default_dtype(self.default)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function with float64 in place of narrower dtypes."""
        wide = lambda x: self.NARROW.get(x, x) if isinstance(x, torch.dtype) else x
        kwargs = dict(kwargs or {})
        if func in self.DROPS:
            return args[0] if args else kwargs["input"]
        if func is torch.nn.functional.scaled_dot_product_attention:
            args, kwargs = args[:4], {**dict(zip(("dropout_p", "is_causal"), args[4:])), **kwargs, "dropout_p": 0.0}
        if func is torch.nn.functional.multi_head_attention_forward:
            kwargs["training"] = False  # of nothing but its dropout
        if func is not torch.finfo and "assert" not in getattr(func, "__name__", ""):
            args, kwargs = pytree.tree_map(wide, (tuple(args), dict(kwargs or {})))
        return self.METHODS.get(func, func)(*args, **kwargs)


def widened_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of the module in float64, including tensors that are plain attributes."""
    module = copy.deepcopy(module).double()
    for part in module.modules():
        for name, x in vars(part).items():
            if isinstance(x, torch.Tensor) and x.dtype in Widened.NARROW:
                setattr(part, name, x.double())
    return module


@dataclass
class Exported:
    """A program, the tensors of its leaves, and warnings of the export."""

    program: Program
    weights: dict[str, torch.Tensor]
    frozen: list[str]
    constants: dict[str, torch.Tensor]
    buffers: list[str]  # of the constants, those that the module saves
    tied: dict[str, str]
    lifted: dict[str, int]
    inputs: list[dict[str, Any]]
    examples: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]  # the module's own


def leaves_of(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Parameters by name, each once, and the other names of tied ones, which share their storage."""
    kept: dict[str, torch.Tensor] = {}
    tied: dict[str, str] = {}
    known: dict[Any, str] = {}
    for name, x in module.named_parameters(remove_duplicate=False):
        key: Any = id(x)
        if x.numel():
            key = (x.data_ptr(), tuple(x.shape), x.stride())
        if key in known:
            tied[name] = known[key]
        else:
            known[key] = name
            kept[name] = x
    return kept, tied


def graph_of(step: Step, tensors: Sequence[torch.Tensor]) -> torch.export.ExportedProgram:
    """PyTorch's graph of the step in its functional form, in which composites are whole nodes."""
    quiet = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # a refusal says all of it in one line
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), \
                warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(step, tuple(tensors), strict=False)
        for part in exported.graph_module.modules():
            if isinstance(part, torch.fx.GraphModule):
                _keep_stops(part)
        return _taken_apart(exported.run_decompositions({}))
    except UsageError:
        raise
    except Exception as problem:  # of any type; PyTorch's own reason
        raise UsageError(_reason(problem), 2) from None
    finally:
        logging.disable(quiet)


def _taken_apart(graph: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """With PyTorch's own definitions in place of ops that have no counterpart: losses, products and norms made of simpler ones."""
    for _ in range(4):
        targets = {node.target for part in graph.graph_module.modules() if isinstance(part, torch.fx.GraphModule)
                   for node in part.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
        missing = {op for op in targets if not is_known(op) and torch.Tag.nondeterministic_seeded not in op.tags}
        table = {op: parts for op, parts in torch.export.default_decompositions().items() if op in missing} if missing else {}
        if not table:
            break
        graph = graph.run_decompositions(table)
    return graph


def _keep_stops(part: torch.fx.GraphModule) -> None:
    """Detaches the results of blocks under no_grad, which the functional form of the graph forgets."""
    for node in list(part.graph.nodes):
        block = node.args[0] if node.target is operator.getitem else None
        if not isinstance(block, torch.fx.Node) or getattr(block.target, "__name__", "") != "wrap_with_set_grad_enabled" \
                or block.args[0] is True or not node.meta["val"].is_floating_point():
            continue
        inside = operator.attrgetter(block.args[1].target)(part).graph.nodes
        if any("torch/utils/checkpoint.py" in (n.meta.get("stack_trace") or "") for n in inside):
            place = next((place_of(n) for n in inside if place_of(n)[1]), ("", "", 0))
            raise refuse(place, "a reentrant checkpoint hides its gradients: say use_reentrant=False")
        readers = [user for user in node.users if user.op != "output"]
        with part.graph.inserting_after(node):
            stopped = part.graph.call_function(torch.ops.aten.detach.default, (node,))
        stopped.meta.update(node.meta)
        for user in readers:
            user.replace_input_with(node, stopped)
    part.recompile()


def _reason(problem: Exception) -> str:
    """An error as one line, with the line of the user's source if it is known."""
    text = str(problem)
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    frames += [(f.filename, str(f.lineno)) for f in traceback.extract_tb(problem.__traceback__)][::-1]
    mine = [f for f in frames if "/torch/" not in f[0] and "/_capture/" not in f[0] and not f[0].startswith("<")]
    where = f"[{mine[0][0].rpartition('/')[2]}:{mine[0][1]}] " if mine else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(problem).__name__)
    return f"{where}torch.export cannot follow the module: {first[:300]}"


def exported(step: Step, tensors: Sequence[torch.Tensor], name: str, patterns: frozenset[str],
             widened: bool = False) -> Exported:
    """Exports the step and writes it as a program; `widened`: in float64 throughout."""
    with Widened() if widened else contextlib.nullcontext():
        graph = graph_of(step, tensors)
    return written(step, graph, tensors, name, patterns)


def written(step: Step, graph: torch.export.ExportedProgram, tensors: Sequence[torch.Tensor], name: str,
            patterns: frozenset[str]) -> Exported:
    """Writes the graph as a program, and returns it with the tensors of its leaves."""
    module = step.module
    kept, tied = leaves_of(module)
    program = Program(word(name))
    w = Lowering(program, patterns)
    values = _placeholders(w, step, graph, kept, tied, tensors)
    for spec in graph.graph_signature.output_specs:
        if spec.kind.name == "BUFFER_MUTATION":
            raise UsageError(f"the step changes the buffer {spec.target.removeprefix('module.')} (as batch norm does "
                             "while training); a program has none that change: call eval(), or leave it out", 2)
    loss, *logits = w.run(graph.graph_module, values)[-len(graph.graph_signature.user_outputs):]
    program.place = ("", "", 0)
    for output, v in zip(("loss", "logits"), (loss, *logits)):
        v = w.val(v) if not isinstance(v, Val) else v
        program.outputs[output] = program.cast(v, "f32") if output == "loss" and v.dtype != "f64" else v
    lift(program, w)
    program.drop_unread()
    named = {v.name for v in program.leaves}
    program.freeze_untouched()
    frozen = [v.name for v in program.leaves if v.kind == "constant" and v.name in kept]
    constants = {n: x for n, x in w.constants.items() if n in named}
    buffers = _buffers(program, module, kept, tied)
    constants.update(buffers)
    return Exported(program, {n: x.detach() for n, x in kept.items() if n in named}, frozen, constants,
                    list(buffers), tied, lifted_in(program), _roles(program), dict(zip(step.inputs.names, tensors)), kept)


def _buffers(program: Program, module: torch.nn.Module, kept: dict[str, torch.Tensor],
             tied: dict[str, str]) -> dict[str, torch.Tensor]:
    """Adds leaves for the buffers that the module saves with its parameters, so that its weights can be written
    completely.
    """
    found = {}
    for name, x in module.state_dict(keep_vars=True).items():
        if name in kept or name in tied or not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
            continue
        program.leaf("constant", name, DTYPES[x.dtype], x.shape)
        found[name] = x.detach()
    return found


def _placeholders(w: Lowering, step: Step, graph: torch.export.ExportedProgram, kept: dict[str, torch.Tensor],
                  tied: dict[str, str], tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    program = w.program
    inputs = [program.leaf("input", name, w.name_of(x.dtype), x.shape) for name, x in zip(step.inputs.names, tensors)]
    for v, x in zip(inputs, tensors):
        v.example = None if v.is_floating else x
    leaves = {name: program.leaf("parameter" if x.requires_grad else "constant", name, DTYPES[x.dtype], x.shape)
              for name, x in kept.items()}
    for name in leaves:
        if word(name) != name or name.isdigit():
            raise UsageError(f"the parameter {name!r}: a name in a program has letters, digits and . _ - + /, and not "
                             "digits alone", 2)
        if name in RESERVED:
            raise UsageError(f"the parameter {name!r} is called as what every step has beside a module's own; "
                             "give it another name", 2)
    rest = iter(inputs)
    for spec in graph.graph_signature.input_specs:
        kind, name = spec.kind.name, getattr(spec.arg, "name", "")
        target = (spec.target or "").removeprefix("module.")
        if kind == "PARAMETER":
            values[name] = leaves[tied.get(target, target)]
        elif kind == "BUFFER":
            values[name] = graph.constants[spec.target] if spec.target in graph.constants else graph.state_dict[spec.target]
        elif kind == "CONSTANT_TENSOR":
            values[name] = graph.constants[spec.target]
        elif kind == "USER_INPUT":
            values[name] = next(rest)
        else:
            raise UsageError(f"the module has an input of kind {kind}, which a program has not", 2)
    return values


def _roles(program: Program) -> list[dict[str, Any]]:
    """The roles of integer inputs: what they index, also through views and other ops that keep indices."""
    rows: dict[int, tuple[str, int]] = {}
    for node in reversed(program.nodes):
        if node.op in ("gather", "take_along", "cross_entropy"):
            high = node.inputs[0].shape[0 if node.op == "gather" else -1]
            role = "tokens" if node.op == "gather" else "targets"
            rows[id(node.inputs[1])] = (role, min(high, rows.get(id(node.inputs[1]), (role, high))[1]))
        found = next((rows[id(v)] for v in node.outputs if id(v) in rows), None)
        if found and node.op in ("reshape", "permute", "slice", "broadcast", "cast", "select", "concat", "stop_gradient"):
            for v in node.inputs:
                if v.dtype != "bool":
                    old = rows.get(id(v), found)
                    role = "tokens" if "tokens" in (old[0], found[0]) else "targets"
                    rows[id(v)] = (role, min(old[1], found[1]))
    out = []
    for v in program.leaves:
        if v.kind == "input":
            role, high = rows.get(id(v), ("given", 0))
            is_index = v.dtype == "i64" and high
            if v.name == BATCH:
                out.append({"name": v.name, "role": "batch"})
                continue
            out.append({"name": v.name, "role": role, "high": high} if is_index else {"name": v.name, "role": "given"})
    return out
