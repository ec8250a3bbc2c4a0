#!/usr/bin/env python3
"""Dtypes of captured modules under autocast: those of a running PyTorch step, and those of the program.

    tests/python/captured_dtypes_test.py [--program build/tracestep] [--all] [--only falcon]

A dispatch mode reads the dtype of each result while a module runs forward under torch.autocast; the program's are in
`show --program`. Compared are products, norms, activations and sums, by the module's path and kind, in bfloat16 and
float16. With --all: also the architectures of tools/soak/captured_modules.py. Needs torch; ends with status 77, which
ctest calls skipped, where it is missing.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tools/soak"), str(pathlib.Path(__file__).parent)]

from autocast_dtypes_test import DTYPES, NODE, RESULT, Recorded  # noqa: E402  (skips without torch)
import capture_test  # noqa: E402
import torch  # noqa: E402
import tracestep  # noqa: E402

PROGRAM, ALL, ONLY = ROOT / "build/tracestep", False, None
THEIRS = {"mm": "product", "addmm": "product", "bmm": "product", "baddbmm": "product", "native_layer_norm": "norm",
          "convolution": "product", "gelu": "activation", "silu": "activation", "relu": "activation", "tanh": "activation",
          "_scaled_dot_product_flash_attention_for_cpu": "product", "embedding": "embedding", "add": "sum", "add_": "sum",
          "nll_loss_forward": "loss", "nll_loss2d_forward": "loss"}
OURS = {"matmul": "product", "matmul_bias": "product", "layer_norm": "norm", "gelu": "activation", "gelu_erf": "activation",
        "silu": "activation", "relu": "activation", "tanh": "activation", "attention": "product", "gather": "embedding",
        "add": "sum", "cross_entropy": "loss"}
# What is inside of a composite of ours is no node: sums of a module's own norm or mask, an activation that gates. A
# table at constant positions is rows of it, and a loss with smoothing its parts.
OWN = ("sum", "embedding", "loss", "activation")
LOW = ("bf16", "f16")


def is_of_cpus(name, key, dtypes):
    """What autocast does on a CPU alone: no layer norm is widened, and attention with a wide mask is wide throughout."""
    return key[1] == "norm" and dtypes <= set(LOW) or name == "t5" and key[1] == "product" and "SelfAttention" in key[0]


class Dtypes(Recorded):
    """By (path, kind) of every result."""

    def note(self, path, role, x):
        """Results of ops are read as they are made."""

    def read(self, path, op, x, args):
        if op in THEIRS:
            self.values[path, THEIRS[op]].add(DTYPES[x.dtype])


def dtypes_of_torch(module, inputs, options, low):
    options = dict(options)
    loss, targets = options.pop("loss", None), options.pop("targets", ())
    recorded = Dtypes(module)
    with torch.autocast("cpu", dtype=low), recorded:
        outputs = module(*inputs, **options)
        if loss:
            loss(outputs, *(targets if isinstance(targets, tuple) else (targets,)))
    return recorded.values


def dtypes_of_program(folder, precision):
    done = subprocess.run([PROGRAM, "show", "--program", folder, "--precision", precision, "--after", "autocast", "--mode",
                           "forward-backward"], capture_output=True, text=True, check=True)
    values = collections.defaultdict(set)
    for line in done.stdout.splitlines():
        if (found := NODE.match(line)) and found[2] in OURS:
            path = re.sub(r"(^|\.)(scores|values)$", "", found[4].strip("."))  # parts of attention
            dtype = RESULT.findall(found[1])[0][1]
            if dtype in DTYPES.values():
                values[path, OURS[found[2]]].add(dtype)
    return values


def cases():
    for name in ("gpt", "course", "translator", "patches"):
        make, inputs, options, _ = capture_test.CASES[name]
        yield name, lambda make=make, inputs=inputs, options=options: (make(), inputs, options)
    if ALL:
        import captured_modules

        for name in captured_modules.ARCHITECTURES:
            yield name, lambda name=name: captured_modules.of_transformers(name)


class CapturedDtypesTest(unittest.TestCase):
    maxDiff = None

    def test_values_have_the_dtypes_of_a_running_step(self):
        for name, make in cases():
            if ONLY not in (None, name):
                continue
            for low, precision in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
                with self.subTest(name, precision=precision):
                    torch.manual_seed(3)
                    module, inputs, options = make()
                    theirs = dtypes_of_torch(module, inputs, options, low)
                    module, inputs, options = make()  # without hooks
                    found = tracestep.capture(module, *inputs, check=False, **options)
                    ours = dtypes_of_program(found.folder, precision)
                    both = [key for key, dtypes in theirs.items() if key in ours and not is_of_cpus(name, key, dtypes)]
                    self.assertEqual({key: ours[key] for key in both}, {key: theirs[key] for key in both})
                    missing = {key for key in theirs if key not in ours and key[1] not in OWN}
                    self.assertEqual(missing, set())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--all", action="store_true", help="also the architectures of transformers")
    parser.add_argument("--only", metavar="NAME", help="one of them")
    options, rest = parser.parse_known_args()
    PROGRAM, ALL, ONLY = options.program.resolve(), options.all, options.only
    tracestep.use(str(PROGRAM))
    unittest.main(argv=[sys.argv[0], *rest])
