#!/usr/bin/env python3
"""Times training steps of a Llama-like model in PyTorch on several GPUs, a process each: DDP or FSDP2.

    python3 bench/peers/pytorch/bench_ranks.py --size large --form ddp --ranks 2 --batch 8
    python3 bench/peers/pytorch/bench_ranks.py --model llama-3.1-8b --form fsdp2 --ranks 2 --batch 4 --context 8192 --recompute alternate

Blocks and the loss are compiled, attention is the library's, weights and states are float32, products bf16 (FSDP2's policy, autocast
under DDP), AdamW is fused. `--reduce bf16` sums gradients in bf16 (DDP: by its compression hook). `--precision fp8` has torchao's
products in the layers, and its gathers of codes with FSDP2. With `--ranks 1` nothing is divided. Prints one JSON object: times
of rank 0, the largest peak of all ranks.
"""
import argparse
import functools
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import float8
import model as course

MODELS = {"llama-3.1-8b": dict(d_model=4096, d_ff=14336, layers=32, heads=32, kv_heads=8, vocab=128256, theta=500000.0),
          "qwen2.5-7b": dict(d_model=3584, d_ff=18944, layers=28, heads=28, kv_heads=4, vocab=152064, theta=1e6)}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), course.RMS_NORM_EPS)


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width, hidden = sizes["d_model"], sizes["d_ff"]
        self.heads, self.kv_heads = sizes["heads"], sizes["kv_heads"]
        self.head = width // self.heads
        self.ln1, self.ln2 = Norm(width), Norm(width)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.head, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        batch, context, _ = x.shape
        qkv = self.qkv(self.ln1(x)).view(batch, context, self.heads + 2 * self.kv_heads, self.head)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        q, k = (course.rope(t, cos[:, None], sin[:, None]).to(v.dtype).transpose(1, 2) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.output(y.transpose(1, 2).reshape(batch, context, -1))
        gate, up = self.gate_up(self.ln2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, sizes, recompute):
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes["vocab"], sizes["d_model"])
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes["layers"]))
        self.norm = Norm(sizes["d_model"])
        self.head = nn.Linear(sizes["d_model"], sizes["vocab"], bias=False)
        self.recomputes = [recompute == "all" or (recompute == "alternate" and i % 2 == 0) for i in range(sizes["layers"])]

    def forward(self, tokens, cos, sin):
        x = self.embedding(tokens)
        for layer, again in zip(self.layers, self.recomputes):
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if again else layer(x, cos, sin)
        return self.head(self.norm(x))

    @torch.no_grad()
    def draw(self):
        for name, p in self.named_parameters():
            if p.dim() == 1:
                p.fill_(1.0)
            else:
                p.normal_(0.0, 0.02)


def sizes_of(options):
    sizes = dict(MODELS[options.model]) if options.model else {**course.SIZES[options.size], "vocab": 10000, "theta": course.ROPE_THETA}
    sizes.setdefault("kv_heads", sizes["heads"])
    return sizes


def rope_tables(sizes, context, device):
    width = sizes["d_model"] // sizes["heads"]
    angle = torch.arange(context, dtype=torch.float64)[:, None] * sizes["theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return angle.cos().float().to(device), angle.sin().float().to(device)


def prepared(options, device, ranks):
    """The model as the form has it, and the context of a forward."""
    sizes, is_fsdp = sizes_of(options), options.form == "fsdp2" and ranks > 1
    with torch.device("meta" if is_fsdp else device):
        model = Model(sizes, options.recompute)
    if options.precision == "fp8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        config = Float8LinearConfig(enable_fsdp_float8_all_gather=True) if is_fsdp else float8.config_of("fp8")
        convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: "head" not in name)
    if not options.eager:
        for i, layer in enumerate(model.layers):
            model.layers[i] = torch.compile(layer, dynamic=False)
    if is_fsdp:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=DTYPES[options.reduce])
        for layer in model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        model.to_empty(device=device)
    model.draw()
    within = functools.partial(torch.autocast, device.type, torch.bfloat16, enabled=not is_fsdp)
    if options.form == "ddp" and ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None,
                                                    gradient_as_bucket_view=True, static_graph=True)
        if options.reduce == "bf16":
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
            model.register_comm_hook(None, bf16_compress_hook)
    return sizes, model, within


def work(rank, ranks, port, options):
    sys.stdout = sys.stderr if rank else sys.stdout
    is_cuda = options.device.startswith("cuda")
    device = torch.device("cuda", rank) if is_cuda else torch.device("cpu")
    if is_cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("nccl" if is_cuda else "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    torch.manual_seed(rank)
    sizes, model, within = prepared(options, device, ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=is_cuda, foreach=None if is_cuda else False)
    cos, sin = rope_tables(sizes, options.context, device)
    tokens, targets = torch.randint(0, sizes["vocab"], (2, options.batch // ranks, options.context), device=device)

    def loss_of(logits):
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    if not options.eager:
        loss_of = torch.compile(loss_of, dynamic=False)

    def synchronize():
        if is_cuda:
            torch.cuda.synchronize()
        if ranks > 1:
            dist.barrier()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with within():
            loss = loss_of(model(tokens, cos, sin))
        loss.backward()
        optimizer.step()
        return loss

    times = []
    for number in range(options.warmup + options.steps):
        if number == options.warmup and is_cuda:
            torch.cuda.reset_peak_memory_stats()
        synchronize()
        begin = time.perf_counter()
        loss = step()
        if is_cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    peak = torch.tensor(torch.cuda.max_memory_allocated() if is_cuda else 0, device=device)
    if ranks > 1:
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    samples = times[options.warmup:]
    if rank == 0:
        print(json.dumps({"status": "ok", "form": options.form, "ranks": ranks, "samples_ms": samples, "median_ms": statistics.median(samples),
                          "warmup_ms": times[:options.warmup], "peak_bytes": peak.item(), "loss": loss.item(), "torch": torch.__version__}))
        sys.stdout.flush()
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(course.SIZES), default="small")
    parser.add_argument("--model", choices=sorted(MODELS))
    parser.add_argument("--form", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="rows of all ranks")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--precision", choices=("bf16", "fp8"), default="bf16")
    parser.add_argument("--reduce", choices=sorted(DTYPES), default="bf16", help="the dtype in which gradients are summed")
    parser.add_argument("--recompute", choices=("none", "alternate", "all"), default="none", help="blocks that backward computes again")
    parser.add_argument("--eager", action="store_true", help="nothing is compiled")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast, as tracestep leaves it off
    if options.precision == "fp8":
        try:
            import torchao  # noqa: F401
        except ImportError:
            print(json.dumps({"status": "not run", "detail": "torchao is not installed"}))
            return 1
    if options.ranks == 1:
        work(0, 1, 0, options)
        return 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, args=(options.ranks, port, options), nprocs=options.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
