"""What PyTorch's CUDA kernels allocate for themselves, which no dispatch shows: bytes by op and shapes.

The rules are those of PyTorch 2.11 on Hopper, found by comparing lists of allocations with a card's, and where a size
follows from a launch, from how ATen's Reduce.cuh divides it.
"""
from __future__ import annotations

import math
from typing import Any

import torch

aten = torch.ops.aten
Sizes = list[int]
PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten._addmm_activation, aten._scaled_mm)
LT_WORKSPACE = 1 << 20  # of the handle for products with a bias
MULTIPROCESSORS = 132  # of an H100 or H200 as SXM; 114 of one on PCIe


def takes_workspace(func: Any) -> bool:
    """True for an op that runs in cuBLAS."""
    return func.overloadpacket in PRODUCTS


def of_sum(x: torch.Tensor, out: torch.Tensor) -> int:
    """The workspace of a sum over leading axes, as for gradients of biases: partial sums of thread blocks that share
    an output.
    """
    outputs, rows = out.numel(), x.numel() // max(1, out.numel())
    if out.numel() < 2 or rows < 2 or x.shape[-1] != out.shape[-1] or not x.is_contiguous():
        return 0
    vector = next(n for n in (4, 2, 1) if outputs % n == 0)
    columns = outputs // vector
    threads = 512 // vector
    width = min(1 << int(math.log2(columns)), 32)
    height = min(1 << int(math.log2(rows)), threads // width)
    width = min(1 << int(math.log2(columns)), threads // height)
    each = -(-rows // height)
    if not (rows >= 16 * height or rows >= 256) or each < 256:
        return 0
    wanted = MULTIPROCESSORS * (2048 // (width * height))
    grid = -(-columns // width)
    blocks = max(min(-(-wanted // grid), -(-each // 16)), -(-each // 256)) if grid <= wanted else 1
    return 4 * outputs * blocks * width * vector if blocks > 1 else 0


def of_attention(func: Any, gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, out: torch.Tensor) -> tuple[Sizes, list[Sizes]]:
    """The workspace of attention's gradients: dq in float32, row sums, and dk and dv of repeated heads."""
    b, h, t, d = q.shape
    copied, rows = _copied(gradient), 4 * b * h * t
    if func.overloadpacket is aten._scaled_dot_product_efficient_attention_backward:
        tiles = -(-t // 64)
        last = [rows, b * h * tiles * (4 * 64 * (-(-d // 64) * 64) + 16)]
        return copied, [[rows * d, rows, rows], last] if q.dtype == torch.float32 else [last]
    if func.overloadpacket is aten._scaled_dot_product_flash_attention_backward:
        t, d = -(-t // 128) * 128, -(-d // 32) * 32
    repeated = 2 * k.numel() // k.shape[1] * h * k.element_size() if k.shape[1] != h else 0
    size = 4 * b * h * t * d + 4 * b * h * t + repeated + 256
    if func.overloadpacket is not aten._scaled_dot_product_cudnn_attention_backward:
        return copied, [[size]]
    return [], [[*([] if gradient.stride() == out.stride() else copied), size]]


def of_embedding(gradient: torch.Tensor, indices: torch.Tensor) -> Sizes:
    """The workspace of a table's gradient: sorted indices, and partial sums for ten rows and for each word."""
    n = indices.numel()
    if n <= 3072:
        return []
    return [8 * n] * 8 + [4 * (n + n // 10) * gradient.shape[-1]]


def in_order(func: Any, results: list[Any]) -> list[Any]:
    """The results of an op as its kernel allocates them."""
    return results[::-1] if func.overloadpacket is aten.native_dropout else results


def scratch_of(func: Any, args: Any, out: Any) -> tuple[Sizes, list[Sizes]]:
    """Bytes that a kernel allocates before its results and frees at its end, and groups of bytes after them that live
    together.
    """
    op = func.overloadpacket
    if op in (aten.sum, aten.mean) and func._overloadname in ("dim_IntList", "dim") and args[0].device.type == "cuda":
        size = of_sum(args[0], out)
        return [], [[size]] if size else []
    if op in (aten._scaled_dot_product_flash_attention_backward, aten._scaled_dot_product_efficient_attention_backward,
              aten._scaled_dot_product_cudnn_attention_backward):
        return of_attention(func, args[0], args[1], args[2], args[4])
    if op is aten.embedding_dense_backward:
        return _copied(args[0]), [of_embedding(args[0], args[1])]
    if op is aten._safe_softmax:  # rows of which nothing is left
        return [], [[out.numel(), out.numel() // out.shape[-1]]]
    if op in (aten._softmax, aten._log_softmax):
        return [], [_copied(args[0])]
    if op is aten._softmax_backward_data:  # the product of gradient and result
        return [], [[args[1].numel() * args[1].element_size()]]
    if op in (aten.native_layer_norm, aten.native_layer_norm_backward, aten._fused_rms_norm_backward, aten._log_softmax_backward_data):
        return _copied(args[0]), []
    if op in PRODUCTS:
        return [], [[size for x in args if isinstance(x, torch.Tensor) and x.dim() > 1 for size in _rearranged(x)]]
    return [], []


def _copied(x: torch.Tensor) -> Sizes:
    return [] if x.is_contiguous() else [x.numel() * x.element_size()]


def _rearranged(x: torch.Tensor) -> Sizes:
    """True if a matrix is copied, because it is stored neither by rows nor by columns."""
    rows, columns = x.stride()[-2:]
    m, n = x.shape[-2:]
    if (columns == 1 and rows >= max(1, n)) or (rows == 1 and columns >= max(1, m)) or m == 1 or n == 1:
        return []
    return [x.numel() * x.element_size()]
