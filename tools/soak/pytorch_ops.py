"""Modules of one op, for pytorch_memory.py: NAME -> (build, precision, optimizer)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

B, T, C = 4, 384, 512


class Op(nn.Module):
    """A scaled input, so that the op's own gradient is computed, then the op, then a sum."""

    def __init__(self, op, *parts):
        super().__init__()
        self.op, self.parts = op, nn.ModuleList(parts)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, *rest):
        y = self.op(x * self.scale.to(x.dtype), *self.parts, *rest)
        y = y[0] if isinstance(y, tuple) else y
        return y.sum() if y.dim() else y


def case(op, *parts, shape=(B, T, C), dtype=torch.float32, rest=lambda: (), precision="fp32", update=None):
    return (lambda _: (Op(op, *(p() for p in parts)), (torch.randn(shape, dtype=dtype), *rest()), {}), precision, update)


def attention(kind, heads=8, groups=8, width=64, causal=True, mask=None, t=T, value=None):
    def run(x):
        q = x[..., :heads * width].reshape(B, t, heads, width).transpose(1, 2)
        k, v = (x[..., :groups * width].reshape(B, t, groups, width).transpose(1, 2).clone() for _ in range(2))
        where = None if mask is None else torch.ones(t, t, dtype=torch.bool, device=x.device).tril() if mask == "bool" else torch.zeros(t, t, dtype=x.dtype, device=x.device)
        kinds = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                 "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
        if kind in kinds and not isinstance(x, torch._subclasses.FakeTensor):
            with sdpa_kernel(kinds[kind]):
                return F.scaled_dot_product_attention(q, k, v, where, is_causal=causal and where is None, enable_gqa=groups != heads)
        return F.scaled_dot_product_attention(q, k, v, where, is_causal=causal and where is None, enable_gqa=groups != heads)
    return run


def labels(*shape, top=C):
    return lambda: (torch.randint(0, top, shape),)


def loss(x, targets):
    return F.cross_entropy(x.flatten(0, 1), targets.flatten())


def convolution(x, conv):
    return conv(x.reshape(B, 3, 256, 256))


def repeated(x, f):
    return checkpoint(f, x, use_reentrant=False)


