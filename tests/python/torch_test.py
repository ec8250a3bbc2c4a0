#!/usr/bin/env python3
"""tracestep.attention as an op of PyTorch: its values, gradients, fake tensors and compilation; and models of
transformers, read into the program.

    tests/python/torch_test.py [--device cuda --program build-cuda/tracestep]

Needs torch (tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import argparse
import importlib.util
import itertools
import pathlib
import sys
import tempfile
import unittest

try:
    import torch
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import tracestep  # noqa: E402

DEVICE = "cpu"
# batch, queries, keys, heads, heads of keys, width, causal
CASES = [(2, 7, 7, 3, 3, 16, False), (2, 7, 7, 3, 3, 16, True), (1, 33, 65, 4, 2, 64, True),
         (1, 65, 33, 4, 1, 80, True), (1, 128, 128, 2, 2, 128, True), (2, 5, 9, 2, 2, 1, False)]
# Bounds hold for the largest of a tensor, by dtype, against float64 of the same values.
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def drawn(case, dtype, requires_grad=True):
    batch, queries, keys, heads, kv_heads, width, _ = case
    torch.manual_seed(7)
    shapes = ((batch, queries, heads, width), (batch, keys, kv_heads, width), (batch, keys, kv_heads, width))
    return [torch.randn(s).to(device=DEVICE, dtype=dtype).requires_grad_(requires_grad) for s in shapes]


def plain(q, k, v, scale, causal, window=0, cap=0.0):
    """The formula in float64, through PyTorch's own gradients."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    ones, ahead = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device), k.shape[2] - q.shape[2]
    hidden = ones.triu(ahead + 1)
    if window:
        hidden = hidden | ones.tril(ahead - window)
    if causal:
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = torch.nan_to_num(torch.softmax(scores, -1))  # a query that sees no key
    return (weights @ v).transpose(1, 2)


def dtypes():
    return [dtype for dtype in BOUNDS if DEVICE == "cpu" or dtype != torch.float64]


