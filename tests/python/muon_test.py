#!/usr/bin/env python3
"""Muon beside torch.optim.Muon on small random models of transformers: losses and weights of ten steps, in float32 and
in bfloat16, with both scales of a step. AdamW has the embeddings, the head, norms and biases on both sides.

    tests/python/muon_test.py [--program build/tracestep]

Needs torch (2.9 or later), transformers and safetensors (tools/python_env); ends with status 77, which ctest calls skipped,
where they are missing.
"""
import argparse
import array
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

try:
    import torch
    import transformers
    from torch.optim import _muon
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
from family_fixtures import MODELS, model_of  # noqa: E402

PROGRAM = ROOT / "build/tracestep"
VOCAB, BATCH, CONTEXT, STEPS = 48, 2, 12, 10
RATE, DECAY = 4e-3, 0.1
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


@contextlib.contextmanager
def products_in(dtype):
    """torch.optim.Muon multiplies in bfloat16 whatever the weights are: in float32 the same code with another dtype."""
    own = types.SimpleNamespace(bfloat16=dtype, addmm=torch.addmm, no_grad=torch.no_grad, is_complex=torch.is_complex,
                                zeros_like=torch.zeros_like, preserve_format=torch.preserve_format, Tensor=torch.Tensor)
    with unittest.mock.patch.object(_muon, "torch", own):
        yield


class MuonTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tokens = torch.randint(0, VOCAB, (BATCH * CONTEXT * STEPS + 1,))
        (self.folder / "tokens.bin").write_bytes(array.array("H", self.tokens.tolist()).tobytes())

    def run_program(self, *words):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done

    def load(self, name):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder / name, dtype=torch.float32,
                                                                 attn_implementation="eager").eval()

    def theirs(self, kind, scale, precision):
        """The model after ten steps, the one before, and the losses."""
        model_of(*MODELS[kind]).save_pretrained(self.folder / "base")
        before, model = self.load("base"), self.load("base")
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and ".layers." in n]
        rest = [p for n, p in model.named_parameters() if p.ndim != 2 or ".layers." not in n]
        muon = torch.optim.Muon(matrices, lr=RATE, weight_decay=DECAY, momentum=0.95, adjust_lr_fn=scale)
        adamw = torch.optim.AdamW(rest, lr=RATE, betas=(0.9, 0.95), eps=1e-12, weight_decay=DECAY)
        losses, low = [], precision == "bf16"
        with products_in(torch.bfloat16 if low else torch.float32):
            for step in range(STEPS):
                at = step * BATCH * CONTEXT
                ids, targets = (self.tokens[i:i + BATCH * CONTEXT].reshape(BATCH, CONTEXT) for i in (at, at + 1))
                with torch.autocast("cpu", torch.bfloat16, enabled=low):
                    logits = model(ids, use_cache=False).logits
                loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
                muon.zero_grad()
                adamw.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                muon.step()
                adamw.step()
                losses.append(loss.item())
        return model, before, losses

    def ours(self, scale, precision):
        """The losses; the weights are in the folder "after"."""
        self.run_program("train", "--model", "base", "--tokens", "tokens.bin", "--token-dtype", "uint16", "--batch", BATCH,
                         "--context", CONTEXT, "--steps", STEPS, "--optimizer", "muon", "--muon-scale", scale, "--lr", RATE,
                         "--beta2", 0.95, "--eps", "1e-12", "--weight-decay", DECAY, "--clip", 0.5, "--precision", precision, "--order",
                         "sequential", "--checkpoint", "run", "--log", "log")
        self.run_program("export", "run", "after")
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    def expect_same(self, kind, scale, precision, of_loss, of_weights):
        for folder in ("base", "after", "run"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        (self.folder / "log").unlink(missing_ok=True)
        model, before, wanted = self.theirs(kind, scale, precision)
        for ours, theirs in zip(self.ours(scale, precision), wanted, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=of_loss * theirs)
        after, start = dict(self.load("after").named_parameters()), dict(before.named_parameters())
        for name, x in model.named_parameters():
            moved = (x - start[name]).norm()
            self.assertLess((after[name] - x).norm() / moved, of_weights, f"{kind}, {scale}, {precision}: {name}")

    def test_ten_steps_in_float32_are_those_of_torch(self):
        for kind in ("llama3", "qwen2", "gemma2", "qwen3"):
            for scale in ("match_rms_adamw", "original"):
                with self.subTest(f"{kind} {scale}"):
                    self.expect_same(kind, scale, "fp32", 1e-5, 1e-3)

    def test_ten_steps_in_bfloat16_go_the_same_way(self):
        for scale in ("match_rms_adamw", "original"):
            with self.subTest(scale):
                self.expect_same("llama3", scale, "bf16", 5e-3, 0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    options, rest = parser.parse_known_args()
    PROGRAM = options.program.resolve()
    unittest.main(argv=sys.argv[:1] + rest)
