#!/usr/bin/env python3
"""Correctness of packed rows, 4-bit weights, offloaded activations and predicted bytes, through the program alone.

    tools/soak/fine_tuning_checks.py --program build-cuda/tracestep --device cuda [--other cpu] [--seconds 60] [--jobs 6]

Prints a line a check: what was compared, the largest difference, what it may be. Ends with 1 when one does not hold. Needs
torch. Bits with and without --offload are compared without compile passes: on a GPU the kernels that `fuse` makes follow what
is read, and rows may be added up in another order (docs/determinism.md)."""
import argparse
import concurrent.futures
import json
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file

MODEL = ["--d-model", "256", "--d-ff", "512", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--vocab", "257"]
LENGTHS = [150, 41, 300, 85, 64, 200, 17, 167]  # bytes; 1,024 places in all


class Checks:
    def __init__(self, options):
        self.o, self.failed, self.lines = options, 0, []
        self.end = time.monotonic() + options.seconds

    def say(self, holds, text):
        self.failed += not holds
        line = ("ok    " if holds else "WRONG ") + text
        self.lines.append(line)
        print(line, flush=True)

    def run(self, *words, cwd=None):
        left = max(5.0, self.end - time.monotonic())
        done = subprocess.run([str(self.o.program), *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=left)
        if done.returncode:
            raise RuntimeError(shlex.join(map(str, words)) + f": status {done.returncode}: {done.stderr[-400:]}")
        return done.stdout

    def part(self, name, work):
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                work(pathlib.Path(folder))
        except Exception as problem:  # the next part still counts
            self.say(False, f"{name}: {type(problem).__name__}: {str(problem)[:500]}")
        print(f"      ({name}: {time.monotonic() - begin:.1f} s)", flush=True)

    # Packed rows beside each document alone.
    def packed(self, folder):
        dice = random.Random(3)
        texts = ["".join(dice.choice("abcdefgh ,.") for _ in range(n)) for n in LENGTHS]
        with open(folder / "all.jsonl", "w") as out:
            for text in texts:
                out.write(json.dumps({"text": text}) + "\n")
        for i, text in enumerate(texts):
            (folder / f"d{i}.jsonl").write_text(json.dumps({"text": text}) + "\n")
        self.run("train", "--data", "all.jsonl", "--tokenizer", "bytes", "--pack", "--batch", 1, "--context", sum(LENGTHS),
                 *MODEL, "--steps", 1, "--lr", "1e-3", "--save", "w.safetensors", "--device", self.o.device, cwd=folder)
        for precision, most_loss, most in (("fp32", 1e-6, 5e-6), ("bf16", 2e-3, 2e-2)):
            def of(data, context, name):
                out = self.run("eval", "--data", data, "--tokenizer", "bytes", "--pack", "--batch", 1, "--context", context,
                               "--init", "w.safetensors", "--heads", 4, "--precision", precision, "--attention", "flash",
                               "--batches", 1, "--gradients", name, "--format", "json", "--device", self.o.device, cwd=folder)
                return json.loads(out)["rows"][0]["loss"], load_file(folder / name)
            with concurrent.futures.ThreadPoolExecutor(self.o.jobs) as pool:
                all_of = pool.submit(of, "all.jsonl", sum(LENGTHS), f"g.{precision}")
                alone = list(pool.map(lambda i: of(f"d{i}.jsonl", LENGTHS[i], f"g{i}.{precision}"), range(len(LENGTHS))))
            loss, gradients = all_of.result()
            share = [n / sum(LENGTHS) for n in LENGTHS]
            wanted = sum(s * l for s, (l, _) in zip(share, alone))
            apart = abs(loss - wanted) / wanted
            worst = 0.0
            for name, x in gradients.items():
                sum_of = sum(s * g[name].double() for s, (_, g) in zip(share, alone))
                terms = max((s * g[name].double()).abs().max().item() for s, (_, g) in zip(share, alone))
                worst = max(worst, (x.double() - sum_of).abs().max().item() / max(terms, 1e-30))
            self.say(apart <= most_loss and worst <= most, f"packed beside {len(LENGTHS)} documents alone, {precision}, flash: loss "
                     f"{apart:.1e} (≤ {most_loss:.0e}), {len(gradients)} gradients {worst:.1e} of the largest term (≤ {most:.0e})")

    # A step over 4-bit weights here and on the CPU.
    def nf4(self, folder):
        (folder / "t.txt").write_text("".join(random.Random(5).choices("abcdefgh ,.", k=20000)))
        for precision, most in (("fp32", 5e-6), ("bf16", 5e-3)):
            def losses(device, more=(), name=None):
                name = name or device
                self.run("train", "--text", "t.txt", "--tokenizer", "bytes", "--batch", 2, "--context", 96, *MODEL, "--steps", 6,
                         "--lr", "1e-2", "--eps", "1e-3", "--lora", "r=8,alpha=16,targets=all,base=nf4", "--precision", precision, "--save",
                         f"{name}.{precision}", "--log", f"{name}.{precision}.log", "--order", "sequential", "--device", device,
                         *more, cwd=folder)
                lines = [json.loads(x) for x in (folder / f"{name}.{precision}.log").read_text().splitlines()]
                return [x["loss"] for x in lines if "loss" in x]
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                runs = [pool.submit(losses, self.o.device), pool.submit(losses, self.o.other, (), "other"),
                        pool.submit(losses, self.o.device, ("--executor", "eager"), "eager")]
                here, there, eager = (r.result() for r in runs)
            for what, seen in ((f"on {self.o.device}, by default", here), ("eager", eager)):
                worst = max(abs(a - b) / b for a, b in zip(seen, there))
                self.say(len(seen) == 6 and worst <= most, f"6 steps over nf4, {precision}, {what}, beside {self.o.other}: losses "
                         f"{worst:.1e} (≤ {most:.0e})")
            a, b = load_file(folder / f"{self.o.device}.{precision}"), load_file(folder / f"other.{precision}")
            codes = [n for n in a if n.endswith((".nf4", ".codes")) or a[n].dtype == torch.uint8]
            equal = bool(codes) and all(torch.equal(a[n], b[n]) for n in codes)
            self.say(equal, f"codes and magnitudes of {len(codes)} tensors are the same bits as {self.o.other}'s")

    # What goes through the host's memory comes back as it was.
    def offload(self, folder):
        (folder / "t.txt").write_text("".join(random.Random(7).choices("abcdefgh ,.", k=60000)))
        common = ["train", "--text", "t.txt", "--tokenizer", "bytes", "--batch", 2, "--context", 512,
                  *["6" if a == "--layers" else w for a, w in zip(["", *MODEL], MODEL)],
                  "--steps", 4, "--lr", "1e-3", "--precision", "bf16", "--attention", "flash", "--lora", "r=8,targets=all,base=nf4",
                  "--device", self.o.device, "--order", "sequential"]
        jobs = {}
        with concurrent.futures.ThreadPoolExecutor(self.o.jobs) as pool:
            for executor in ("eager", "arena", "compiled"):
                for recompute in ("none", "blocks"):
                    for offload in ("none", "activations", "optimizer+activations"):
                        name = f"{executor}.{recompute}.{offload}"
                        jobs[name] = pool.submit(self.run, *common, "--executor", executor, "--recompute", recompute, "--offload",
                                                 offload, "--save", name, "--overwrite", *(["--compile-passes", "none"] if executor != "eager" else []), cwd=folder)
        for name, job in jobs.items():
            if name.endswith(".none"):
                continue
            plain = name.rpartition(".")[0] + ".none"
            try:
                job.result(), jobs[plain].result()
                a, b = load_file(folder / name), load_file(folder / plain)
                equal = a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)
                self.say(equal, f"--offload: {name}: {len(a)} tensors after 4 steps have the bits of a run without")
            except RuntimeError as problem:
                self.say(False, f"--offload: {name}: {str(problem)[-300:]}")

    # Predicted and measured bytes of a dozen combinations.
    def bytes(self, folder):
        base = ["--model", "llama-3.2-1b"] if self.o.device != "cpu" else [*MODEL]
        size = ["--batch", 1, "--context", 1024] if self.o.device != "cpu" else ["--batch", 1, "--context", 128]
        lora, nf4 = "r=16,alpha=32,targets=all", "r=16,alpha=32,targets=all,base=nf4"
        combos = ["--lora L", "--lora N", "--lora L --pack", "--lora N --pack --recompute blocks", "--lora N --recompute nested",
                  "--lora N --ffn-chunks 4", "--lora N --offload activations --recompute blocks --ffn-chunks 4 --loss-chunks auto",
                  "--lora N --offload optimizer+activations --recompute blocks --updates early", "--lora L --offload activations --pack",
                  "--lora N --executor compiled", "--lora L --executor compiled --pack", "--lora N --executor compiled --pack "
                  "--recompute nested --loss-chunks auto", "--lora N --executor compiled --recompute blocks --offload activations",
                  "--lora L --executor compiled --recompute blocks --offload activations --ffn-chunks 2 --pack"]
        def one(combo):
            words = [{"L": lora, "N": nf4}.get(w, w) for w in combo.split()]
            out = self.run("memory", "--mode", "step", "--precision", "bf16", "--attention", "flash", "--format", "json", "--device",
                           self.o.device, *base, *size, *words)
            row = json.loads(out)["rows"][0]
            return [row.get(k) for k in ("predicted_peak_bytes", "measured_peak_bytes", "host_bytes", "measured_host_bytes")]
        with concurrent.futures.ThreadPoolExecutor(self.o.jobs) as pool:
            runs = [(combo, pool.submit(one, combo)) for combo in combos]
            for combo, run in runs:
                try:
                    p, m, hp, hm = run.result()
                    self.say(bool(m) and p == m and hp == hm, f"bytes {combo}: predicted {p}, measured {m}; host {hp}, {hm}")
                except Exception as problem:
                    self.say(False, f"bytes {combo}: {str(problem)[-300:]}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", type=pathlib.Path, default="build-cuda/tracestep")
    options.add_argument("--device", default="cuda")
    options.add_argument("--other", default="cpu")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--jobs", type=int, default=6)
    options.add_argument("--parts", default="packed,nf4,offload,bytes")
    options = options.parse_args()
    options.program = options.program.resolve()
    checks = Checks(options)
    for name in options.parts.split(","):
        checks.part(name, getattr(checks, name))
    print(f"{len(checks.lines) - checks.failed} of {len(checks.lines)} checks hold", flush=True)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
