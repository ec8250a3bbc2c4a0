"""How a card divides scaled_dot_product_attention and linear, where there is no card: the kernel that is taken, and
what runs before.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


is_math = False  # while attention is computed op by op


@contextlib.contextmanager
def chosen(kind: str) -> Iterator[None]:
    """Chooses the kernel of scaled_dot_product_attention as a card does, where there is none to ask."""
    library = torch.library.Library("aten", "IMPL")

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
                  is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False) -> Any:
        way = kind if kind != "auto" else _choice(query, key, value, attn_mask, enable_gqa)
        return _attention(way, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    for where in ("AutogradCUDA", "CUDA"):
        library.impl("scaled_dot_product_attention", attention, where)
        library.impl("linear", _linear, where)
    try:
        yield
    finally:
        library._destroy()


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    """Decomposes a linear layer as C++ does: if inputs are not contiguous, the bias is added in place, but not to fake
    tensors.
    """
    if bias is None:
        return torch.matmul(x, weight.t())
    if x.dim() == 2:
        return torch.addmm(bias, x, weight.t())
    if x.dim() > 2 and x.is_contiguous():
        return torch.addmm(bias, x.reshape(-1, x.size(-1)), weight.t()).view(*x.shape[:-1], -1)
    return torch.matmul(x, weight.t()).add_(bias)


def _attention(way: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, dropout: float, is_causal: bool,
               scale: Any, enable_gqa: bool) -> Any:
    """The op that PyTorch calls for each kind of attention, and what it does before."""
    aten = torch.ops.aten
    if mask is not None and mask.dtype == torch.bool:
        lows = torch.zeros((), dtype=q.dtype, device=q.device), torch.full((), float("-inf"), dtype=q.dtype, device=q.device)
        mask = torch.where(mask, *lows)
    if way == "math":
        global is_math
        is_math = True
        try:
            return aten._scaled_dot_product_attention_math(q, k, v, mask, dropout, is_causal, None, scale=scale,
                                                           enable_gqa=enable_gqa)[0]
        finally:
            is_math = False
    width = q.size(-1)
    if way == "flash":
        if width % 8:
            q, k, v = (torch.nn.functional.pad(x, (0, -width % 8)) for x in (q, k, v))
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout, is_causal,
                                                       scale=scale if scale is not None else width ** -0.5)[0]
        return out[..., :width]
    if enable_gqa and way == "efficient" and q.size(-3) != k.size(-3):
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
    if mask is not None and way == "efficient":
        mask = _aligned(mask).expand(q.size(0), q.size(1), q.size(2), k.size(2))
    needs = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    if way == "efficient":
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, needs, dropout, is_causal, scale=scale)[0]
    return aten._scaled_dot_product_cudnn_attention(q, k, v, mask, needs, dropout, is_causal, False, scale=scale)[0]


def _choice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, enable_gqa: bool) -> str:
    """The first kind of attention, in PyTorch's order, that accepts these tensors on Hopper."""
    is_low = q.dtype in (torch.float16, torch.bfloat16)
    is_broadcast = q.dim() == 4 and (q.size(0) != k.size(0) or q.size(1) != k.size(1) and not enable_gqa)
    if q.dim() != 4 or is_broadcast or not (is_low or q.dtype == torch.float32):
        return "math"
    is_trained = mask is not None and mask.requires_grad
    if is_low and q.size(-1) % 8 == 0 and v.size(-1) % 8 == 0 and q.size(-1) <= 256 and not is_trained:
        return "cudnn"
    if is_low and mask is None and q.size(-1) <= 256 and q.size(-1) == v.size(-1):
        return "flash"
    return "efficient" if q.size(-3) == k.size(-3) else "math"


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """A mask whose rows begin at multiples of 8 elements; it is copied if they do not."""
    if mask.size(-1) % 8 == 0:
        return mask
    padded = torch.nn.functional.pad(mask, (0, -mask.size(-1) % 8))
    return padded[..., :mask.size(-1)]
