#!/usr/bin/env python3
"""tracestep.capture: modules as programs, held to the modules' own autograd in float64; and what is refused.

    tests/python/capture_test.py --program build/tracestep

Each module is captured with all patterns and with none. The program's text is run twice: by program_reader.py,
which shares nothing with the writer, here; and by the program, where capture checks itself. Needs torch
(tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import argparse
import contextlib
import copy
import dataclasses
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import torch
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent)]

import program_reader  # noqa: E402
import tracestep  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tracestep._capture import PATTERNS  # noqa: E402
from tracestep._capture.export import Inputs, Step, Widened, graph_of, leaves_of, widened_copy, written  # noqa: E402
from tracestep._capture.folder import read_tensors  # noqa: E402

warnings.filterwarnings("ignore")
PROGRAM = "tracestep"


# --- six modules ----------------------------------------------------------------------------------
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width, bias=False)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in self.attn(self.ln1(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.proj(y)
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """With tied weights, learned positions, dropout of 0 and ignored targets, as nanoGPT has."""

    def __init__(self, vocab=61, width=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(40, width)
        self.drop = nn.Dropout(0.0)
        self.h = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.ln = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class Course(nn.Module):
    """As students write it: einsum, softmax, RMSNorm, rotary pairs and SwiGLU of their own."""

    def __init__(self, vocab=59, width=32, heads=4, window=0):
        super().__init__()
        self.heads, self.window = heads, window
        matrix = lambda *shape: nn.Parameter(torch.randn(shape) * 0.2)
        self.embedding, self.qkv, self.o = matrix(vocab, width), matrix(3, width, width), matrix(width, width)
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.w1, self.w2, self.w3 = matrix(48, width), matrix(width, 48), matrix(48, width)
        half = width // heads
        angles = torch.outer(torch.arange(40), 1e4 ** (-torch.arange(0, half, 2) / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin())

    def norm(self, x):
        y = x.to(torch.float32)
        return (y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain).to(x.dtype)

    def turned(self, x, at):
        a, b, cos, sin = x[..., 0::2], x[..., 1::2], self.cos[at], self.sin[at]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def softmax(self, x):
        e = torch.exp(x - x.max(dim=-1, keepdim=True)[0])
        return e / e.sum(dim=-1, keepdim=True)

    def forward(self, ids):
        x = self.embedding[ids]
        at = torch.arange(ids.shape[1])
        y = self.norm(x)
        q, k, v = (torch.einsum("btd,ed->bte", y, w).unflatten(2, (self.heads, -1)).transpose(1, 2) for w in self.qkv)
        scores = torch.einsum("...qd,...kd->...qk", self.turned(q, at), self.turned(k, at)) / math.sqrt(q.shape[-1])
        seen = at[:, None] >= at[None]
        if self.window:
            seen = seen & (at[:, None] - at[None] < self.window)
        weights = self.softmax(torch.where(seen, scores, float("-inf")))
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights, v).transpose(1, 2).flatten(2)
        x = x + mixed @ self.o.T
        y = self.norm(x)
        gate = torch.einsum("btd,fd->btf", y, self.w1)
        up = torch.einsum("btd,fd->btf", y, self.w3)
        x = x + torch.einsum("btf,df->btd", gate * torch.sigmoid(gate) * up, self.w2)
        return torch.einsum("btd,vd->btv", self.norm(x), self.embedding)


def course_loss(logits, targets):
    logits, targets = logits.flatten(0, 1), targets.flatten()
    logits = logits - logits.max(dim=-1, keepdim=True)[0]
    return (torch.log(torch.exp(logits).sum(-1)) - logits.gather(-1, targets[:, None]).squeeze(-1)).mean()


class Translator(nn.Module):
    def __init__(self, vocab=53, width=32):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, width, padding_idx=5), nn.Embedding(vocab, width)
        self.inner = nn.Transformer(width, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, source, target, padding=None):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        y = self.inner(self.source(source), self.target(target), tgt_mask=mask, tgt_is_causal=True, src_key_padding_mask=padding,
                       memory_key_padding_mask=padding)
        return {"logits": self.out(y)}


class Patches(nn.Module):
    """A vision transformer's first half and an MLP-mixer's second."""

    def __init__(self, width=16):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.cls, self.at = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.norm, self.across = nn.LayerNorm(width), nn.Linear(17, 17)
        self.head = nn.Linear(width, 7)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = self.layer(torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.at)
        return self.head(x + self.across(self.norm(x).transpose(1, 2)).transpose(1, 2))[:, 0]


class Odd(nn.Module):
    """Frozen weights, a module called twice, writing in place, no_grad, detach, complex rotation, powers and eval()."""

    def __init__(self):
        super().__init__()
        self.twice, self.frozen, self.other = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.drop = nn.Dropout(0.5).eval()
        self.register_buffer("turn", torch.polar(torch.ones(6, 4), torch.rand(6, 4)), persistent=False)

    def forward(self, x, scale=1.0):
        y = self.twice(self.drop(self.frozen(self.twice(x)))) * scale
        y[:, 0].mul_(2)
        y[:, 1:3] = x[:, 1:3]
        with torch.no_grad():
            z = self.other(y)
        pairs = torch.view_as_complex(y.unflatten(-1, (4, 2)))
        turned = torch.view_as_real(pairs * self.turn).flatten(-2)
        powers = (y.abs() + 0.1).pow(0.3) + torch.pow(y.abs() + 1.0, turned) + torch.cumsum(y, 1)
        return (turned * z.sigmoid() + y.detach() * y).pow(3).mean() + powers.square().mean()


class Truths(nn.Module):
    """Masks from inputs, joined as people join them: not, and, or, exclusive or, any, all, a count, NaN and infinity."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x, a, b):
        y = self.inner(x)
        mask = (a & ~b) | torch.logical_xor(x > 0.2, b)
        mask = mask ^ torch.logical_not(y.detach() > 0)
        mask &= ~(a.all(-1, keepdim=True) | torch.logical_and(a, b).all())
        here = mask.any(-1) & (a | b).any() & torch.isfinite(x).all(-1)
        mean = (y * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        odd = torch.where(a, x / torch.zeros_like(y), y)  # infinite, or not a number
        odd = odd.masked_fill(torch.isinf(odd), 0.5)
        odd = torch.where(torch.isnan(odd), y * 2, odd)
        plain = torch.nan_to_num(torch.where(b, x / torch.zeros_like(y), y), nan=0.25, posinf=2.0, neginf=-2.0)
        share = torch.count_nonzero(mask, dim=0) / mask.sum()
        return (mean * here).square().sum() + odd.square().mean() + (plain * share).mean()


IDS, TARGETS = (torch.randint(1, 53, (3, 19), generator=torch.Generator().manual_seed(s)) for s in (1, 2))
IGNORED = TARGETS.masked_fill(TARGETS % 5 == 0, -1)
PADDING = torch.arange(19)[None] >= torch.tensor([19, 12, 17])[:, None]


def translated(outputs, targets):
    return F.cross_entropy(outputs["logits"].transpose(1, 2), targets, label_smoothing=0.1)


# name -> module, inputs, options, composites that all patterns find
CASES = {
    "gpt": (GPT, (IDS, TARGETS), {}, {"attention": 2, "cross_entropy": 1, "gelu": 2, "layer_norm": 5}),
    "gpt with ignored targets": (GPT, (IDS, IGNORED), {},
                                 {"attention": 2, "cross_entropy": 1, "gelu": 2, "layer_norm": 5}),
    "course": (Course, (IDS,), {"loss": course_loss, "targets": TARGETS},
               {"attention": 1, "cross_entropy": 1, "rms_norm": 3, "rope": 2, "swiglu": 1}),
    "windowed course": (lambda: Course(window=7), (IDS,), {"loss": course_loss, "targets": TARGETS},
                        {"attention": 1, "cross_entropy": 1, "rms_norm": 3, "rope": 2, "swiglu": 1}),
    "translator": (Translator, (IDS, TARGETS[:, :11]), {"loss": translated, "targets": TARGETS[:, 1:12]},
                   {"attention": 3, "layer_norm": 7}),
    "translator with padding": (Translator, (IDS, TARGETS[:, :11]),
                                {"loss": translated, "targets": TARGETS[:, 1:12], "padding": PADDING},
                                {"attention": 1, "layer_norm": 7, "softmax": 2}),
    "patches": (Patches, (torch.linspace(-1, 1, 3 * 768).sin().reshape(3, 3, 16, 16),),
                {"loss": F.cross_entropy, "targets": torch.tensor([1, 6, 0])},
                {"attention": 1, "cross_entropy": 1, "gelu": 1, "layer_norm": 3}),
    "odd": (Odd, (torch.linspace(-1, 1, 240).sin().reshape(5, 6, 8),), {"scale": 2.0}, {}),
}


def wide(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def read(module, inputs, options, patterns):
    """The largest difference of loss, logits and gradients, relative to each tensor's largest, and the program, for
    each of several sets of patterns."""
    options = {name: wide(x) for name, x in options.items()}
    loss, targets = options.pop("loss", None), options.pop("targets", ())
    module = widened_copy(module)
    found = Inputs.of(module, [wide(x) for x in inputs], options,
                      [wide(x) for x in (targets if isinstance(targets, tuple) else (targets,))])
    step = Step(module, loss, found)
    with Widened():
        wanted = step(*found.tensors)
    wanted[0].backward()
    with Widened():
        graph = graph_of(step, found.tensors)
    for names in patterns:
        yield compare(module, wanted, written(step, graph, found.tensors, "m", frozenset(names)))


def compare(module, wanted, out):
    weights = {n: x.clone().requires_grad_(n not in out.frozen) for n, x in out.weights.items()}
    outputs = program_reader.run(out.program.text(), {**out.constants, **out.examples, **weights})
    outputs["loss"].backward()
    pairs = [(outputs["loss"], wanted[0])] + [(outputs["logits"], x) for x in wanted[1:]]
    largest = max(float(p.grad.abs().max()) for p in module.parameters() if p.grad is not None)
    for name, p in leaves_of(module)[0].items():
        if p.requires_grad:
            none = torch.zeros_like(p)
            mine = weights[name].grad if name in weights and weights[name].grad is not None else none
            pairs.append((mine, none if p.grad is None else p.grad))
    return max(float((a - b).detach().abs().max()) / max(float(b.detach().abs().max()), 1e-3 * largest)
               for a, b in pairs), out


class EqualTest(unittest.TestCase):
    def test_a_second_reader_computes_loss_logits_and_gradients_of_the_module(self):
        for name, (make, inputs, options, composites) in CASES.items():
            torch.manual_seed(3)
            with self.subTest(name):
                (lifted, out), (plain, _) = read(make(), inputs, options, (PATTERNS, ()))
                self.assertLess(lifted, 1e-10)
                self.assertLess(plain, 1e-10)
                self.assertEqual(out.lifted, composites)

    def test_the_program_computes_them_too(self):
        for name, patterns in (("gpt with ignored targets", "none"), ("windowed course", "all"),
                               ("translator with padding", "all"), ("patches", "none"), ("odd", "all")):
            make, inputs, options, _ = CASES[name]
            torch.manual_seed(3)
            with self.subTest(name):
                check = tracestep.capture(make(), *inputs, patterns=patterns, **options).check
                self.assertLess(max(check["loss"], check["gradients"]), 1e-10)

    def test_what_pytorch_defines_by_simpler_ops_is_taken_apart(self):
        class Losses(nn.Module):
            def __init__(self):
                super().__init__()
                self.narrow = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8))

            def forward(self, x, y):
                a = self.narrow(x)
                p, q = a.sigmoid(), y.sigmoid()
                return (F.mse_loss(a, y) + F.l1_loss(a, y) + F.smooth_l1_loss(a, y) + F.huber_loss(a, y)
                        + F.binary_cross_entropy(p, q) + F.poisson_nll_loss(a, q) - F.cosine_similarity(a, y, dim=-1).mean()
                        + torch.logaddexp(a, y).mean() + F.threshold(a, 0.1, 0.0).mean() + torch.logit(p).mean()
                        + torch.kron(a[:2, :2], y[:2, :2]).mean() + F.triplet_margin_loss(a, y, a.flip(0)))

        torch.manual_seed(3)
        check = tracestep.capture(Losses(), torch.randn(4, 6), torch.randn(4, 8)).check
        self.assertLess(max(check["loss"], check["gradients"]), 1e-10)

    def test_a_loss_that_is_0_but_for_rounding_is_equal(self):
        class Turned(nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                return (y.roll(1, -1) - y).mean()

        torch.manual_seed(3)
        self.assertLess(tracestep.capture(Turned(6, 8), torch.randn(4, 6)).check["loss"], 1e-8)

    def test_a_norm_that_rounds_float64_to_float32_stays_as_it_is(self):
        class Narrowing(nn.Linear):
            def forward(self, x):
                wide = super().forward(x).to(torch.float32)
                y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
                return (self.bias * y.to(torch.float64)).sum()

        torch.manual_seed(3)
        module, x = Narrowing(6, 8).double(), torch.randn(4, 6).double()
        captured = tracestep.capture(module, x)
        found = float(tracestep.eval(program=captured, device="reference").table["loss"][0])
        self.assertLess(abs(found - float(module(x).detach())), 1e-5)

    def test_truth_values_are_joined_as_in_the_module(self):
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 240).sin().reshape(5, 6, 8)
        x[0, 0, 0] = 0.0
        a, b = torch.rand(5, 6, 8) > 0.3, torch.rand(5, 6, 8) > 0.5
        a[1, 2] = True
        inputs = (x, a, b)
        for error, _ in read(Truths(), inputs, {}, (PATTERNS, ())):
            self.assertLessEqual(error, 1e-10)
        captured = tracestep.capture(Truths(), *inputs)
        self.assertLessEqual(max(captured.check["loss"], captured.check["gradients"]), 1e-10)
        torch.manual_seed(4)
        module = Truths()
        captured = tracestep.capture(module, *inputs, check=False)
        wanted = float(module(*inputs).detach())
        for executor in ("eager", "compiled"):
            loss = tracestep.eval(program=captured, executor=executor, threads=1).table["loss"][0]
            self.assertAlmostEqual(loss, wanted, delta=1e-5 * abs(wanted))

    def test_a_window_is_recognised_beyond_its_length(self):
        torch.manual_seed(3)
        (_, found), = read(Course(window=7), (IDS,), CASES["course"][2], (PATTERNS,))
        self.assertEqual([n.attrs["window"] for n in found.program.nodes if n.op == "attention"], [7])


