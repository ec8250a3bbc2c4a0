#!/usr/bin/env python3
"""Adapters beside PEFT, on small random models of five families: logits, loss, the gradients of A and B, ten steps of
AdamW, adapters written by either and read by the other, and the merged model; parts trained whole (modules_to_save)
and a resized vocabulary.

    tests/python/adapters_test.py [--program build/tracestep]

Needs torch, transformers and peft (tools/python_env); ends with status 77, which ctest calls skipped, where they are
missing.
"""
import argparse
import array
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import peft
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with it")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden"))
from family_fixtures import MODELS, model_of  # noqa: E402

PROGRAM = ROOT / "build/tracestep"
VOCAB, BATCH, CONTEXT, STEPS = 48, 2, 12, 10
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# By family: the targets, and more of the configuration.
CASES = {"llama3": (["q_proj", "v_proj"], {}), "mistral": (ALL, {}), "qwen2": (ALL, dict(use_rslora=True)),
         "gemma2": (["o_proj", "gate_proj", "down_proj"], {}), "qwen3": (["q_proj", "k_proj", "o_proj", "up_proj"], {})}
OURS = {"self_attn.q_proj": "attn.q_proj", "self_attn.k_proj": "attn.k_proj", "self_attn.v_proj": "attn.v_proj",
        "self_attn.o_proj": "attn.output_proj", "mlp.gate_proj": "ffn.w1", "mlp.up_proj": "ffn.w3",
        "mlp.down_proj": "ffn.w2"}
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def our_name(theirs):
    """"layers.0.attn.q_proj.lora_A.weight" for "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"."""
    name = theirs.removeprefix("base_model.model.").removeprefix("model.").replace(".default", "")
    name = name.replace(".modules_to_save", "").replace("embed_tokens", "token_embeddings")
    for part, ours in OURS.items():
        name = name.replace(part, ours)
    return name


