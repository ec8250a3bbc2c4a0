"""Attention without the T x T matrix as an op of PyTorch: tracestep's kernels, on the current stream.

On a GPU the op calls the C interface of libtracestep_attention.so, which a CUDA build has. On a CPU it is
the formula in PyTorch's own ops, T x T matrix and all: the same numbers, for tests and small sizes.
"""
from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any

import torch

from ._attention_library import DTYPES, Library
from ._program import program

NAME = "libtracestep_attention.so"
WIDEST = 256


@functools.cache
def _library() -> Library:
    """Finds the library beside the program of a build folder, or where a package has it."""
    folder = Path(os.path.realpath(program())).parent
    for place in (folder / NAME, folder.parent / "lib/tracestep" / NAME):
        if place.exists():
            return Library(place)
    raise FileNotFoundError(f"[attention] {NAME} is not beside {program()}, which is a build without "
                            "CUDA; tracestep.use() takes another")


def _options(q: Any, k: Any, causal: bool, scale: float, deterministic: bool, window: int,
             cap: float) -> dict[str, Any]:
    return {"causal": causal, "offset": k.shape[1] - q.shape[1] if causal else 0, "scale": scale,
            "deterministic": deterministic, "window": window, "cap": cap}


def _rows_last(x: Any) -> Any:
    """Arranges [B,T,H,D] as the library's [B,H,T,D], whose last axis must be contiguous."""
    return (x if x.stride(-1) == 1 else x.contiguous()).transpose(1, 2)


def _forward_cuda(q: Any, k: Any, v: Any, *options: Any) -> Any:
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32, device=q.device)
    with torch.cuda.device(q.device):
        q_, k_, v_ = (_rows_last(x) for x in (q, k, v))
        _library().forward(q_, k_, v_, o=_rows_last(o), lse=lse,
                           **_options(q, k, *options))
    return o, lse


def _backward_cuda(d_o: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *options: Any) -> Any:
    grads = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
    with torch.cuda.device(q.device):
        q_, k_, v_, o_, d_o_ = (_rows_last(x) for x in (q, k, v, o, d_o))
        _library().backward(q_, k_, v_, o_, d_o_, lse, grads=[_rows_last(x) for x in grads],
                            **_options(q, k, *options))
    return tuple(grads)