class Dropping(nn.Module):
    """Dropout by a module, by a function, within attention by hand and within PyTorch's."""

    def __init__(self, width=16, p=0.3):
        super().__init__()
        self.embedding, self.drop, self.p = nn.Embedding(61, width), nn.Dropout(p), p
        self.h = nn.ModuleList(nn.MultiheadAttention(width, 2, dropout=p, batch_first=True) for _ in range(2))
        self.head = nn.Linear(width, 61)

    def forward(self, ids, targets):
        x = self.drop(self.embedding(ids))
        for block in self.h:
            x = x + F.dropout(block(x, x, x, need_weights=False)[0], self.p, self.training)
        q = x.unflatten(2, (2, -1)).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, q, q, dropout_p=self.p * self.training).transpose(1, 2).flatten(2)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class DropoutTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(3)
        cls.module = Dropping()
        cls.inputs = torch.randint(0, 61, (2, 2, 7))
        cls.captured = tracestep.capture(cls.module, *cls.inputs)  # held to the module without dropout

    def losses(self, steps=4, **options):
        found = []
        with tempfile.TemporaryDirectory() as place:
            text = pathlib.Path(place) / "ids"
            text.write_bytes(bytes(n % 61 if i % 2 == 0 else 0 for i, n in enumerate(range(2000))))
            tracestep.train(program=self.captured, tokens=text, token_dtype="uint16", steps=steps,
                            on_step=lambda row: found.append(row["loss"]), **{"threads": 1, **options})
        return found

    def test_evaluation_drops_nothing(self):
        wanted = float(self.module.eval()(*self.inputs))
        self.module.train()
        self.assertAlmostEqual(tracestep.eval(program=self.captured).table["loss"][0], wanted, places=5)
        self.assertIn("dropout", (self.captured.folder / "program.txt").read_text())

    def test_threads_recomputation_and_forms_drop_the_same(self):
        plain = self.losses()
        self.assertEqual(self.losses(threads=2), plain)
        self.assertEqual(self.losses(recompute="blocks"), plain)
        self.assertEqual(self.losses(executor="compiled", compile_passes="none"), plain)
        self.assertNotEqual(self.losses(seed=1), plain)

    def test_ranks_drop_what_one_rank_drops_in_its_micro_batches(self):
        for a, b in zip(self.losses(parallel="dp=2"), self.losses(accumulate=2)):
            self.assertAlmostEqual(a, b, places=5)

    def test_losses_are_distributed_as_the_module_has_them(self):
        mine = []
        tracestep.train(program=self.captured, steps=300, lr=1e-12, threads=1, on_step=lambda row: mine.append(row["loss"]))
        theirs = [float(self.module(*self.inputs)) for _ in range(300)]
        a, b = (torch.tensor(x, dtype=torch.float64) for x in (mine, theirs))
        error = math.sqrt((float(a.var()) + float(b.var())) / 300)
        self.assertLess(abs(float(a.mean() - b.mean())), 4.5 * error)
        self.assertLess(abs(math.log(float(a.std() / b.std()))), 0.25)
        self.assertEqual(len(set(mine)), 300)