def our_rows(name, value, width):
    """Rows of B of a rotated projection: the pairs that a rotation mixes are neighbours here, half a head apart there."""
    if "lora_B" not in name or not (".q_proj" in name or ".k_proj" in name):
        return value
    half = width // 2
    rows = [block * width + i % 2 * half + i // 2 for block in range(len(value) // width) for i in range(width)]
    return value[rows]


class AdaptersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tokens = torch.randint(0, VOCAB, (BATCH * CONTEXT * STEPS + 1,))
        (self.folder / "tokens.bin").write_bytes(array.array("H", self.tokens.tolist()).tobytes())

    def run_program(self, *words, status=0):
        done = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, f"{words}: {done.stderr}")
        return done

    def on_tokens(self, command, *words, **more):
        return self.run_program(command, "--tokens", "tokens.bin", "--token-dtype", "uint16", "--batch", BATCH,
                                "--context", CONTEXT, *words, **more)

    def base(self, kind, name):
        kind, fields = MODELS[kind]
        model_of(kind, fields).save_pretrained(self.folder / name)
        return self.load(name)

    def load(self, name):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder / name, dtype=torch.float32,
                                                                 attn_implementation="eager").eval()

    def adapted(self, kind, vocab=None, **more):
        """A base in the folder "base", and adapters whose B is not zero in "there"; `vocab`: of the base, resized."""
        targets, fields = CASES[kind]
        config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets, **fields | more)
        base = self.base(kind, "base")
        if vocab:
            base.resize_token_embeddings(vocab)
        model = peft.get_peft_model(base, config).eval()
        with torch.no_grad():
            for name, x in model.named_parameters():
                if "lora_B" in name:
                    x.normal_(0, 0.3)
        model.save_pretrained(self.folder / "there")
        return model

    def batch(self, step):
        begin = step * BATCH * CONTEXT
        cut = lambda first: self.tokens[first:first + BATCH * CONTEXT].reshape(BATCH, CONTEXT)
        return cut(begin), cut(begin + 1)

    def loss_of(self, model, step):
        tokens, targets = self.batch(step)
        logits = model(tokens, use_cache=False).logits
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def expect_close(self, ours, theirs, most, what):
        error = (ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30)
        self.assertLess(error.item(), most, what)

    def logits_here(self, *weights):
        self.on_tokens("eval", "--batches", 1, "--logits", "logits.safetensors", *weights)
        return load_file(self.folder / "logits.safetensors")["logits"]

    def trained(self, model):
        return {name: x for name, x in model.named_parameters() if x.requires_grad}

    def width_of(self, model):
        config = model.config
        return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def test_logits_loss_and_gradients_are_those_of_peft(self):
        for kind in CASES:
            with self.subTest(kind):
                model = self.adapted(kind)
                logits, loss = self.loss_of(model, 0)
                loss.backward()
                done = self.on_tokens("eval", "--model", "base", "--lora", "from=there", "--batches", 1, "--format",
                                      "json", "--logits", "l.safetensors", "--gradients", "g.safetensors")
                self.assertAlmostEqual(json.loads(done.stdout)["rows"][0]["loss"], loss.item(), delta=2e-6 * loss.item())
                self.expect_close(load_file(self.folder / "l.safetensors")["logits"], logits, 2e-5, kind)
                ours = load_file(self.folder / "g.safetensors")
                theirs = self.trained(model)
                self.assertEqual(sorted(ours), sorted(map(our_name, theirs)))
                for name, x in theirs.items():
                    wanted = our_rows(name, x.grad, self.width_of(model))
                    self.expect_close(ours[our_name(name)], wanted, 2e-4, f"{kind}: {name}")

    def test_ten_steps_are_those_of_peft_and_both_ways_lead_back(self):
        for kind in CASES:
            with self.subTest(kind):
                model = self.adapted(kind)
                optimizer = torch.optim.AdamW(self.trained(model).values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-12,
                                              weight_decay=0.1)
                losses = []
                for step in range(STEPS):
                    optimizer.zero_grad()
                    loss = self.loss_of(model, step)[1]
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                self.on_tokens("train", "--model", "base", "--lora", "from=there", "--steps", STEPS, "--lr", "1e-3",
                               "--beta2", 0.95, "--eps", "1e-12", "--weight-decay", 0.1, "--checkpoint", kind,
                               "--log", kind + ".log", "--save", kind + ".safetensors", "--order", "sequential")
                lines = [json.loads(line) for line in (self.folder / (kind + ".log")).read_text().splitlines()]
                for ours, theirs in zip([line["loss"] for line in lines if "loss" in line], losses, strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)
                for weights, out in ((kind, kind + ".new"), (kind + ".safetensors", kind + ".new2")):
                    self.run_program("export", weights, out)
                    back = peft.PeftModel.from_pretrained(self.load("base"), self.folder / out).eval()
                    here, there = (peft.get_peft_model_state_dict(m) for m in (back, model))
                    self.assertEqual(sorted(here), sorted(there))
                    for name, x in there.items():
                        self.expect_close(here[name], x.detach(), 1e-3, f"{kind}: {name}")
                with torch.no_grad():
                    wanted = self.loss_of(back, 0)[0]
                self.expect_close(self.logits_here("--model", "base", "--lora", f"from={kind}.new"), wanted, 2e-5, kind)
                self.run_program("export", "--merge", kind, kind + ".merged")
                with torch.no_grad():
                    self.expect_close(self.loss_of(self.load(kind + ".merged"), 0)[0], wanted, 2e-5, kind)
                self.expect_close(self.logits_here("--model", kind + ".merged"), wanted, 2e-5, kind)

    # By family, the parts that PEFT saves whole beside adapters; the head of the first is its embedding.
    WHOLE = {"llama3": dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True),
             "mistral": dict(modules_to_save=["lm_head", "embed_tokens"])}

    def expect_logits_of(self, model, what, *words):
        with torch.no_grad():
            wanted = self.loss_of(model, 0)[0]
        self.expect_close(self.logits_here("--model", "base", *words), wanted, 2e-5, what)

    def test_parts_trained_whole_are_those_of_modules_to_save(self):
        for kind, parts in self.WHOLE.items():
            with self.subTest(kind):
                model = self.adapted(kind, **parts)
                self.expect_logits_of(model, kind, "--lora", "from=there")
                losses, optimizer = [], torch.optim.AdamW(self.trained(model).values(), lr=1e-3, betas=(0.9, 0.95),
                                                          eps=1e-12, weight_decay=0.1)
                for step in range(STEPS):
                    optimizer.zero_grad()
                    loss = self.loss_of(model, step)[1]
                    loss.backward()
                    if step == 0:
                        self.on_tokens("eval", "--model", "base", "--lora", "from=there", "--batches", 1, "--gradients",
                                       "g.safetensors")
                        ours = load_file(self.folder / "g.safetensors")
                        self.assertEqual(sorted(ours), sorted(map(our_name, self.trained(model))))
                        for name, x in self.trained(model).items():
                            wanted = our_rows(name, x.grad, self.width_of(model))
                            self.expect_close(ours[our_name(name)], wanted, 2e-4, f"{kind}: {name}")
                    optimizer.step()
                    losses.append(loss.item())
                self.on_tokens("train", "--model", "base", "--lora", "from=there", "--steps", STEPS, "--lr", "1e-3",
                               "--beta2", 0.95, "--eps", "1e-12", "--weight-decay", 0.1, "--checkpoint", kind,
                               "--log", kind + ".log", "--order", "sequential")
                lines = [json.loads(line) for line in (self.folder / (kind + ".log")).read_text().splitlines()]
                for ours, theirs in zip([line["loss"] for line in lines if "loss" in line], losses, strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)
                self.run_program("export", kind, kind + ".new")
                back = peft.PeftModel.from_pretrained(self.load("base"), self.folder / (kind + ".new")).eval()
                here, there = (peft.get_peft_model_state_dict(m) for m in (back, model))
                self.assertEqual(sorted(here), sorted(there))
                for name, x in there.items():
                    self.expect_close(here[name], x.detach(), 1e-3, f"{kind}: {name}")

    def test_a_resized_vocabulary_is_that_of_transformers(self):
        vocab = VOCAB + 5
        for kind, parts in self.WHOLE.items():
            with self.subTest(kind):
                base = self.base(kind, "base")
                base.resize_token_embeddings(vocab)  # new rows: the mean, and noise of 1e-9 of the covariance
                with torch.no_grad():
                    for module in {base.get_input_embeddings(), base.get_output_embeddings()}:
                        table, rows = module.weight, module.weight[:VOCAB]
                        self.expect_close(table[VOCAB:], rows.mean(0).expand(5, -1), 1e-2, "new rows")
                        table[VOCAB:] = rows.mean(0)
                self.expect_logits_of(base, kind, "--vocab", vocab)
                # Parts trained whole, and what PEFT saves because the base has another size.
                for fields in (parts, {}):
                    model = self.adapted(kind, vocab, **fields)
                    self.expect_logits_of(model, kind, "--lora", "from=there", "--vocab", vocab)
                    done = self.on_tokens("eval", "--model", "base", "--lora", "from=there", status=2)
                    self.assertIn(f"--vocab {vocab}", done.stderr)
                    out = f"{kind}.{len(fields)}"
                    self.on_tokens("train", "--model", "base", "--lora", "from=there", "--vocab", vocab, "--steps", 3,
                                   "--lr", "1e-3", "--checkpoint", out)
                    self.run_program("export", out, out + ".new")
                    fresh = self.load("base")
                    fresh.resize_token_embeddings(vocab)
                    back = peft.PeftModel.from_pretrained(fresh, self.folder / (out + ".new")).eval()
                    with torch.no_grad():
                        wanted = self.loss_of(back, 0)[0]
                    self.expect_close(self.logits_here("--init", out), wanted, 2e-5, out)
                    self.run_program("export", "--merge", out, out + ".merged")
                    whole = self.load(out + ".merged")
                    self.assertEqual(whole.config.vocab_size, vocab)
                    with torch.no_grad():
                        self.expect_close(self.loss_of(whole, 0)[0], wanted, 2e-5, out)

    def test_a_merged_base_of_four_bits_has_the_logits_it_was_trained_with(self):
        self.base("mistral", "base")
        self.on_tokens("train", "--model", "base", "--lora", "r=3,targets=q+down,base=nf4", "--steps", 4, "--lr", "1e-2",
                       "--checkpoint", "coded")
        self.run_program("export", "--merge", "coded", "merged")
        with torch.no_grad():
            logits = self.loss_of(self.load("merged"), 0)[0]
        self.expect_close(self.logits_here("--init", "coded"), logits, 2e-5, "4 bits, merged")

    def test_other_adapters_are_refused_by_name(self):
        self.adapted("llama3")
        run = lambda *words: self.on_tokens("eval", "--model", "base", *words, status=2).stderr
        self.assertIn('no product of the model has a weight called "query"', run("--lora", "targets=query"))
        config = self.folder / "there/adapter_config.json"
        good = json.loads(config.read_text())
        for field, value in (("use_dora", True), ("rank_pattern", {"q_proj": 5}), ("peft_type", "IA3"),
                             ("target_modules", None), ("modules_to_save", ["score"])):
            config.write_text(json.dumps(good | {field: value}))
            done = self.on_tokens("eval", "--model", "base", "--lora", "from=there", status=3)
            self.assertIn(field, done.stderr)
        config.write_text(json.dumps(good | dict(modules_to_save=["lm_head"])))  # the base's head is its embedding
        self.assertIn('no part called "lm_head"', run("--lora", "from=there"))
        self.adapted("llama3", modules_to_save=["embed_tokens"])
        done = self.on_tokens("eval", "--model", "base", "--lora", "from=there", status=3)
        self.assertIn("ensure_weight_tying", done.stderr)
        config.write_text(json.dumps(good | dict(r=5)))
        done = self.on_tokens("eval", "--model", "base", "--lora", "from=there", status=3)
        self.assertIn("adapters of another base", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    options, rest = parser.parse_known_args()
    PROGRAM = options.program.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