def _grouped(x: Any, k: Any, axis: int = 2) -> Any:
    """Splits the axis of H heads into H_kv and H / H_kv: neighbouring heads share one of k, [B,S,H_kv,D]."""
    return x.unflatten(axis, (k.shape[2], x.shape[axis] // max(k.shape[2], 1)))


def _scores(q: Any, k: Any, causal: bool, scale: float, window: int, cap: float) -> Any:
    """Scores [B,H,T,S] in float32 or wider, with the cap; -inf where a query does not see a key."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = torch.einsum("btgnd,bsgd->bgnts", _grouped(q.to(wide), k), k.to(wide)).flatten(1, 2) * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    if causal:  # aligned bottom right: the last query sees all keys
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        seen = seen.tril(k.shape[1] - q.shape[1])
        if window > 0:
            seen = seen.triu(k.shape[1] - q.shape[1] + 1 - window)
        scores = scores.masked_fill(~seen, -math.inf)
    return scores


def _weights(scores: Any, lse: Any) -> Any:
    """Computes the softmax from its known denominator; a query that sees no key gets zeros."""
    return torch.where(torch.isneginf(scores), 0.0, torch.exp(scores - lse.unsqueeze(-1)))


def _forward_cpu(q: Any, k: Any, v: Any, causal: bool, scale: float, deterministic: bool, window: int,
                 cap: float) -> Any:
    scores = _scores(q, k, causal, scale, window, cap)
    lse = torch.logsumexp(scores, -1)
    weights = _grouped(_weights(scores, lse), k, 1)
    o = torch.einsum("bgnts,bsgd->btgnd", weights, v.to(scores.dtype)).flatten(2, 3)
    return o.to(q.dtype).contiguous(), lse


def _backward_cpu(d_o: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, causal: bool, scale: float,
                  deterministic: bool, window: int, cap: float) -> Any:
    scores = _scores(q, k, causal, scale, window, cap)
    weights = _weights(scores, lse)
    q_, k_, v_, o_, d_o_ = (x.to(weights.dtype) for x in (q, k, v, o, d_o))
    q_, o_, d_o_ = (_grouped(x, k) for x in (q_, o_, d_o_))
    weights = _grouped(weights, k, 1)
    d_weights = torch.einsum("btgnd,bsgd->bgnts", d_o_, v_)
    of_rows = torch.einsum("btgnd,btgnd->bgnt", d_o_, o_)
    d_scores = weights * (d_weights - of_rows.unsqueeze(-1)) * scale
    if cap > 0:
        slope = 1 - (scores.masked_fill(torch.isneginf(scores), 0.0) / cap) ** 2
        d_scores = d_scores * _grouped(slope, k, 1)
    grads = (torch.einsum("bgnts,bsgd->btgnd", d_scores, k_).flatten(2, 3),
             torch.einsum("bgnts,btgnd->bsgd", d_scores, q_), torch.einsum("bgnts,btgnd->bsgd", weights, d_o_))
    return tuple(x.to(q.dtype).contiguous() for x in grads)


def _forward_fake(q: Any, k: Any, v: Any, *options: Any) -> Any:
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.new_empty(q.shape), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=wide)


def _backward_fake(d_o: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *options: Any) -> Any:
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, d_o: Any, d_lse: Any) -> Any:
    q, k, v, o, lse = ctx.saved_tensors
    grads = torch.ops.tracestep.attention_backward(d_o, q, k, v, o, lse, *ctx.options)
    return (*grads, *(None for _ in ctx.options))


_OPTIONS = "bool causal, float scale, bool deterministic, int window, float cap"
_backward = torch.library.custom_op(
    "tracestep::attention_backward", _backward_cpu, mutates_args=(), device_types="cpu",
    schema=f"(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_OPTIONS})"
           " -> (Tensor, Tensor, Tensor)")
_backward.register_kernel("cuda", _backward_cuda)
_backward.register_fake(_backward_fake)
_forward = torch.library.custom_op(
    "tracestep::attention", _forward_cpu, mutates_args=(), device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor)")
_forward.register_kernel("cuda", _forward_cuda)
_forward.register_fake(_forward_fake)
_forward.register_autograd(_gradient, setup_context=_save)


def _check(q: Any, k: Any, v: Any) -> None:
    if {x.ndim for x in (q, k, v)} != {4}:
        raise ValueError("[attention] q, k and v are [batch, tokens, heads, width], not "
                         f"{', '.join(str(list(x.shape)) for x in (q, k, v))}")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"[attention] q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit; "
                         "batch and width are the same in all, and v has the shape of k")
    if q.shape[2] % max(k.shape[2], 1) != 0:
        raise ValueError(f"[attention] {q.shape[2]} heads of q are no multiple of {k.shape[2]} of k and v")
    if not 1 <= q.shape[3] <= WIDEST:
        raise ValueError(f"[attention] a head is {q.shape[3]} wide; 1 to {WIDEST} are possible")
    if len({(x.dtype, x.device) for x in (q, k, v)}) != 1:
        raise ValueError("[attention] q, k and v have one dtype and lie on one device, not "
                         f"{', '.join(f'{x.dtype} on {x.device}' for x in (q, k, v))}")
    if q.dtype not in DTYPES and (q.device.type != "cpu" or q.dtype != torch.float64):
        raise ValueError(f"[attention] {q.dtype} is none of float32, bfloat16, float16 (on a CPU also float64)")


def _window_of(window_size: tuple[int, int], causal: bool) -> int:
    """The number of keys that a query sees, up to its own; 0: all."""
    left, right = window_size
    if left < 0 and (right < 0 or (causal and right == 0)):
        return 0
    if not causal or left < 0 or right > 0:
        raise ValueError(f"[attention] window_size {tuple(window_size)} with causal={causal}; a window is (keys "
                         "before a query's own, 0) with causal=True")
    return left + 1


def attention(q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False,
              window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, deterministic: bool = False) -> Any:
    """softmax(scale q k^T) v for each head, as flash_attn_func of FlashAttention is called.

    Shapes: q [B,T,H,D]; k, v [B,S,H_kv,D], where H_kv divides H: each head of k and v serves H / H_kv
    neighbouring ones of q, without a copy; the result [B,T,H,D]. D <= 256.
    Dtypes: float32, bfloat16 or float16, all three the same; on a CPU also float64. Sums are float32.
    Units: scores are multiplied by softmax_scale, 1/sqrt(D) when left out. causal: query i sees keys
    0 .. i + S - T, with window_size (w, 0) the last w + 1 of them. A query that sees no key gives zeros.
    softcap c > 0: scores s become c tanh(s / c).
    Memory: a float32 for each query and head is saved for backward besides q, k, v and the result.
    Order: on the current stream, without waiting. deterministic: backward has the same bits every run.
    Errors: ValueError for shapes and dtypes that do not fit; FileNotFoundError where the program that is
    installed has no CUDA. There is no second derivative.
    Source: Dao, FlashAttention-2 (2023), and Shah et al., FlashAttention-3 (2024).
    """
    _check(q, k, v)
    scale = q.shape[3] ** -0.5 if softmax_scale is None else float(softmax_scale)
    if softcap < 0:
        raise ValueError(f"[attention] a softcap of {softcap}; 0 is none")
    window = _window_of(window_size, causal)
    return torch.ops.tracestep.attention(q, k, v, causal, scale, deterministic, window, float(softcap))[0]
