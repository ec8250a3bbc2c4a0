"""A linear layer of 8-bit products in plain PyTorch, to be compiled with the block around it.

As torchao's tensor-wise recipe does it: current scales, one for a tensor, E4M3 for weights and
activations, E5M2 for gradients, the fast accumulation forward and the other one backward.
"""

import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def quantized(x, dtype):
    """x in 8 bits, and what to multiply the codes by."""
    limit = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=1e-12) / limit
    return (x.float() / scale).clamp(-limit, limit).to(dtype), scale


def columns_first(x):
    return x.t().contiguous().t()


class Float8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        (a, a_scale), (b, b_scale) = quantized(x, E4M3), quantized(weight, E4M3)
        return torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale,
                                out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        (g, g_scale), (a, a_scale) = quantized(dy.contiguous(), E5M2), quantized(x, E4M3)
        b, b_scale = quantized(weight, E4M3)
        dx = torch._scaled_mm(g, columns_first(b), scale_a=g_scale, scale_b=b_scale,
                              out_dtype=torch.bfloat16)
        dw = torch._scaled_mm(g.t().contiguous(), columns_first(a), scale_a=g_scale,
                              scale_b=a_scale, out_dtype=torch.bfloat16)
        return dx, dw


def linear(x, weight):
    """F.linear of 16-bit operands in 8 bits."""
    rows = x.to(torch.bfloat16).reshape(-1, x.shape[-1])
    return Float8Linear.apply(rows, weight.to(torch.bfloat16)).view(*x.shape[:-1], -1)
