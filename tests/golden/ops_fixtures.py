#!/usr/bin/env python3
"""Writes ops.safetensors: inputs, outputs and gradients of each composite op in float64.

Expected values come from torch's own functions wherever it has one, so they share no formula
with this project; the rest is written out below. They check the `reference` back end once.
"""

import math
import random

import torch
import torch.nn.functional as F

from make_fixtures import HERE, write_safetensors

RMS_NORM_EPS = 1e-5
ROPE_THETA = 10000.0
SCALE = 0.37  # an arbitrary factor, so that a forgotten scale shows


class Fixtures:
    """Collects named tensors and draws reproducible inputs."""

    def __init__(self, seed):
        self.generator = random.Random(seed)
        self.tensors = {}

    def normal(self, *shape, spread=1.0):
        values = [self.generator.gauss(0.0, spread) for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    def add(self, op, **tensors):
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                value = torch.tensor(value, dtype=torch.float64)
            self.tensors[f"{op}.{name}"] = value.detach().clone()

    def add_with_gradients(self, op, function, inputs):
        """Stores the inputs, y = function(inputs), a random dy and d<input> for each input."""
        leaves = {n: x.clone().requires_grad_() for n, x in inputs.items()}
        y = function(**leaves)
        dy = self.normal(*y.shape)
        y.backward(dy)
        gradients = {f"d{n}": x.grad for n, x in leaves.items()}
        self.add(op, **inputs, y=y, dy=dy, **gradients)


def rms_norm(x, w):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + RMS_NORM_EPS) * w


def rope(x, direction=1.0):
    """Complex multiplication of the pairs (2j, 2j+1) by e^{i t theta^(-2j/D)}; x [..., T, D]."""
    steps, width = x.shape[-2:]
    rate = torch.tensor([ROPE_THETA ** (-2.0 * j / width) for j in range(width // 2)],
                        dtype=torch.float64)
    angle = direction * torch.arange(steps, dtype=torch.float64)[:, None] * rate
    turn = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], width // 2, 2).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2)


def hide_future(scores):
    steps = scores.shape[-1]
    future = torch.triu(torch.ones(steps, steps, dtype=torch.bool), diagonal=1)
    return scores.masked_fill(future, float("-inf"))


def attention(q, k, v, causal):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = hide_future(scores)
    return torch.einsum("...ts,...sd->...td", torch.softmax(scores, -1), v)


def add_activations(f):
    f.add_with_gradients("softmax", lambda x: torch.softmax(x, -1), {"x": f.normal(3, 7)})
    f.add_with_gradients("softmax_large", lambda x: torch.softmax(x, -1),
                         {"x": f.normal(2, 5, spread=300.0)})
    f.add("causal_softmax", scale=SCALE)
    f.add_with_gradients("causal_softmax",
                         lambda x: torch.softmax(hide_future(x * SCALE), -1),
                         {"x": f.normal(2, 3, 5, 5)})
    f.add_with_gradients("log_sum_exp", lambda x: torch.logsumexp(x, -1),
                         {"x": f.normal(3, 7, spread=4.0)})
    f.add("rms_norm", eps=RMS_NORM_EPS)
    f.add_with_gradients("rms_norm", rms_norm, {"x": f.normal(2, 3, 7), "w": f.normal(7)})
    # Rows near zero, where eps decides the answer.
    f.add("rms_norm_small", eps=RMS_NORM_EPS)
    f.add_with_gradients("rms_norm_small", rms_norm,
                         {"x": f.normal(3, 5, spread=2e-3), "w": f.normal(5)})
    f.add_with_gradients("silu", lambda x: F.silu(x), {"x": f.normal(4, 5, spread=3.0)})
    f.add_with_gradients("swiglu", lambda gate, up: F.silu(gate) * up,
                         {"gate": f.normal(3, 6, spread=2.0), "up": f.normal(3, 6)})


def add_attention(f):
    f.add("rope", theta=ROPE_THETA)
    f.add_with_gradients("rope", rope, {"x": f.normal(2, 3, 5, 8)})
    x = f.normal(1, 2, 5, 6)
    f.add("rope_inverse", theta=ROPE_THETA, x=x, y=rope(x, -1.0))
    for name, causal in (("attention", False), ("causal_attention", True)):
        inputs = {n: f.normal(2, 3, 5, 4) for n in "qkv"}
        f.add_with_gradients(name, lambda q, k, v: attention(q, k, v, causal), inputs)


def add_losses_and_updates(f):
    logits = f.normal(6, 11, spread=2.0).requires_grad_()
    targets = torch.tensor([f.generator.randrange(11) for _ in range(6)])
    loss = F.cross_entropy(logits, targets)
    loss.backward()
    f.add("cross_entropy", logits=logits, targets=targets, loss=loss, dlogits=logits.grad)

    table = f.normal(7, 4).requires_grad_()
    ids = torch.tensor([[3, 0, 3, 6], [1, 3, 0, 5]])
    y = F.embedding(ids, table)
    dy = f.normal(2, 4, 4)
    y.backward(dy)
    f.add("embedding", table=table, ids=ids, y=y, dy=dy, dtable=table.grad)
    add_adamw(f)


def add_adamw(f):
    """Three updates from zero state; decay first, eps added to the uncorrected root."""
    lr, decay, beta1, beta2, eps = 0.05, 0.1, 0.9, 0.999, 1e-8
    p, m, v = f.normal(3, 5), torch.zeros(3, 5).double(), torch.zeros(3, 5).double()
    f.add("adamw", lr=lr, weight_decay=decay, beta1=beta1, beta2=beta2, eps=eps, p0=p)
    for t in (1, 2, 3):
        g = f.normal(3, 5)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        step_size = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        p = p - lr * decay * p
        p = p - step_size * m / (torch.sqrt(v) + eps)
        f.add("adamw", **{f"g{t}": g, f"m{t}": m, f"v{t}": v, f"p{t}": p})


def main():
    torch.set_num_threads(1)
    fixtures = Fixtures(seed=7)
    add_activations(fixtures)
    add_attention(fixtures)
    add_losses_and_updates(fixtures)
    write_safetensors(HERE / "ops.safetensors", fixtures.tensors)
    for name, tensor in fixtures.tensors.items():
        print(f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}")


if __name__ == "__main__":
    main()
