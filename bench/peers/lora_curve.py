#!/usr/bin/env python3
"""A base trained on one text and adapted to another: the validation losses of LoRA here, of all weights here, and of PEFT's LoRA.

    bench/peers/lora_curve.py [--program build-cuda/tracestep] [--device cuda] [--output bench/results/lora-curve.md] [--tiny]

The base, a Llama of some 30 M parameters over bytes, learns the sources in C++ under src/; then 2,000 steps adapt it to the
pages of docs/. A seed draws the first A of all adapters, and by how much the text is turned, which sets its batches; both sides
begin with the same of each (PEFT's folder is read here). Held out are the last 5 %, read whole every 100 steps. In nine rows of ten
a seed's two curves must lie no further apart than PEFT's seeds, three of which may lie close by chance. Ends with 1 where they do not.

    lora_curve.py --peer SEED --folder F   is PEFT's half, a process a seed."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import numpy

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = dict(r=16, alpha=32)
RATE, FULL_RATE, BETA2, EPS = 1e-3, 1e-4, 0.95, 1e-8
NORMAL = dict(width=512, ff=1408, layers=9, heads=8, context=256, batch=32, base_steps=3000, steps=2000, every=100)
TINY = dict(width=64, ff=96, layers=2, heads=2, context=64, batch=4, base_steps=60, steps=40, every=10)


def tokens_of(root, patterns):
    paths = sorted(p for pattern in patterns for p in root.glob(pattern))
    return numpy.frombuffer("\n".join(p.read_text() for p in paths).encode(), dtype=numpy.uint8).astype(numpy.uint16)


def held_out(path):
    tokens = numpy.fromfile(path, dtype=numpy.uint16)
    return tokens[:-(len(tokens) // 20)], tokens[-(len(tokens) // 20):]


def peer(folder, seed, size, device):
    """PEFT's half: writes its first adapters, waits for nobody, and trains; losses as JSON."""
    import peft
    import torch
    import torch.nn.functional as F
    import transformers

    def causal(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return out.transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("causal_only", causal)
    torch.manual_seed(seed)
    is_cuda = device != "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "base-hf", dtype=torch.bfloat16, attn_implementation="causal_only")
    model = peft.get_peft_model(model, peft.LoraConfig(r=LORA["r"], lora_alpha=LORA["alpha"], target_modules=PROJECTIONS,
                                                       task_type="CAUSAL_LM"))
    model.save_pretrained(folder / f"first-{seed}.part")
    os.rename(folder / f"first-{seed}.part", folder / f"first-{seed}")
    model.to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, BETA2), eps=EPS, weight_decay=0.0, fused=is_cuda, capturable=is_cuda)
    batch, context = size["batch"], size["context"]
    train, valid = (torch.from_numpy(x.astype(numpy.int64)).to(device) for x in held_out(folder / f"text-{seed}.bin"))
    rows = batch * context
    ids, targets = (torch.zeros(batch, context, dtype=torch.int64, device=device) for _ in range(2))

    def loss_of(ids, targets):
        with torch.autocast("cuda" if is_cuda else "cpu", torch.bfloat16, cache_enabled=False):
            logits = model(input_ids=ids, use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def step():
        for p in trained:
            p.grad = None
        loss = loss_of(ids, targets)
        loss.backward()
        optimizer.step()
        return loss

    def set_batch(number):
        at = (torch.arange(rows + 1, device=device) + number * rows) % (len(train) - 1)
        one = train[at]
        ids.copy_(one[:-1].view(batch, context))
        targets.copy_(one[1:].view(batch, context))

    def validation():
        whole = (len(valid) - 1) // context
        x, y = valid[:whole * context].view(whole, context), valid[1:whole * context + 1].view(whole, context)
        with torch.no_grad():
            parts = [(loss_of(x[i:i + batch], y[i:i + batch]).item(), len(x[i:i + batch])) for i in range(0, whole, batch)]
            rest = len(valid) - 1 - whole * context  # in a shorter row
            if rest:
                parts.append((loss_of(valid[None, -1 - rest:-1], valid[None, -rest:]).item(), rest / context))
        return sum(a * n for a, n in parts) / sum(n for _, n in parts)

    graph, losses, seen = None, [], []
    begin = time.monotonic()
    for number in range(size["steps"]):
        set_batch(number)
        if not is_cuda or number < 3:  # the first steps make what a graph may not
            side = torch.cuda.Stream() if is_cuda else None
            if side:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    step()
                torch.cuda.current_stream().wait_stream(side)
            else:
                step()
        else:
            if graph is None:
                graph = recorded(step, trained)
            graph.replay() if graph else step()
        if (number + 1) % size["every"] == 0:
            losses.append(validation())
    (folder / f"peft-{seed}.json").write_text(json.dumps({
        "losses": losses, "seconds": time.monotonic() - begin, "recorded": bool(graph), "trained": sum(p.numel() for p in trained),
        "torch": torch.__version__, "peft": peft.__version__, "transformers": transformers.__version__}))


def recorded(step, trained):
    """The step as a CUDA graph, or False where this pair of torch and transformers cannot be recorded; then steps run one by one."""
    import torch

    for p in trained:
        p.grad = None
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as problem:
        torch.cuda.synchronize()
        print(f"not recorded: {problem}", file=sys.stderr)
        return False
    return graph


class Ours:
    def __init__(self, program, device, folder, size):
        self.program, self.device, self.folder, self.size = program, device, folder, size

    def run(self, *words):
        done = subprocess.run([str(self.program), *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: status {done.returncode}: {done.stderr[-600:]}")
        return done

    def train(self, tokens, steps, name, *more):
        s = self.size
        done = self.run("train", "--tokens", tokens, "--token-dtype", "uint16", "--batch", s["batch"], "--context", s["context"], "--steps",
                        steps, "--precision", "bf16", "--attention", "flash", "--device", self.device, "--checkpoint", name, "--log",
                        f"{name}.log", *more)
        lines = [json.loads(line) for line in (self.folder / f"{name}.log").read_text().splitlines()]
        return done, [line["validation_loss"] for line in lines if line.get("validation_loss") is not None]

    def adapted(self, seed, name, *more):
        s = self.size
        done, losses = self.train(f"text-{seed}.bin", s["steps"], name, "--order", "sequential", "--beta2", BETA2, "--eps", EPS,
                                  "--weight-decay", 0, "--validate-every", s["every"], "--validation-fraction", 0.05, *more)
        said = re.search(r"validation on all of (\d+) tokens", done.stderr)
        wanted = len(held_out(self.folder / f"text-{seed}.bin")[1])
        print(f"{name}: {losses[0]:.4f} … {losses[-1]:.4f}; held out {said and said[1]}, there {wanted}", flush=True)
        return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default="build-cuda/tracestep")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--root", type=pathlib.Path, default=".")
    parser.add_argument("--folder", type=pathlib.Path, default="/tmp/lora-curve")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--peer", type=int, metavar="SEED")
    options = parser.parse_args()
    size, folder = TINY if options.tiny else NORMAL, options.folder.resolve()
    if options.peer is not None:
        return peer(folder, options.peer, size, options.device)
    folder.mkdir(parents=True)
    program, root = options.program.resolve(), options.root.resolve()
    base, text = tokens_of(root, ["src/**/*.cpp", "src/**/*.h", "src/**/*.cu", "src/**/*.cuh"]), tokens_of(root, ["docs/*.md"])
    base.tofile(folder / "base.bin")
    text = text[:len(text) // 20 * 20]
    train, valid = text[:-(len(text) // 20)], text[-(len(text) // 20):]
    for seed in range(options.seeds):
        numpy.concatenate([numpy.roll(train, seed * len(train) // options.seeds), valid]).tofile(folder / f"text-{seed}.bin")
    ours = Ours(program, options.device, folder, size)
    begin = time.monotonic()
    version = ours.run("--version").stdout.strip().splitlines()[-1]
    ours.train("base.bin", size["base_steps"], "base", "--d-model", size["width"], "--d-ff", size["ff"], "--layers", size["layers"],
               "--heads", size["heads"], "--vocab", 256, "--recipe", "gpt", "--lr", "1e-3")
    ours.run("export", "base", "base-hf")
    config = json.loads((folder / "base-hf/config.json").read_text())
    first = json.loads(ours.run("eval", "--model", "base-hf", "--tokens", "text-0.bin", "--token-dtype", "uint16", "--context", size["context"],
                                "--batch", size["batch"], "--batches", 8, "--device", options.device, "--format", "json").stdout)["rows"][0]
    print(f"base: {base.size} bytes, {size['base_steps']} steps, {config.get('model_type')}; on the other text {first['loss']:.4f} "
          f"({time.monotonic() - begin:.0f} s)", flush=True)
    peers = []
    for seed in range(options.seeds):
        words = [sys.executable, __file__, "--folder", folder, "--device", options.device, "--peer", seed, *(["--tiny"] if options.tiny else [])]
        peers.append(subprocess.Popen(list(map(str, words)), stderr=open(folder / f"peft-{seed}.err", "w")))

    def lora(seed):
        while not (folder / f"first-{seed}").exists():
            if peers[seed].poll() not in (None, 0):
                raise RuntimeError((folder / f"peft-{seed}.err").read_text()[-800:])
            time.sleep(0.1)
        return ours.adapted(seed, f"lora-{seed}", "--model", "base-hf", "--lora", f"from=first-{seed}", "--lr", RATE)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        whole = pool.submit(ours.adapted, 0, "whole", "--model", "base-hf", "--lr", FULL_RATE)
        loras = [pool.submit(lora, seed) for seed in range(options.seeds)]
        whole, loras = whole.result(), [x.result() for x in loras]
    for p in peers:
        if p.wait():
            raise RuntimeError("a process of PEFT failed: " + (folder / f"peft-{peers.index(p)}.err").read_text()[-800:])
    theirs = [json.loads((folder / f"peft-{seed}.json").read_text()) for seed in range(options.seeds)]
    print(f"PEFT's {theirs[0]['seconds']:.0f} s a seed{', recorded' if theirs[0]['recorded'] else ''}; all {time.monotonic() - begin:.0f} s", flush=True)

    rows, apart, spreads = [], [], []
    for i in range(size["steps"] // size["every"]):
        mine, its = [x[i] for x in loras], [x["losses"][i] for x in theirs]
        apart.append(max(abs(a - b) for a, b in zip(mine, its)))
        spreads.append(max(its) - min(its))
        rows.append(f"| {(i + 1) * size['every']} | {whole[i]:.4f} | " + " | ".join(f"{x:.4f}" for x in mine + its)
                    + f" | {apart[-1]:.4f} | {spreads[-1]:.4f} |")
    inside = sum(a <= s for a, s in zip(apart, spreads))
    seeds = range(options.seeds)
    lines = ["# Adapting a base to another text: LoRA here, all weights here, LoRA of PEFT", "",
             f"Written by `bench/peers/lora_curve.py` on {options.device}, with torch {theirs[0]['torch']}, PEFT {theirs[0]['peft']}, transformers "
             f"{theirs[0]['transformers']}; {version}. The base is a Llama over bytes ({size['layers']} layers, width {size['width']}), trained "
             f"for {size['base_steps']} steps on the sources in C++ ({base.size:,} bytes); {size['steps']:,} steps of {size['batch']} × {size['context']} "
             f"tokens adapt it to the pages of docs/ ({text.size:,} bytes), in bf16. LoRA: r = {LORA['r']}, alpha = {LORA['alpha']}, every product of the "
             f"layers ({theirs[0]['trained']:,} numbers), rate {RATE}; all weights: rate {FULL_RATE}; AdamW, β2 = {BETA2}, no decay. Losses are of "
             f"the last 5 %, held out ({first['loss']:.4f} on the text's beginning before). A seed draws A and turns the text; both sides have the same of each.", "",
             f"A seed's two curves lie {max(apart):.4f} apart at the most, {statistics.median(apart):.4f} in the median; PEFT's seeds {min(spreads):.4f} to "
             f"{max(spreads):.4f}. In {inside} of {len(rows)} rows they are as near as PEFT's seeds.", "",
             "| step | all weights | " + " | ".join(f"LoRA here, seed {i}" for i in seeds) + " | " + " | ".join(f"PEFT, seed {i}" for i in seeds)
             + " | largest difference of one seed | among PEFT's seeds |", "|---|" + "--:|" * (2 * options.seeds + 3), *rows, ""]
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines))
    return 0 if 10 * inside >= 9 * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