class AttentionTest(unittest.TestCase):
    def near(self, found, wanted, dtype, what):
        error = (found.double() - wanted).abs().max().item() if found.numel() else 0.0
        largest = max(wanted.abs().max().item(), 1.0) if found.numel() else 1.0
        self.assertLessEqual(error, BOUNDS[dtype] * largest, what)

    def test_values_and_gradients_are_those_of_the_formula_in_float64(self):
        for case, dtype in itertools.product(CASES, dtypes()):
            ours, exact = drawn(case, dtype), [x.detach().double().requires_grad_() for x in drawn(case, dtype)]
            o = tracestep.attention(*ours, causal=case[-1], softmax_scale=0.3)
            wanted = plain(*exact, 0.3, case[-1])
            self.assertEqual((o.dtype, o.shape), (dtype, ours[0].shape))
            self.near(o, wanted, dtype, f"o {case} {dtype}")
            d_o = torch.randn_like(o)
            o.backward(d_o)
            wanted.backward(d_o.double())
            for name, x, y in zip("qkv", ours, exact):
                self.near(x.grad, y.grad, dtype, f"d{name} {case} {dtype}")

    def test_windows_and_caps_are_those_of_the_formula(self):
        for case, dtype, (window, cap) in itertools.product(CASES[1:5:2], dtypes(), ((3, 0.0), (0, 1.5), (20, 0.5))):
            causal = (*case[:-1], True)
            ours = drawn(causal, dtype)
            exact = [x.detach().double().requires_grad_() for x in ours]
            o = tracestep.attention(*ours, causal=True, softmax_scale=0.3,
                                    window_size=(window - 1, 0) if window else (-1, -1), softcap=cap)
            wanted = plain(*exact, 0.3, True, window, cap)
            self.near(o, wanted, dtype, f"o {case} {dtype} {window} {cap}")
            d_o = torch.randn_like(o)
            o.backward(d_o)
            wanted.backward(d_o.double())
            for name, x, y in zip("qkv", ours, exact):
                self.near(x.grad, y.grad, dtype, f"d{name} {case} {dtype} {window} {cap}")

    def test_the_usual_scale_is_one_over_the_root_of_the_width(self):
        q, k, v = drawn(CASES[1], torch.float32, False)
        self.assertTrue(torch.equal(tracestep.attention(q, k, v, causal=True),
                                    tracestep.attention(q, k, v, 0.25, True)))

    def test_views_are_read_by_their_strides(self):
        q, k, v = drawn(CASES[1], torch.float32, False)
        turned = [x.transpose(1, 3).contiguous().transpose(1, 3) for x in (q, k, v)]
        packed = torch.stack((q, k, v), dim=2).unbind(2)
        wanted = tracestep.attention(q, k, v)
        for views in (turned, packed):
            self.assertFalse(views[0].is_contiguous())
            self.assertTrue(torch.equal(tracestep.attention(*views), wanted))

    def test_opcheck_accepts_both_ops(self):
        for case, dtype in itertools.product(CASES[:2], dtypes()):
            q, k, v = drawn(case, dtype)
            torch.library.opcheck(torch.ops.tracestep.attention, (q, k, v, case[-1], 0.3, True, 0, 0.0))
            inputs = [x.detach() for x in (q, k, v)]
            o, lse = torch.ops.tracestep.attention(*inputs, case[-1], 0.3, True, 0, 0.0)
            torch.library.opcheck(torch.ops.tracestep.attention_backward,
                                  (torch.randn_like(o), *inputs, o, lse, case[-1], 0.3, True, 0, 0.0))

    def test_gradients_pass_a_check_by_differences(self):
        if DEVICE != "cpu":
            self.skipTest("needs float64")
        inputs = drawn((1, 4, 6, 4, 2, 3, True), torch.float64)
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, k, v: tracestep.attention(q, k, v, causal=True), inputs))

    def test_a_compiled_function_gives_the_same_bits_in_one_graph(self):
        def step(q, k, v):
            return tracestep.attention(q, k, v, causal=True).sum()

        torch.compiler.reset()
        compiled = torch.compile(step, fullgraph=True, backend="inductor" if DEVICE == "cuda" else "aot_eager")
        eager, ours = drawn(CASES[4], torch.float32), drawn(CASES[4], torch.float32)
        loss, wanted = compiled(*ours), step(*eager)
        self.assertTrue(torch.allclose(loss, wanted, rtol=1e-6))
        loss.backward()
        wanted.backward()
        for x, y in zip(ours, eager):
            self.assertTrue(torch.equal(x.grad, y.grad) if DEVICE == "cpu" else torch.allclose(x.grad, y.grad))

    def test_fake_tensors_have_shapes_without_memory(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            q = torch.empty(2, 1 << 20, 8, 64, dtype=torch.bfloat16, device="meta")
            self.assertEqual(tracestep.attention(q, q, q, causal=True).shape, q.shape)

    def test_mistakes_are_said_in_words(self):
        q, k, v = drawn(CASES[0], torch.float32, False)
        for inputs, words in (((q[0], k, v), "batch, tokens, heads, width"), ((q, k[:, :3], v), "do not fit"),
                              ((q[:, :, :2], k, v), "no multiple"), ((q.half(), k, v), "one dtype"),
                              ((q.int(), k.int(), v.int()), "none of float32"),
                              ([torch.zeros(1, 2, 1, 257, device=DEVICE)] * 3, "257 wide")):
            with self.assertRaisesRegex(ValueError, words):
                tracestep.attention(*inputs)
        for options, words in (({"window_size": (4, 0)}, "with causal=False"), ({"softcap": -1.0}, "softcap of -1"),
                               ({"window_size": (4, 2), "causal": True}, "before a query's own")):
            with self.assertRaisesRegex(ValueError, words):
                tracestep.attention(q, k, v, **options)


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class ModelTest(unittest.TestCase):
    def model(self, kind, **more):
        import transformers

        torch.manual_seed(3)
        sizes = dict(vocab_size=48, pad_token_id=None)
        if kind != "GPT2Config":
            sizes |= dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                          max_position_embeddings=64)
        config = getattr(transformers, kind)(**sizes | more, attn_implementation="eager")
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)

    def test_the_loss_is_that_of_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = torch.randint(0, 48, (25,), generator=torch.Generator().manual_seed(1))
            file = pathlib.Path(folder) / "tokens.bin"
            file.write_bytes(b"".join(int(t).to_bytes(2, "little") for t in tokens))
            stream = {"tokens": file, "token_dtype": "uint16", "context": 12, "batch": 2, "progress": False}
            for kind, more in (("LlamaConfig", {"num_key_value_heads": 2}), ("Qwen3Config", {"head_dim": 10, "num_key_value_heads": 2}),
                               ("GPTNeoXConfig", {"hidden_size": 32}), ("GPT2Config", {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32}),
                               ("Gemma2Config", {"head_dim": 8, "num_key_value_heads": 2})):
                model = self.model(kind, **more)
                logits = model.eval()(tokens[:24].reshape(2, 12)).logits
                wanted = torch.nn.functional.cross_entropy(logits.reshape(-1, 48), tokens[1:]).item()
                read = tracestep.from_module(model)
                found = tracestep.eval(model=read.config, init=read.weights, **stream)
                self.assertAlmostEqual(found.table["loss"][0], wanted, delta=2e-6 * wanted, msg=kind)
            trained = tracestep.train(model=read.config, init=read.weights, steps=2, order="sequential",
                                      **stream)
            self.assertAlmostEqual(trained["steps"]["loss"][0], wanted, delta=2e-6 * wanted)

    def test_another_kind_of_model_is_refused_and_files_stay_where_they_are_asked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            model = self.model("LlamaConfig")
            read = tracestep.from_module(model, folder)
            self.assertEqual(sorted(path.name for path in pathlib.Path(folder).iterdir()),
                             ["config.json", "model.safetensors"])
            self.assertEqual(read.config.parent, pathlib.Path(folder))
            with self.assertRaisesRegex(tracestep.Error, "opt"):
                tracestep.from_module(self.model("OPTConfig", ffn_dim=40, word_embed_proj_dim=24))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--program", type=pathlib.Path, help="of the build whose library is taken")
    options, rest = parser.parse_known_args()
    DEVICE = options.device
    if options.program:
        tracestep.use(options.program)
    unittest.main(argv=[sys.argv[0], *rest])
