"""The C interface of tracestep's attention (src/capi/tracestep_attention.h) for torch tensors."""
from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
FAMILIES = {"auto": 0, "portable": 1, "hopper": 2}


class Shape(ctypes.Structure):
    """The struct tracestep_attention_shape."""

    _fields_ = ([(name, ctypes.c_int32) for name in
                 ("dtype", "batch", "heads", "queries", "keys", "width")]
                + [("scale", ctypes.c_float)]
                + [(name, ctypes.c_int32) for name in
                   ("causal", "offset", "deterministic", "tf32", "family", "key_heads", "window")]
                + [("cap", ctypes.c_float)])


class Strides(ctypes.Structure):
    """The struct tracestep_strides."""

    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "row")]


def call_type(pointers: Sequence[str], strides: Sequence[str]) -> Any:
    """Makes the struct of a call, which has these members between its shape and its workspace."""
    fields: list[tuple[str, Any]] = [("shape", Shape)]
    fields += [(name, ctypes.c_void_p) for name in pointers]
    fields += [(name, Strides) for name in strides]
    fields += [("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_int64),
               ("stream", ctypes.c_void_p)]
    return type("Call", (ctypes.Structure,), {"_fields_": fields})


ForwardCall = call_type(("q", "k", "v", "o", "lse"),
                        [name + "_strides" for name in ("q", "k", "v", "o")])
BackwardCall = call_type(("q", "k", "v", "o", "d_o", "lse", "dq", "dk", "dv"),
                         [name + "_strides" for name in
                          ("q", "k", "v", "o", "do", "dq", "dk", "dv")])


def strides_of(x: Any) -> Strides:
    """The strides of a tensor [batch, heads, rows, width]."""
    if x.stride(3) != 1 and x.size(3) != 1:
        raise ValueError(f"the last axis has a stride of {x.stride(3)}; it has to be contiguous")
    return Strides(x.stride(0), x.stride(1), x.stride(2))


class Library:
    """Calls the library on torch's current stream. Tensors are [batch, heads, rows, width]; k and v may have fewer
    heads.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.functions = ctypes.CDLL(str(path))
        for name in ("forward_workspace", "backward_workspace"):
            getattr(self.functions, "tracestep_attention_" + name).restype = ctypes.c_int64
        self.functions.tracestep_attention_message.restype = ctypes.c_char_p

    def _fail(self, what: str, status: int) -> NoReturn:
        message = self.functions.tracestep_attention_message(int(status)).decode()
        raise RuntimeError(f"{what}: {message}")

    def _workspace(self, which: str, shape: Shape, like: Any) -> Any:
        query = getattr(self.functions, f"tracestep_attention_{which}_workspace")
        count = query(ctypes.byref(shape))
        if count < 0:
            self._fail(which, count)
        return torch.empty(max(count, 1), dtype=torch.uint8, device=like.device)

    def _run(self, which: str, call: Any, workspace: Any) -> None:
        call.workspace = workspace.data_ptr()
        call.workspace_bytes = workspace.numel()
        call.stream = torch.cuda.current_stream().cuda_stream
        status = getattr(self.functions, f"tracestep_attention_{which}")(ctypes.byref(call))
        if status != 0:
            self._fail(which, status)

    @staticmethod
    def shape(q: Any, k: Any, causal: bool, offset: int = 0, deterministic: bool = True,
              scale: float | None = None, family: str = "auto", tf32: bool = False,
              window: int = 0, cap: float = 0.0) -> Shape:
        """The shape of a call; offset, window and cap: tracestep_attention_shape."""
        batch, heads, queries, width = q.shape
        return Shape(DTYPES[q.dtype], batch, heads, queries, k.size(2), width,
                     scale or 1 / math.sqrt(width), causal, offset, deterministic, tf32,
                     FAMILIES[family], k.size(1), window, cap)

    def forward(self, q: Any, k: Any, v: Any, causal: bool, o: Any = None, lse: Any = None,
                workspace: Any = None, **options: Any) -> tuple[Any, Any]:
        """Computes (o, lse), into the tensors that are passed for them if any."""
        shape = self.shape(q, k, causal, **options)
        o = torch.empty_like(q) if o is None else o
        if lse is None:
            lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        workspace = self._workspace("forward", shape, q) if workspace is None else workspace
        call = ForwardCall(shape=shape, lse=lse.data_ptr())
        for name, x in (("q", q), ("k", k), ("v", v), ("o", o)):
            setattr(call, name, x.data_ptr())
            setattr(call, name + "_strides", strides_of(x))
        self._run("forward", call, workspace)
        return o, lse

    def backward(self, q: Any, k: Any, v: Any, o: Any, d_o: Any, lse: Any, causal: bool,
                 grads: Any = None, workspace: Any = None, **options: Any) -> Any:
        """Computes [dq, dk, dv], into the tensors that are passed for them if any."""
        shape = self.shape(q, k, causal, **options)
        grads = [torch.empty_like(x) for x in (q, k, v)] if grads is None else grads
        workspace = self._workspace("backward", shape, q) if workspace is None else workspace
        call = BackwardCall(shape=shape, lse=lse.data_ptr())
        for name, strides, x in (("q", "q", q), ("k", "k", k), ("v", "v", v), ("o", "o", o),
                                 ("d_o", "do", d_o), ("dq", "dq", grads[0]),
                                 ("dk", "dk", grads[1]), ("dv", "dv", grads[2])):
            setattr(call, name, x.data_ptr())
            setattr(call, strides + "_strides", strides_of(x))
        self._run("backward", call, workspace)
        return grads