@dataclasses.dataclass
class Found:
    """What a module of one's own may return."""

    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Returning(GPT):
    def forward(self, idx, *, targets=None):
        logits, loss = super().forward(idx, idx if targets is None else targets)
        return Found(loss=loss, logits=logits)


class OutputsTest(unittest.TestCase):
    def test_a_dataclass_with_keywords_gives_its_loss_and_logits(self):
        torch.manual_seed(3)
        found = tracestep.capture(Returning().eval(), IDS, targets=TARGETS)
        self.assertLess(found.check["gradients"], 1e-10)
        self.assertEqual([row["name"] for row in found.inputs], ["idx", "targets"])
        self.assertIn('output "logits"', (found.folder / "program.txt").read_text())
        theirs = tracestep.capture(Returning(), IDS, targets=TARGETS, check=False, loss=lambda out, y: F.cross_entropy(
            out.logits.flatten(0, 1), y.flatten()))
        self.assertIn('output "logits"', (theirs.folder / "program.txt").read_text())


class GroupsTest(unittest.TestCase):
    """Two rates, decay for matrices alone, and a bias that no group has."""

    STEPS = 10

    @classmethod
    def setUpClass(cls):
        torch.manual_seed(3)
        cls.module = GPT()
        cls.captured = tracestep.capture(cls.module, IDS, TARGETS, check=False, optimizer=cls.optimizer(cls.module))

    @staticmethod
    def optimizer(module):
        left = module.h[1].fc.bias
        rest = [p for p in module.parameters() if p is not left and p is not module.wte.weight]
        return torch.optim.AdamW([{"params": [p for p in rest if p.dim() > 1], "weight_decay": 0.1},
                                  {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
                                  {"params": [module.wte.weight], "lr": 1e-2, "weight_decay": 0.025}],
                                 lr=2e-3, betas=(0.8, 0.95), eps=1e-6)

    def by_torch(self):
        module = copy.deepcopy(self.module)
        optimizer, losses = self.optimizer(module), []
        for step in range(self.STEPS):
            for group in optimizer.param_groups:  # tracestep adds eps before its bias is corrected (docs/training.md)
                group["eps"] = 1e-6 / (1 - 0.95 ** (step + 1)) ** 0.5
            optimizer.zero_grad()
            loss = module(IDS, TARGETS)[1]
            loss.backward()
            # Gradients that are 0 but for rounding, as those of biases of keys, move a weight by their sign.
            moves = {n: p.grad.abs() > 1e-4 for n, p in module.named_parameters()} if step == 0 else moves
            optimizer.step()
            losses.append(float(loss))
        return losses, {n: (p.detach(), moves[n]) for n, p in module.named_parameters()}

    def by_program(self, **options):
        with tempfile.TemporaryDirectory() as place:
            file, losses = pathlib.Path(place) / "weights", []
            tracestep.train(program=self.captured, steps=self.STEPS, save=file, threads=1,
                            on_step=lambda row: losses.append(row["loss"]), **options)
            return losses, read_tensors(file)

    def test_ten_steps_are_those_of_the_modules_optimizer(self):
        wanted, weights = self.by_torch()
        for options in ({}, {"executor": "compiled"}, {"updates": "early", "recompute": "blocks"}):
            with self.subTest(options):
                losses, found = self.by_program(**options)
                for a, b in zip(losses, wanted):
                    self.assertAlmostEqual(a, b, delta=1e-5 * b)
                for name, (p, moves) in weights.items():
                    with self.subTest(name):
                        self.assertLess(float((found[name] - p)[moves].norm()), 2e-5 * float(p.norm()))
                self.assertTrue(torch.equal(found["h.1.fc.bias"], self.module.h[1].fc.bias))

    def test_flags_are_of_the_highest_and_others_keep_their_share(self):
        plain = self.by_program()[0]
        self.assertEqual(self.by_program(lr=1e-2, weight_decay=0.1, beta1=0.8, beta2=0.95, eps=1e-6)[0], plain)
        self.assertNotEqual(self.by_program(lr=5e-3)[0], plain)
        _, still = self.by_program(lr=0.0)
        self.assertTrue(torch.equal(still["wte.weight"], self.module.wte.weight))

    def test_peaks_are_as_predicted_with_groups(self):
        for what in ({}, {"parallel": "dp=2,shard=2"}, {"updates": "early"}, {"moments": "8bit"}):
            for row in tracestep.memory(program=self.captured, precision="fp32,bf16", executor="eager,compiled", threads=1,
                                        **what).table.rows:
                self.assertEqual(row["measured_peak_bytes"], row["predicted_peak_bytes"], (what, row))

    def test_what_no_step_here_can_do_is_said(self):
        folder = pathlib.Path(self.captured)
        index = json.loads((folder / "capture.json").read_text())
        self.assertEqual(index["optimizer"], "AdamW")
        with tempfile.TemporaryDirectory() as place:
            other = pathlib.Path(place) / "other"
            shutil.copytree(folder, other)
            index["optimizer_groups"][1]["beta1"] = 0.5
            (other / "capture.json").write_text(json.dumps(index))
            with self.assertRaisesRegex(tracestep.UsageError, "--beta1.* groups of GPT's optimizer differ in it"):
                tracestep.train(program=other, steps=1)
        with self.assertRaisesRegex(tracestep.UsageError, "none of the module's parameters"):
            tracestep.capture(GPT(), IDS, TARGETS, check=False, optimizer=torch.optim.AdamW(GPT().parameters()))


class FolderTest(unittest.TestCase):
    def test_it_holds_what_the_module_has(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "captured"
            gpt = GPT()
            groups = torch.optim.AdamW([{"params": gpt.h.parameters(), "weight_decay": 0.5},
                                        {"params": [gpt.wte.weight, gpt.wpe.weight]}])
            found = tracestep.capture(gpt, IDS, TARGETS, folder=folder, check=False, optimizer=groups)
            index = json.loads((folder / "capture.json").read_text())
            self.assertEqual(index["inputs"], [{"name": "idx", "role": "tokens", "high": 61},
                                               {"name": "targets", "role": "targets", "high": 61}])
            self.assertEqual(index["tied"], {"lm_head.weight": "wte.weight"})
            self.assertEqual((index["format"], index["module"], index["check"]), (1, "GPT", None))
            self.assertEqual([len(g["parameters"]) for g in index["optimizer_groups"]], [22, 2])
            self.assertEqual(index["optimizer_groups"][0]["weight_decay"], 0.5)
            text = (folder / "program.txt").read_text()
            self.assertIn("@ h.1.attn forward capture_test.py:", text)
            self.assertNotIn(str(ROOT), text)
            with self.assertRaisesRegex(tracestep.OutputError, "another capture"):
                tracestep.capture(gpt, IDS, TARGETS, folder=folder, check=False)
            tracestep.capture(gpt, IDS, TARGETS, folder=folder, check=False, overwrite=True)
            self.assertEqual(os.fspath(found), str(folder))

    def test_frozen_weights_and_buffers_are_constants_with_values(self):
        found = tracestep.capture(Course(), IDS, check=False, **CASES["course"][2])
        index = json.loads((found.folder / "capture.json").read_text())
        self.assertEqual(index["buffers"], ["sin"])
        odd = tracestep.capture(Odd(), *CASES["odd"][1], check=False)
        self.assertIn("constant %frozen.weight : f32[8,8]", (odd.folder / "program.txt").read_text())
        self.assertEqual(json.loads((odd.folder / "capture.json").read_text())["frozen"],
                         ["frozen.weight", "frozen.bias", "other.weight", "other.bias"])  # the latter get no gradient

    def test_a_mask_is_stored_without_its_batch(self):
        found = tracestep.capture(Translator(), IDS, TARGETS[:, :11], check=False, patterns="none",
                                  **CASES["translator"][2])
        self.assertNotRegex((found.folder / "program.txt").read_text(), r"constant %constants.\d+ : \w+\[3,")

    def test_a_tensor_that_is_passed_twice_is_one_input(self):
        found = tracestep.capture(GPT(), IDS, IDS, check=False)
        self.assertEqual([i["name"] for i in found.inputs], ["idx"])

    def test_inputs_and_parameters_of_one_name_are_told_apart(self):
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.x, self.linear = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)
                self.register_buffer("targets", torch.ones(6))

            def forward(self, x, lr):
                return self.linear(x * self.x + self.targets) * lr

        x, rate, targets = torch.randn(4, 6), torch.tensor(2.0), torch.randn(4, 6)
        found = tracestep.capture(Masked(), x, rate, loss=torch.nn.functional.mse_loss, targets=(targets,))
        self.assertEqual([i["name"] for i in found.inputs], ["input.x", "input.lr", "input.targets"])
        self.assertIn("parameter %x : f32[6]", (found.folder / "program.txt").read_text())

    def test_a_module_in_bfloat16_keeps_its_dtypes(self):
        torch.manual_seed(3)
        found = tracestep.capture(GPT().bfloat16(), IDS, TARGETS)
        text = (found.folder / "program.txt").read_text()
        self.assertIn("parameter %wte.weight : bf16[61,32]", text)
        self.assertIn("f32[] = cast(", text)  # the loss
        self.assertLess(found.check["gradients"], 1e-10)


# --- what is refused --------------------------------------------------------------------------------
class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


class Doing(nn.Module):
    """A linear layer, and what a function makes of it."""

    def __init__(self, what, **parts):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.what = what
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.what(self, self.linear(x))


def branching(m, y):
    return y.sum() if y.sum() > 0 else y.mean()


REFUSED = {
    "a gradient of one's own": (lambda m, y: Wrong.apply(y).mean(), {}, r"gradient of linear.weight differs by 0.33"),
    "control flow": (branching, {}, r"capture_test.py:\d+\].*data-dependent"),
    "unknown sizes": (lambda m, y: y[y > 0].sum(), {}, r"capture_test.py:\d+\] .*size that depends on values"),
    "indices": (lambda m, y: (y * y.argmax(-1, keepdim=True)).sum(), {}, r"aten.argmax.* has no counterpart"),
    "largest's indices": (lambda m, y: (y * y.max(-1, keepdim=True)[1]).sum(), {}, r"aten.mul.* has no counterpart"),
    "dropout of channels": (lambda m, y: m.drop(y[None]).sum(), {"drop": nn.Dropout1d(0.1)},
                            r"capture_test.py:\d+\] aten.* gives random numbers.* \(in drop\)"),
    "random numbers": (lambda m, y: (y * torch.randn_like(y)).sum(), {}, "random numbers"),
    "batch norm": (lambda m, y: m.bn(y).sum(), {"bn": nn.BatchNorm1d(6)}, r"changes the buffer bn.running_mean"),
    "recurrence": (lambda m, y: m.lstm(y)[0].sum(), {"lstm": nn.LSTM(6, 6)}, r"aten.lstm.* has no counterpart"),
    "convolution": (lambda m, y: m.conv(y[:, None]).sum(), {"conv": nn.Conv1d(1, 2, 3)}, "not over patches"),
    "reentrant checkpoints": (lambda m, y: torch.utils.checkpoint.checkpoint(m.inner, y, use_reentrant=True).sum(),
                              {"inner": nn.Linear(6, 6)}, "reentrant checkpoint"),
    "no loss": (lambda m, y: y, {}, "the step has no loss"),
    "a state of the step": (lambda m, y: (y * m.loss_scale).sum(), {"loss_scale": nn.Parameter(torch.ones(6))},
                            "'loss_scale' is called as what every step has"),
}


class RefusedTest(unittest.TestCase):
    def test_each_is_refused_in_one_line_that_says_why(self):
        torch.manual_seed(0)
        x = torch.randn(4, 6, requires_grad=True)
        for name, (what, parts, reason) in REFUSED.items():
            with self.subTest(name), self.assertRaisesRegex(tracestep.UsageError, reason) as raised:
                tracestep.capture(Doing(what, **parts), x)
            self.assertNotIn("\n", str(raised.exception))

    def test_calls_that_make_no_sense(self):
        for call, reason in ((lambda: tracestep.capture(3, IDS), "is no torch.nn.Module"),
                             (lambda: tracestep.capture(GPT(), IDS, TARGETS, patterns="softmx"), "is no pattern"),
                             (lambda: tracestep.capture(GPT(), IDS, TARGETS, IDS), "cannot be called like this")):
            with self.assertRaisesRegex(tracestep.UsageError, reason):
                call()


class CommandTest(unittest.TestCase):
    def test_a_script_is_captured_and_a_mistake_is_one_line(self):
        script = ("import torch\nfrom torch import nn\n"
                  "def build():\n    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.ones(2, 3), "
                  "{'loss': lambda y: y.mean()}\n")
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "mine.py").write_text(script)
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
                           "PATH": f"{os.path.dirname(os.path.abspath(PROGRAM))}:{os.environ['PATH']}"}
            said = lambda *words: subprocess.run([sys.executable, "-m", "tracestep", "capture", *words], cwd=place,
                                                 env=environment, capture_output=True, text=True)
            done = said("mine.py:build", "--no-check")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Sequential: no composites; loss and gradients were not checked", done.stdout)
            self.assertTrue((pathlib.Path(place) / "captured-build" / "capture.json").is_file())
            (pathlib.Path(place) / "mine").mkdir()
            config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 31}
            (pathlib.Path(place) / "mine" / "config.json").write_text(json.dumps(config))
            own = said("mine", "--batch", "2", "--context", "8")
            self.assertEqual((own.returncode, own.stderr), (0, ""))
            self.assertIn("it is --model mine --batch 2 --context 8; --native off captures the module", own.stdout)
            self.assertFalse((pathlib.Path(place) / "captured-mine").exists())
            config["model_type"] = "mpt"  # nothing of ours, so the package is asked
            (pathlib.Path(place) / "mine" / "config.json").write_text(json.dumps(config))
            self.assertNotIn("--native off", said("mine", "--no-check").stdout)
            if importlib.util.find_spec("transformers"):  # a plan has no values, and a tied head all the same
                config["model_type"] = "gpt2"
                (pathlib.Path(place) / "mine" / "config.json").write_text(json.dumps(config))
                plan = said("mine", "--native", "off", "--plan", "--no-step", "--folder", "plan", "--context", "8")
                self.assertEqual(plan.returncode, 0, plan.stderr)  # the package warns of its own defaults there
                index = json.loads((pathlib.Path(place) / "plan" / "capture.json").read_text())
                self.assertEqual(list(index["tied"].values()), ["transformer.wte.weight"])
            wrong = said("mine.py:missing")
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("has no function 'missing'", wrong.stderr)


