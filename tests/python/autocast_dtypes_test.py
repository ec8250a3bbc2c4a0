#!/usr/bin/env python3
"""Dtypes of every family's values under autocast: those of a running PyTorch step, and those of the program.

    tests/python/autocast_dtypes_test.py [--program build/tracestep] [--all]

Without --all: one model of each arrangement, and float16 for two of them.

Models are made by transformers and run forward under torch.autocast, while a dispatch mode reads the dtype of each
result and hooks read what is saved for backward. Nothing here says which dtype is right. Needs torch and transformers
(tools/python_env); ends with status 77, which ctest calls skipped, where they are missing.

Two things are a model's own code and no decision of autocast: a copy at the end of a norm (Gemma, OLMo 2), where
compared is what the norm computed, and the order of the sums of a parallel residual (Pythia), where the branches are
added to each other first.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import torch.nn.functional as F
    import transformers
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
from family_fixtures import MODELS, model_of  # noqa: E402

PROGRAM, ALL = ROOT / "build/tracestep", False
KINDS = ("llama_linear", "qwen2", "qwen3", "gemma2", "olmo2", "gpt2", "pythia", "starcoder2")
VOCAB, BATCH, CONTEXT = 48, 2, 12
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# Roles of products, by the last name of the module, and of its parent where that decides; then by our scope.
LINEAR = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "qkv_proj": "qkv", "attn.c_attn": "qkv",
          "query_key_value": "qkv", "o_proj": "out", "attn.c_proj": "out", "attention.dense": "out",
          "gate_proj": "up", "up_proj": "up", "gate_up_proj": "up", "mlp.c_fc": "up", "dense_h_to_4h": "up",
          "down_proj": "down", "mlp.c_proj": "down", "dense_4h_to_h": "down", "lm_head": "logits",
          "embed_out": "logits"}
OURS = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "output_proj": "out", "w1": "up", "w3": "up", "w2": "down",
        "lm_head": "logits"}
ATTENTION = ("attn", "self_attn", "attention")
MOVES = ("view", "reshape", "permute", "broadcast", "slice")


def layer_of(path):
    found = re.search(r"\.(\d+)(\.|$)", path)
    return found[1] if found else ""


class Recorded(TorchDispatchMode):
    """The dtypes of results and of what is saved, by (layer, role)."""

    def __init__(self, model):
        super().__init__()
        self.modules, self.values, self.saved = [], collections.defaultdict(set), collections.defaultdict(set)
        self.alive, self.role_of, self.products = [], {}, collections.Counter()
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self.entering(name))
            module.register_forward_hook(self.leaving(name))

    def entering(self, name):
        def hook(*_):
            self.modules.append(name)
        return hook

    def leaving(self, name):
        def hook(_, inputs, output):
            leaf = name.rsplit(".", 1)[-1]
            if leaf in ("act", "act_fn", "activation_fn"):
                self.note(name, "activation", output)
            self.modules.pop()
        return hook

    def note(self, path, role, x):
        key = (layer_of(path), role)
        self.values[key].add(DTYPES[x.dtype])
        self.role_of[x.untyped_storage().data_ptr()] = key
        self.alive.append(x)  # so that no other tensor gets its address

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, (tuple, list)) else result
        if isinstance(first, torch.Tensor) and first.is_floating_point():
            self.read(self.modules[-1] if self.modules else "", function.overloadpacket.__name__, first, args)
        return result

    def read(self, path, op, x, args):
        leaf, both = path.rsplit(".", 1)[-1], ".".join(path.rsplit(".", 2)[-2:])
        is_norm = "norm" in leaf or leaf.startswith("ln_")
        if op in ("mm", "addmm") and (leaf in LINEAR or both in LINEAR):
            self.note(path, LINEAR.get(both, LINEAR.get(leaf)), x)
        elif op == "bmm" and leaf in ATTENTION:
            self.products[path] += 1
            self.note(path, "scores" if self.products[path] == 1 else "values", x)
        elif op == "add" and leaf in ATTENTION and self.products[path] == 0:
            self.note(path, "rotated", x)
        elif op == "_softmax":
            self.note(path, "softmax", x)
        elif is_norm and op in ("native_layer_norm", "mul"):
            self.values[layer_of(path), "norm " + leaf] = {DTYPES[x.dtype]}  # the last one counts
        elif op == "mul" and leaf == "mlp":
            self.note(path, "gated", x)
        elif op == "add" and leaf.isdigit() and torch.float32 in [a.dtype for a in args]:  # not of two branches
            self.note(path, "residual", x)
        elif op == "embedding":
            self.note(path, "embedding", x)
        elif op == "nll_loss_forward":
            self.note(path, "loss", x)

    def save(self, x):
        role = self.role_of.get(x.untyped_storage().data_ptr()) if x.is_floating_point() else None
        if role:
            self.saved[role].add(DTYPES[x.dtype])
        return x


def dtypes_of_torch(model, tokens, low):
    recorded = Recorded(model)
    saving = torch.autograd.graph.saved_tensors_hooks(recorded.save, lambda x: x)
    with torch.autocast("cpu", dtype=low), saving, recorded:
        logits = model(tokens, use_cache=False).logits
        F.cross_entropy(logits.reshape(-1, VOCAB), tokens.reshape(-1))
    return recorded


def norm_names(model):
    """The names that transformers gives to the norms of a layer: ours."""
    leaves = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    is_behind = "post_feedforward_layernorm" in leaves
    names = {"input_layernorm": "ln1", "ln_1": "ln1", "ln_2": "ln2", "pre_feedforward_layernorm": "ln2",
             "post_attention_layernorm": "ln1_after" if is_behind else "ln2",
             "post_feedforward_layernorm": "ln2_after", "norm": "ln_final", "ln_f": "ln_final",
             "final_layer_norm": "ln_final"}
    return lambda leaf: names.get(leaf, leaf)


NODE = re.compile(r"\s*(.+?) = (\w+)\((.*?)\)(?: \{.*\})? @ (\S+) (\w+)")
RESULT = re.compile(r"%(\S+) : (\w+)\[")


def our_role(path, op):
    leaf = path.rsplit(".", 1)[-1]
    if op in ("matmul", "matmul_bias"):
        if leaf in OURS:
            return OURS[leaf]
        return {"scores": "scores", "values": "values"}.get(leaf)
    if op in ("rms_norm", "layer_norm"):
        return "norm " + leaf
    if op in ("silu", "gelu", "gelu_erf"):
        return "activation"
    if op == "add" and path.endswith(".residual"):
        return "residual"
    if op == "mul" and ".ffn" in path:
        return "gated"
    return {"softmax": "softmax", "rope": "rotated", "cross_entropy": "loss"}.get(op) or (
        "embedding" if op == "gather" else None)


def dtypes_of_program(text):
    """The dtypes of results, and of those that backward reads, by (layer, role)."""
    values, saved, maker, key_of, dtype_of = (collections.defaultdict(set), collections.defaultdict(set), {}, {}, {})
    for line in text.splitlines():
        found = NODE.match(line)
        if not found:
            continue
        results, op, operands, path, phase = found.groups()
        inputs = re.findall(r"%([^\s,]+)", operands)
        for name, dtype in RESULT.findall(results):
            dtype_of[name], maker[name] = dtype, (op, inputs)
        name = RESULT.findall(results)[0][0]
        role = our_role(path, op)
        if phase == "forward" and role:
            key_of[name] = (layer_of(path), role)
            values[key_of[name]].add(dtype_of[name])
        if phase == "backward":
            for x in inputs:
                while x in maker and maker[x][0] in MOVES:
                    x = maker[x][1][0]
                if x in key_of:
                    saved[key_of[x]].add(dtype_of[x])
    return values, saved


class AutocastDtypesTest(unittest.TestCase):
    maxDiff = None

    def program_of(self, folder, precision, after, is_gated):
        # Where values are gated, activation and gate are one op, "swiglu"; alone an activation is one.
        ops = "norm+rope+softmax+loss" if is_gated else "fused"
        done = subprocess.run([PROGRAM, "show", "--model", folder, "--precision", precision, "--batch", str(BATCH),
                               "--context", str(CONTEXT), "--after", after, "--ops", ops],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check(self, kind, low, precision):
        torch.manual_seed(3)
        model = model_of(*MODELS[kind]).train()
        config = model.config.get_text_config()
        theirs = dtypes_of_torch(model, torch.randint(0, VOCAB, (BATCH, CONTEXT)), low)
        norm_name = norm_names(model)
        wanted = {(layer, "norm " + norm_name(role[5:]) if role.startswith("norm ") else role): dtypes
                  for (layer, role), dtypes in theirs.values.items()}
        roles = {role for _, role in wanted}
        if "gated" in roles:  # in parts an activation is products, too: they are all "gated"
            wanted = {key: dtypes for key, dtypes in wanted.items() if key[1] != "activation"}
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            values, saved = dtypes_of_program(self.program_of(folder, precision, "autograd", "gated" in roles))
        self.assertEqual(dict(values), wanted)
        both = saved.keys() & theirs.saved.keys()
        self.assertEqual({k: saved[k] for k in both}, {k: theirs.saved[k] for k in both})
        layers = range(config.num_hidden_layers)
        self.assertLessEqual({(str(i), "up") for i in layers}, both)  # what the activation reads
        self.assertLessEqual({(str(i), "softmax") for i in layers}, saved.keys())

    def test_values_have_the_dtypes_of_a_running_step(self):
        for kind in MODELS if ALL else KINDS:
            for low, precision in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
                if ALL or precision == "bf16" or kind in ("gpt2", "qwen2"):
                    with self.subTest(kind, precision=precision):
                        self.check(kind, low, precision)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--all", action="store_true", help="every model of the fixtures in both dtypes")
    options, rest = parser.parse_known_args()
    PROGRAM, ALL = options.program.resolve(), options.all
    unittest.main(argv=[sys.argv[0], *rest])
