#!/usr/bin/env python3
"""Patterns of tracestep.capture one by one: each composite beside the parts it was found in, at the edges of its op.

    tests/python/patterns_test.py --program build/tracestep

Every case is a few lines that compute one composite in parts, on parameters of edge values: ties, -inf, logits and rows
that are large, tiny or 0, ignored targets, windows, groups. In float64, values and all gradients of the program with that
pattern alone (on the device reference) and with none (by program_reader.py) are PyTorch's of the same lines. Needs torch
(tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import argparse
import math
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent)]

import capture_test  # noqa: E402  (skips without torch)
import torch  # noqa: E402
import tracestep  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tracestep._capture import PATTERNS  # noqa: E402
from tracestep._capture.check import evaluated  # noqa: E402
from tracestep._capture.export import Inputs, Step, graph_of, leaves_of, written  # noqa: E402

BOUND = 1e-12
INF = float("inf")


def random(*shape, scale=1.0, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


# --- rows at the edges ------------------------------------------------------------------------------
def rows(width=8):
    """Random, equal, one large, all large, tiny, 0 and of both signs."""
    x = random(8, width)
    x[1] = 0.7
    x[2, 3] = 300.0
    x[3] *= 1e4
    x[4] *= 1e-8
    x[5] = 0.0
    x[6, ::2], x[6, 1::2] = 2.0, -2.0
    return x


def hidden(x):
    """With elements of -inf, no row of them alone."""
    hides = torch.zeros(8, 8, dtype=torch.bool)
    hides[0, ::3] = hides[7, 1:] = True
    return x.masked_fill(hides, -INF)


# --- what modules write -----------------------------------------------------------------------------
def own_softmax(z, detach=False):
    top = z.max(-1, keepdim=True)[0]
    e = torch.exp(z - (top.detach() if detach else top))
    return e / e.sum(-1, keepdim=True)


def own_rms(x, w=None, eps=1e-6):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y if w is None else w * y


def divided_rms(x, w, eps=1e-6):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w


def own_layer_norm(x, w, b, eps=1e-5):
    apart = x - x.mean(-1, keepdim=True)
    return apart / torch.sqrt(apart.pow(2).mean(-1, keepdim=True) + eps) * w + b


def tables(length, width):
    angles = torch.outer(torch.arange(length, dtype=torch.float64), 1e2 ** (-torch.arange(width // 2, dtype=torch.float64)))
    return angles.cos(), angles.sin()


def by_halves(x):
    cos, sin = (torch.cat((t, t), -1) for t in tables(*x.shape[-2:]))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def by_pairs(x):
    cos, sin = tables(*x.shape[-2:])
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def own_attention(q, k, v, window=0, cap=0.0, seen=None):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if cap:
        scores = cap * torch.tanh(scores / cap)
    at = torch.arange(q.shape[-2])
    past = at[:, None] >= at if seen is None else seen
    if window:
        past = past & (at[:, None] - at < window)
    return torch.softmax(scores.masked_fill(~past, -INF), -1) @ v


def row_losses(z, t):
    z = z - z.max(-1, keepdim=True)[0]
    return torch.log(torch.exp(z).sum(-1)) - z.gather(-1, t[:, None])[:, 0]


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


TARGETS = torch.tensor([0, 3, 3, 7, 1, 0, 2, 5])
SOME, ALL = TARGETS.masked_fill(TARGETS == 3, -100), torch.full((8,), -100)
HEADS = dict(q=random(2, 4, 6, 4), k=random(2, 4, 6, 4, seed=2), v=random(2, 4, 6, 4, seed=3))
TIED = {**HEADS, "k": HEADS["k"][:, :, :1].expand(-1, -1, 6, -1).contiguous()}  # each row sees equal scores
LARGE = {**HEADS, "q": HEADS["q"] * 1e3}
GROUPED = {**HEADS, "k": random(2, 2, 6, 4, seed=2), "v": random(2, 2, 6, 4, seed=3)}
WEIGHTED = dict(x=rows(), w=random(8, seed=5), b=random(8, seed=6))


def repeated(x):
    return x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(2, 4, 6, 4)


# pattern, what it is, the lines, parameters, how many composites are found
CASES = [
    ("softmax", "of rows", lambda z: own_softmax(z), dict(z=rows()), 1),
    ("softmax", "with a maximum without gradient", lambda z: own_softmax(z, True), dict(z=rows()), 1),
    ("softmax", "of -inf", lambda z: own_softmax(hidden(z)), dict(z=rows()), 1),
    ("softmax", "of equal elements", lambda z: own_softmax(z), dict(z=torch.zeros(3, 5, dtype=torch.float64)), 1),
    ("rms_norm", "without a weight", lambda x: own_rms(x), dict(x=rows()), 1),
    ("rms_norm", "with a weight", lambda x, w: own_rms(x, w), dict(x=rows(), w=random(8, seed=5)), 1),
    ("rms_norm", "with 1 + weight", lambda x, w: own_rms(x, 1.0 + w), dict(x=rows(), w=random(8, seed=5)), 1),
    ("rms_norm", "divided", lambda x, w: divided_rms(x, w), dict(x=rows(), w=random(8, seed=5)), 1),
    ("layer_norm", "the node", lambda x, w, b: F.layer_norm(x, (8,), w, b), WEIGHTED, 1),
    ("layer_norm+rms_norm", "in parts", lambda x, w, b: own_layer_norm(x, w, b), WEIGHTED, 1),
    ("swiglu", "of silu", lambda a, b: F.silu(a) * b, dict(a=rows() * 3, b=random(8, 8)), 1),
    ("swiglu", "of a sigmoid", lambda a, b: b * (a * torch.sigmoid(a)), dict(a=rows() * 3, b=random(8, 8)), 1),
    ("gelu", "by tanh", lambda x: new_gelu(x), dict(x=rows() / 50), 1),
    ("gelu", "by tanh, factored", lambda x: x * 0.5 * (1.0 + torch.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x))),
     dict(x=rows() / 50), 1),
    ("gelu", "by erf", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), dict(x=rows() / 50), 1),
    ("cross_entropy", "the node", lambda z: F.cross_entropy(z, TARGETS), dict(z=rows()), 1),
    ("cross_entropy", "of -inf", lambda z: F.cross_entropy(hidden(z), torch.tensor([1, 3, 3, 7, 1, 0, 2, 0])),
     dict(z=rows()), 1),
    ("cross_entropy", "with ignored targets", lambda z: F.cross_entropy(z, SOME), dict(z=rows()), 1),
    ("cross_entropy", "all ignored", lambda z: F.cross_entropy(z, ALL), dict(z=rows()), 1),
    ("cross_entropy", "added up", lambda z: F.cross_entropy(z, SOME, reduction="sum"), dict(z=rows()), 1),
    ("cross_entropy", "in parts", lambda z: row_losses(z, TARGETS).mean(), dict(z=rows()), 1),
    ("cross_entropy", "of log_softmax", lambda z: -torch.log_softmax(z, -1).gather(-1, TARGETS[:, None]).mean(),
     dict(z=rows()), 1),
    ("attention", "causal", lambda q, k, v: own_attention(q, k, v), HEADS, 1),
    ("attention", "with ties", lambda q, k, v: own_attention(q, k, v), TIED, 1),
    ("attention", "of large scores", lambda q, k, v: own_attention(q, k, v), LARGE, 1),
    ("attention", "capped", lambda q, k, v: own_attention(q, k, v, cap=5.0), LARGE, 1),
    ("attention", "in a window", lambda q, k, v: own_attention(q, k, v, window=3), HEADS, 1),
    ("attention", "in a window of one", lambda q, k, v: own_attention(q, k, v, window=1), HEADS, 1),
    ("attention", "of everything", lambda q, k, v: own_attention(q, k, v, seen=torch.ones(6, 6, dtype=torch.bool)), HEADS, 1),
    ("attention", "of groups", lambda q, k, v: own_attention(q, repeated(k), repeated(v)), GROUPED, 1),
    ("attention", "the node", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), LARGE, 1),
    ("attention", "with a row that sees nothing", lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.ones(6, 6, dtype=torch.bool).tril(-1)), HEADS, 0),
    ("attention+rope", "rotated halves", lambda q, k, v: own_attention(by_halves(q), by_halves(k), v), HEADS, 1),
    ("attention+rope", "rotated pairs", lambda q, k, v: own_attention(by_pairs(q), by_pairs(k), v), HEADS, 1),
]
ROTATED = {"rotated halves": 2, "rotated pairs": 2}


class Lines(nn.Module):
    """A function of parameters; its loss weighs each result."""

    def __init__(self, what, parameters):
        super().__init__()
        self.what = what
        self.values = nn.ParameterDict({n: nn.Parameter(x.clone()) for n, x in parameters.items()})

    def forward(self, one):
        y = self.what(**self.values) * one
        return y if y.dim() == 0 else (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).sin().reshape(y.shape)).sum()


def largest_difference(mine, wanted, least=1e-300):
    """Of the largest finite element, or of `least`; NaN and infinities are equal to themselves alone."""
    if not torch.equal(torch.isfinite(mine), torch.isfinite(wanted)) or not torch.equal(torch.isnan(mine), torch.isnan(wanted)):
        return math.inf
    finite = torch.isfinite(wanted)
    a, b = mine[finite], wanted[finite]
    return float((a - b).abs().max()) / max(float(b.abs().max()), least) if len(b) else 0.0


class PatternsTest(unittest.TestCase):
    def exported(self, what, parameters, *patterns):
        """Programs with each of several sets of patterns, and PyTorch's loss and gradients."""
        module = Lines(what, parameters)
        step = Step(module, None, Inputs.of(module, (torch.ones((), dtype=torch.float64),), {}, ()))
        step(*step.inputs.tensors)[0].backward()
        wanted = {n: p.grad for n, p in leaves_of(module)[0].items()}
        graph = graph_of(step, step.inputs.tensors)
        programs = [written(step, graph, step.inputs.tensors, "lines", frozenset(names)) for names in patterns]
        return *programs, step(*step.inputs.tensors)[0].detach(), wanted

    def check(self, loss, gradients, wanted_loss, wanted):
        self.assertLess(largest_difference(loss.detach(), wanted_loss), BOUND)
        # One that is 0 but for rounding is compared with the others'.
        overall = max(float(g.nan_to_num(0.0).abs().max()) for g in wanted.values())
        for name, g in wanted.items():
            self.assertLess(largest_difference(gradients[name], g, max(1e-3 * overall, 1e-300)), BOUND, name)

    def test_every_pattern_has_a_case(self):
        self.assertEqual({p for case in CASES for p in case[0].split("+")}, set(PATTERNS))

    def test_a_composite_is_the_parts_that_it_was_found_in(self):
        for pattern, name, what, parameters, count in CASES:
            with self.subTest(f"{pattern} {name}"):
                out, plain, loss, wanted = self.exported(what, parameters, pattern.split("+"), ())
                found = {} if not count else {pattern.split("+")[0]: count}
                if name in ROTATED:
                    found["rope"] = ROTATED[name]
                self.assertEqual({n: c for n, c in out.lifted.items() if n in pattern.split("+")}, found)
                for program in (plain,) if torch.isnan(loss) else (plain, out):
                    weights = {n: x.clone().requires_grad_() for n, x in program.weights.items()}
                    run = capture_test.program_reader.run(program.program.text(),
                                                          {**program.constants, **program.examples, **weights})
                    run["loss"].backward()
                    self.check(run["loss"], {n: w.grad for n, w in weights.items()}, loss, wanted)
                if not torch.isnan(loss):
                    with tempfile.TemporaryDirectory() as place:
                        mine, gradients = evaluated(out, pathlib.Path(place))
                    self.check(torch.tensor(mine, dtype=torch.float64), gradients, loss, wanted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    options, rest = parser.parse_known_args()
    tracestep.use(options.program)
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *rest])
