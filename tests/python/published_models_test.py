#!/usr/bin/env python3
"""Models of every family as folders: made by transformers, trained here, written back, loaded by transformers.

    tests/python/published_models_test.py [--program build/tracestep]

Logits of both are the same to 2e-5 of the largest, in bf16 they are as far from those in float32 as transformers'
own, and 32 tokens sampled greedily are the same, with and without its cache. Needs torch and transformers (tools/python_env); ends with status 77, which ctest calls
skipped, where they are missing.
"""
import argparse
import array
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import tokenizers
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
from family_fixtures import MODELS, model_of, text_parameters  # noqa: E402

PROGRAM = ROOT / "build/tracestep"
VOCAB, BATCH, CONTEXT, PROMPT, NEW = 48, 2, 12, [5, 17, 3, 40], 32
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class PublishedModelsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tokens = torch.randint(0, VOCAB, (1000,))
        (self.folder / "tokens.bin").write_bytes(array.array("H", self.tokens.tolist()).tobytes())

    def run_program(self, *words):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done

    def on_tokens(self, command, *words):
        return self.run_program(command, "--tokens", "tokens.bin", "--token-dtype", "uint16", "--batch", BATCH,
                                "--context", CONTEXT, *words)

    def load(self, name):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder / name, dtype=torch.float32,
                                                                 attn_implementation="eager").eval()

    def logits_here(self, *weights):
        file = self.folder / "logits.safetensors"
        file.unlink(missing_ok=True)
        self.on_tokens("eval", "--batches", 1, "--logits", file, *weights)
        return load_file(file)["logits"]

    def expect_same_logits(self, model, *weights):
        with torch.no_grad():
            wanted = model(self.tokens[:BATCH * CONTEXT].reshape(BATCH, CONTEXT), use_cache=False).logits
        error = (self.logits_here(*weights) - wanted).abs().max() / wanted.abs().max()
        self.assertLess(error.item(), 2e-5, weights)

    def expect_rounding_of_transformers(self, name):
        batch = self.tokens[:BATCH * CONTEXT].reshape(BATCH, CONTEXT)
        with torch.no_grad():
            exact = self.load(name)(batch, use_cache=False).logits
            rounded = self.load(name).bfloat16()(batch, use_cache=False).logits
        theirs = (rounded.float() - exact).pow(2).mean().sqrt().item()
        ours = (self.logits_here("--model", name, "--precision", "bf16") - exact).pow(2).mean().sqrt().item()
        self.assertLess(ours, 1.1 * theirs)

    def expect_same_greedy_tokens(self, model, *weights):
        new = min(NEW, getattr(model.config, "n_positions", 1000) - len(PROMPT))
        short = getattr(model.config, "original_max_position_embeddings", None) or 0
        if short > len(PROMPT):  # there transformers would go on with other factors (docs/models.md)
            new = min(new, short - len(PROMPT))
        done = self.run_program("generate", "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-tokens", new,
                                "--temperature", 0, "--format", "json", *weights)
        here = json.loads(done.stdout)["rows"][0]["tokens"]
        model.generation_config.eos_token_id = None
        for cache in (True, False):
            there = model.generate(torch.tensor([PROMPT]), max_new_tokens=new, do_sample=False, use_cache=cache,
                                   pad_token_id=0)
            self.assertEqual(here, there[0, len(PROMPT):].tolist(), (weights, cache))

    def make(self, kind, name, **more):
        kind, fields = MODELS[kind]
        model = model_of(kind, fields | more)
        model.save_pretrained(self.folder / name)
        (self.folder / name / "tokenizer_config.json").write_text("{}")
        return model

    def test_each_family_is_trained_and_written_back(self):
        for kind in MODELS:
            with self.subTest(kind):
                name = "my-" + kind  # a known model's name would count
                before = self.make(kind, name).eval()
                self.expect_same_logits(before, "--model", name)
                done = self.on_tokens("train", "--model", name, "--steps", 10, "--checkpoint", name + ".run",
                                      "--save", name + ".safetensors")
                self.assertIn(f"weights: those in {name}", done.stderr)
                for weights, out, more in ((name + ".run", name + ".new", ()),
                                           (name + ".safetensors", name + ".bf16", ("--dtype", "bf16"))):
                    self.run_program("export", weights, out, *more)
                    model = self.load(out)
                    self.expect_same_logits(model, "--model", out)
                    self.expect_same_greedy_tokens(model, "--model", out)
                    self.assertEqual(sorted(os.listdir(self.folder / name)), sorted(os.listdir(self.folder / out)))
                self.expect_rounding_of_transformers(name + ".bf16")
                trained = self.load(name + ".new")
                self.expect_same_logits(trained, "--init", name + ".run")
                moved = [(a - b).abs().max().item() for a, b in zip(text_parameters(before).values(), trained.parameters())]
                self.assertGreater(min(moved), 1e-4)  # every tensor has been trained

    def test_a_model_that_began_here_is_loaded_as_a_llama(self):
        sizes = ("--d-model", 32, "--d-ff", 64, "--layers", 2, "--heads", 4, "--vocab", VOCAB)
        for name, more in (("plain", ()), ("grouped", ("--kv-heads", 2, "--tied-head", "on", "--head-width", 6,
                                                       "--rope-scaling", "llama3:8:1:4:16"))):
            self.on_tokens("train", *sizes, *more, "--steps", 3, "--save", name + ".safetensors")
            self.run_program("export", name + ".safetensors", name)
            model = self.load(name)
            self.assertEqual(type(model).__name__, "LlamaForCausalLM")
            self.expect_same_logits(model, "--init", name + ".safetensors")
            self.expect_same_greedy_tokens(model, "--init", name)

    def test_a_text_goes_through_the_tokenizer_of_the_folder(self):
        text = "The train that left at noon, says the clock, is late: it came at 17:45.\n" * 3
        (self.folder / "text.txt").write_text(text)
        for kind, tokenizer in (("llama3", "llama3"), ("gemma2", "gemma"), ("qwen2", "qwen2"), ("phi3", "phi3")):
            file = ROOT / "tests/golden/tokenizers" / (tokenizer + ".json")
            library = tokenizers.Tokenizer.from_file(str(file))
            name = "my-" + kind
            model = self.make(kind, name, vocab_size=library.get_vocab_size() + 7).eval()
            shutil.copy(file, self.folder / name / "tokenizer.json")
            ids = torch.tensor(library.encode(text, add_special_tokens=False).ids)
            with torch.no_grad():
                logits = model(ids[:BATCH * CONTEXT].reshape(BATCH, CONTEXT), use_cache=False).logits
            wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[1:BATCH * CONTEXT + 1]).item()
            done = self.run_program("eval", "--model", name, "--text", "text.txt", "--batches", 1, "--batch", BATCH,
                                    "--context", CONTEXT, "--format", "json")
            self.assertAlmostEqual(json.loads(done.stdout)["rows"][0]["loss"], wanted, delta=2e-6 * wanted, msg=kind)
            prompt = library.encode(text[:40]).ids  # with what its template sets before
            there = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0,
                                   eos_token_id=None)
            done = self.run_program("generate", "--model", name, "--prompt", text[:40], "--max-tokens", 20,
                                    "--temperature", 0, "--format", "json")
            self.assertEqual(json.loads(done.stdout)["rows"][0]["tokens"], there[0, len(prompt):].tolist(), kind)

    def test_shards_of_transformers_are_read(self):
        model = self.make("llama2", "whole").eval()
        model.save_pretrained(self.folder / "shards", max_shard_size="10KB")
        self.assertGreater(len(list((self.folder / "shards").glob("*.safetensors"))), 2)
        self.expect_same_logits(model, "--model", "shards")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    options, rest = parser.parse_known_args()
    PROGRAM = options.program.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
