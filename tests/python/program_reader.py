"""A second reader of a program's text, in PyTorch's own ops: what capture_test.py holds the exporter to.

It shares nothing with the writer. Gradients are PyTorch's, of these formulas.
"""
import math
import re

import torch

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
          "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
TYPE = re.compile(r"(\w+)\[([\d,]*)\]")


def types_of(text):
    return [(DTYPES[d], tuple(int(n) for n in s.split(",") if n)) for d, s in TYPE.findall(text)]


def value_of(text):
    if text in ("true", "false"):
        return text == "true"
    if text in DTYPES:
        return DTYPES[text]
    if text.startswith("["):
        return [int(n) for n in text[1:-1].split(",") if n]
    if text.startswith('"'):
        return text[1:-1]
    return float(text) if re.search(r"[.en]", text) else int(text)


def attention(q, k, v, scale, causal=True, cap=0.0, window=0):
    if k.dim() >= 3 and k.shape[-3] != q.shape[-3]:
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    scores = cap * torch.tanh(scores / cap) if cap else scores
    rows, columns = scores.shape[-2:]
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if window:
        seen = seen.triu(columns - rows - window + 1)
    if causal:
        seen = seen.tril(columns - rows)
    return torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ v


def rope(x, cos, sin, halves=False):
    if halves:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def layer_norm(x, w, b=None, eps=1e-5):
    apart = x - x.mean(-1, keepdim=True)
    y = apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + eps) * w
    return (y if b is None else y + b,) + (None,) * 2


def product(a, b, transpose_b=False):
    return a @ (b.transpose(-1, -2) if transpose_b else b)


def cross_entropy(x, t, count=None, ignore_index=-100):
    kept = torch.ones_like(t, dtype=torch.bool) if count is None else t != ignore_index
    losses = torch.logsumexp(x, -1) - x.gather(-1, torch.where(kept, t, 0)[:, None])[:, 0]
    return torch.where(kept, losses, 0.0).sum() / (len(t) if count is None else count), None


def iota(axis, dtype, shape):
    x = torch.arange(shape[axis], dtype=dtype)
    return x.reshape([-1 if i == axis else 1 for i in range(len(shape))]).expand(shape)


def pad_slice(x, axis, start, size):
    pads = [0, 0] * (x.dim() - 1 - axis) + [start, size - start - x.shape[axis]]
    return torch.nn.functional.pad(x, pads)


UNARY = {"neg": torch.neg, "abs": torch.abs, "square": torch.square, "reciprocal": torch.reciprocal,
         "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid,
         "tanh": torch.tanh, "relu": torch.relu, "normal_cdf": lambda x: torch.erfc(-x / math.sqrt(2)) / 2,
         "silu": torch.nn.functional.silu, "gelu_erf": torch.nn.functional.gelu,
         "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "stop_gradient": torch.Tensor.detach,
         "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
         "minimum": torch.minimum, "eq": torch.eq, "lt": torch.lt, "le": torch.le, "select": torch.where}
OPS = {name: (lambda f: lambda *xs: f(*xs))(f) for name, f in UNARY.items()} | {
    "fill": lambda value, dtype, shape: torch.full(shape, value, dtype=dtype),
    "iota": iota, "attention": attention, "rope": rope, "layer_norm": layer_norm, "cross_entropy": cross_entropy,
    "affine": lambda x, scale=1.0, shift=0.0: x * scale + shift,
    "cast": lambda x, dtype: x.to(dtype),
    "reshape": lambda x, shape: x.reshape(shape),
    "permute": lambda x, axes: x.permute(axes),
    "slice": lambda x, axis, start, stop: x.narrow(axis, start, stop - start),
    "broadcast": lambda x, shape: x.expand(shape),
    "concat": lambda *xs, axis: torch.cat(xs, axis),
    "pad_slice": pad_slice,
    "sum": lambda x, axes, keepdims=False: x.sum(axes, keepdim=keepdims),
    "max": lambda x, axes, keepdims=False: x.amax(axes, keepdim=keepdims),
    "softmax": lambda x, scale=1.0: torch.softmax(x * scale, -1),
    "log_sum_exp": lambda x: torch.logsumexp(x, -1),
    "rms_norm": lambda x, w, eps=1e-5: (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w, None),
    "swiglu": lambda a, b: torch.nn.functional.silu(a) * b,
    "matmul": product, "matmul_bias": lambda a, b, bias, **turned: product(a, b, **turned) + bias,
    "gather": lambda table, i, padding=-1: torch.nn.functional.embedding(i, table, padding if padding >= 0 else None),
    "pow": torch.pow, "cumsum": lambda x, reverse=False: torch.cumsum(x, -1),
    "take_along": lambda x, i: x.gather(-1, i[..., None])[..., 0],
}
ELEMENTWISE = set(UNARY) - {"select"}
NODE = re.compile(r"  (%[^:]*) : (.*?) = (\w+)\(([^)]*)\)(?: \{(.*?)\})? @ (\S+) forward(?: (\S+):(\d+))?$")


def run(text, leaves):
    """Outputs by name; `leaves` by name. Types are checked, shapes of elementwise operands are equal."""
    values, outputs = {}, {}
    for line in text.splitlines()[1:-1]:
        if line.startswith("  output"):
            name, value = re.fullmatch(r'  output "(\w+)" = (%\S+)', line).groups()
            outputs[name] = values[value]
        elif not line.startswith("  %"):
            kind, name, kind_of = re.fullmatch(r"  (input|parameter|constant) (%\S+) : (\S+)", line).groups()
            values[name] = leaves[name[1:]]
            assert [(values[name].dtype, tuple(values[name].shape))] == types_of(kind_of), line
        else:
            results, types, op, operands, attrs, *_ = NODE.fullmatch(line).groups()
            attrs = re.findall(r"(\w+)=(\[[^\]]*\]|\"[^\"]*\"|[^,]+)", attrs or "")
            inputs = [values[v] for v in operands.split(", ") if v]
            if op in ELEMENTWISE:
                assert len({tuple(x.shape) for x in inputs}) == 1 and len({x.dtype for x in inputs}) == 1, line
            if op == "select":
                assert len({tuple(x.shape) for x in inputs}) == 1 and inputs[1].dtype == inputs[2].dtype, line
            y = OPS[op](*inputs, **{k: value_of(v) for k, v in attrs})
            for name, x, declared in zip(results.split(", "), y if isinstance(y, tuple) else (y,), types_of(types)):
                if x is not None:
                    assert (x.dtype, tuple(x.shape)) == declared, f"{line}: {x.dtype} {tuple(x.shape)}"
                values[name] = x
    return outputs