BF16 = dict(dtype=torch.bfloat16)
CASES = {
    "matmul": case(lambda x: x[0] @ x[1].t()), "matmul bf16": case(lambda x: x[0] @ x[1].t(), **BF16),
    "bmm": case(lambda x: x @ x.transpose(1, 2)), "bmm bf16": case(lambda x: x @ x.transpose(1, 2), **BF16),
    "linear": case(lambda x, f: f(x), lambda: nn.Linear(C, 3 * C)),
    "linear bf16": case(lambda x, f: f(x), lambda: nn.Linear(C, 3 * C, dtype=torch.bfloat16), **BF16),
    "linear autocast": case(lambda x, f: f(x), lambda: nn.Linear(C, 3 * C), precision="bf16"),
    "linear twice autocast": case(lambda x, f: f(f(x)), lambda: nn.Linear(C, C), precision="bf16"),
    "linear large": case(lambda x, f: f(x), lambda: nn.Linear(2048, 8192), shape=(8, 1024, 2048), precision="bf16"),
    **{f"attention {kind}": case(attention(kind), **BF16) for kind in ("auto", "flash", "efficient", "cudnn", "math")},
    **{f"attention {kind} fp32": case(attention(kind)) for kind in ("auto", "efficient", "math")},
    "attention auto width 128": case(attention("auto", heads=4, groups=4, width=128), **BF16),
    "attention auto width 80": case(attention("auto", heads=4, groups=4, width=80), **BF16),
    "attention auto grouped": case(attention("auto", heads=8, groups=2), **BF16),
    "attention auto grouped fp32": case(attention("auto", heads=8, groups=2)),
    "attention auto masked": case(attention("auto", mask="bool"), **BF16),
    "attention auto masked fp32": case(attention("auto", mask="bool")),
    "attention auto added mask": case(attention("auto", mask="float"), **BF16),
    "attention auto all": case(attention("auto", causal=False), **BF16),
    "attention auto all fp32": case(attention("auto", causal=False)),
    "attention auto 385 tokens": case(attention("auto", t=385), shape=(B, 385, C), **BF16),
    "layer_norm": case(lambda x, f: f(x), lambda: nn.LayerNorm(C)),
    "layer_norm bf16": case(lambda x, f: f(x), lambda: nn.LayerNorm(C, dtype=torch.bfloat16), **BF16),
    "layer_norm many rows": case(lambda x, f: f(x), lambda: nn.LayerNorm(64), shape=(64, 1024, 64)),
    "rms_norm": case(lambda x, f: f(x), lambda: nn.RMSNorm(C)),
    "rms_norm bf16": case(lambda x, f: f(x), lambda: nn.RMSNorm(C, dtype=torch.bfloat16), **BF16),
    "group_norm": case(lambda x, f: f(x.transpose(1, 2)), lambda: nn.GroupNorm(8, C)),
    "batch_norm": case(lambda x, f: f(x), lambda: nn.BatchNorm1d(T)),
    "softmax": case(lambda x: x.softmax(-1)), "softmax bf16": case(lambda x: x.softmax(-1), **BF16),
    "cross_entropy": case(loss, rest=labels(B, T)), "cross_entropy bf16": case(loss, rest=labels(B, T), **BF16),
    "cross_entropy autocast": case(loss, rest=labels(B, T), precision="bf16", **BF16),
    "cross_entropy large": case(loss, shape=(2, 512, 32000), rest=labels(2, 512, top=32000), **BF16),
    "cross_entropy float": case(lambda x, t: loss(x.float(), t), rest=labels(B, T), **BF16),
    "gelu": case(lambda x: F.gelu(x)), "silu": case(lambda x: F.silu(x)), "relu": case(lambda x: F.relu(x)),
    "dropout": case(lambda x: F.dropout(x, 0.1)), "tanh": case(lambda x: x.tanh()),
    "embedding": case(lambda x, f, i: f(i) * x, lambda: nn.Embedding(5000, C), rest=labels(B, T, top=5000)),
    "embedding large": case(lambda x, f, i: f(i), lambda: nn.Embedding(50304, 768), rest=labels(8, 1024, top=50304)),
    "index": case(lambda x, i: x.flatten(0, 1)[i], rest=labels(1000, top=B * T)),
    "gather": case(lambda x, i: x.gather(2, i), rest=labels(B, T, 8)),
    "sum rows": case(lambda x: x.sum(0)), "sum columns": case(lambda x: x.sum(-1)), "mean": case(lambda x: x.mean()),
    "sum large": case(lambda x: x.sum((0, 1)), shape=(64, 1024, 256)),
    "cumsum": case(lambda x: x.cumsum(1)), "cat": case(lambda x: torch.cat((x, x), 1)), "sort": case(lambda x: x.sort(-1)[0]),
    "max": case(lambda x: x.max(-1)[0]), "norm": case(lambda x: x.norm()), "logsumexp": case(lambda x: x.logsumexp(-1)),
    "pow mean rsqrt": case(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)),
    "where": case(lambda x: x.masked_fill(x > 0, 0.0)), "expand": case(lambda x: x[:, :1].expand(B, T, C) * x),
    "residual": case(lambda x, f: x + f(x), lambda: nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))),
    "residual autocast": case(lambda x, f: x + f(x), lambda: nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C)), precision="bf16"),
    "gated": case(lambda x, f, g: F.silu(f(x)) * g(x), lambda: nn.Linear(C, C), lambda: nn.Linear(C, C)),
    "shared twice": case(lambda x, f: f(x) + f(2 * x), lambda: nn.Linear(C, C)),
    "patches": case(convolution, lambda: nn.Conv2d(3, 256, 16, 16), shape=(B, T, C)),
    "patches autocast": case(convolution, lambda: nn.Conv2d(3, 256, 16, 16), shape=(B, T, C), precision="bf16"),
    "convolution": case(convolution, lambda: nn.Conv2d(3, 64, 3, padding=1), shape=(B, T, C)),
    "checkpoint": case(repeated, lambda: nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))),
    "checkpoint autocast": case(repeated, lambda: nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C)), precision="bf16"),
    "multihead": case(lambda x, f: f(x, x, x, need_weights=False)[0], lambda: nn.MultiheadAttention(C, 8, batch_first=True)),
    "multihead dropout": case(lambda x, f: f(x, x, x, need_weights=False)[0], lambda: nn.MultiheadAttention(C, 8, 0.1, batch_first=True)),
    "adamw foreach": case(lambda x, *f: nn.Sequential(*f)(x), *(lambda: nn.Linear(C, C) for _ in range(8)), update="foreach"),
    "adamw fused": case(lambda x, *f: nn.Sequential(*f)(x), *(lambda: nn.Linear(C, C) for _ in range(8)), update="fused"),
    "clip foreach": case(lambda x, *f: nn.Sequential(*f)(x), *(lambda: nn.Linear(C, C) for _ in range(8)), update="foreach"),
    "adamw bf16 foreach": case(lambda x, *f: nn.Sequential(*f)(x), *(lambda: nn.Linear(C, C, dtype=torch.bfloat16) for _ in range(4)), update="foreach", **BF16),
}