class ReadmeTest(unittest.TestCase):
    def test_its_example_runs_as_printed(self):
        example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
        mine = ("from torch import nn\nfrom torch.nn import functional as F\n\n\nclass GPT(nn.Module):\n"
                "    def __init__(self):\n        super().__init__()\n"
                "        self.table, self.head = nn.Embedding(50257, 8), nn.Linear(8, 50257)\n\n"
                "    def forward(self, ids, targets):\n"
                "        return F.cross_entropy(self.head(self.table(ids)).flatten(0, 1), targets.flatten())\n")
        with tempfile.TemporaryDirectory() as place:
            (pathlib.Path(place) / "mine.py").write_text(mine)
            place_of_program = os.path.dirname(os.path.abspath(PROGRAM))
            done = subprocess.run([sys.executable, "-c", example], cwd=place, capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": str(ROOT / "python"),
                                       "PATH": f"{place_of_program}:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"One step of GPT \(batch 8, context 1024, fp32, fused ops\) will peak at [0-9.]+ GiB")
            self.assertTrue((pathlib.Path(place) / "gpt" / "program.txt").is_file())


class NotebookTest(unittest.TestCase):
    def test_every_cell_runs_and_the_assertions_in_it_hold(self):
        book = json.loads((ROOT / "examples/module.ipynb").read_text(encoding="utf-8"))
        names, here = {}, os.getcwd()
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as said, \
                contextlib.redirect_stderr(io.StringIO()):
            os.chdir(place)
            try:
                for number, cell in enumerate(book["cells"]):
                    if cell["cell_type"] == "code":
                        file = pathlib.Path(f"cell{number}.py")  # what is refused is said with its line
                        file.write_text("".join(cell["source"]), encoding="utf-8")
                        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
            finally:
                os.chdir(here)
        self.assertRegex(said.getvalue(), r"2 attention, 1 cross_entropy, 2 gelu, 5 rms_norm; loss and gradients are")
        self.assertRegex(said.getvalue(), r"\[cell\d+.py:3\] .*data-dependent")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the program, which checks captures")
    options, rest = parser.parse_known_args()
    global PROGRAM
    PROGRAM = options.program
    tracestep.use(PROGRAM)
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
