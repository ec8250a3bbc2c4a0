#!/usr/bin/env python3
"""Times training steps of modules under torch.compile, and captures the same modules for tracestep.

Modules: published models as `transformers` has them, a GPT as nanoGPT writes it, and the course's model as students
write it (einsum, softmax, norms and rotation of their own). Weights and tokens are random; each module computes its own
loss. Forms: `eager`, and the loss under torch.compile in its modes `default`, `reduce-overhead` and
`max-autotune-no-cudagraphs` ("tuned"). All have the fused AdamW; bf16 is autocast over float32 parameters.

    python3 bench/peers/pytorch/bench_captured.py --cell gpt2,8,1024,bf16,tuned
    python3 bench/peers/pytorch/bench_captured.py --capture gpt2,8,1024 --folder out/gpt2

With --serve, cells come as JSON lines on stdin, as for bench_models.py.
"""

import argparse
import contextlib
import json
import math
import pathlib
import sys

early = argparse.ArgumentParser(add_help=False)
early.add_argument("--site", help="where transformers is, if not installed")
if folder := early.parse_known_args()[0].site:
    sys.path.append(folder)

import torch
import torch.nn.functional as F
from torch import nn

import bench_gpu

MODES = {"eager": None, "default": "default", "reduce-overhead": "reduce-overhead",
         "tuned": "max-autotune-no-cudagraphs"}
CONFIGS = {
    "gpt2": ("gpt2", dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "qwen2.5-0.5b": ("qwen2", dict(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, rms_norm_eps=1e-6, max_position_embeddings=32768,
        rope_theta=1000000.0, tie_word_embeddings=True)),
    "llama-3.2-1b": ("llama", dict(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, rms_norm_eps=1e-5,
        max_position_embeddings=131072, tie_word_embeddings=True, rope_scaling=dict(
            rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=8192)))}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)
                   for y in self.c_attn(self.ln_1(x)).split(x.shape[-1], dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).contiguous().view_as(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    """124M parameters, as nanoGPT's default."""

    def __init__(self, context, vocab=50304, width=768, heads=12, layers=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        self.vocab = vocab

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class CourseLayer(nn.Module):
    def __init__(self, width, wide, heads):
        super().__init__()
        matrix = lambda *shape: nn.Parameter(torch.randn(shape) / math.sqrt(shape[-1]))
        self.heads = heads
        self.ln1, self.ln2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.q, self.k, self.v, self.o = (matrix(width, width) for _ in range(4))
        self.w1, self.w2, self.w3 = matrix(wide, width), matrix(width, wide), matrix(wide, width)

    def norm(self, x, gain):
        y = x.to(torch.float32)
        return (y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * gain).to(x.dtype)

    def turned(self, x, cos, sin):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def forward(self, x, cos, sin):
        y = self.norm(x, self.ln1)
        q, k, v = (torch.einsum("btd,ed->bte", y, w).unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for w in (self.q, self.k, self.v))
        scores = torch.einsum("bhqd,bhkd->bhqk", self.turned(q, cos, sin), self.turned(k, cos, sin))
        at = torch.arange(x.shape[1], device=x.device)
        scores = torch.where(at[:, None] >= at[None], scores / math.sqrt(q.shape[-1]), float("-inf"))
        weights = torch.exp(scores - scores.max(dim=-1, keepdim=True)[0])
        weights = weights / weights.sum(dim=-1, keepdim=True)
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights, v).transpose(1, 2).flatten(2)
        x = x + torch.einsum("btd,ed->bte", mixed, self.o)
        y = self.norm(x, self.ln2)
        gate, up = torch.einsum("btd,fd->btf", y, self.w1), torch.einsum("btd,fd->btf", y, self.w3)
        return x + torch.einsum("btf,df->btd", gate * torch.sigmoid(gate) * up, self.w2)


class Course(nn.Module):
    """The course's `small`, with a softmax and a loss of its own."""

    def __init__(self, context, vocab=10000, width=768, wide=3072, heads=12, layers=12):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocab, width) * 0.02)
        self.layers = nn.ModuleList(CourseLayer(width, wide, heads) for _ in range(layers))
        self.head, self.vocab = nn.Parameter(torch.randn(vocab, width) * 0.02), vocab
        angles = torch.outer(torch.arange(context), 1e4 ** (-torch.arange(0, width // heads, 2) / (width // heads)))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, targets):
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = torch.einsum("btd,vd->btv", x, self.head).flatten(0, 1)
        logits = logits - logits.max(dim=-1, keepdim=True)[0]
        return (torch.log(torch.exp(logits).sum(-1))
                - logits.gather(-1, targets.flatten()[:, None]).squeeze(-1)).mean()


def module_of(name, context):
    """The module in float32, in training, and the size of its vocabulary."""
    if name not in CONFIGS:
        module = {"nanogpt": NanoGPT, "course": Course}[name](context)
        return module.train(), module.vocab
    import transformers

    family, fields = CONFIGS[name]
    config = transformers.AutoConfig.for_model(family, **fields, use_cache=False)
    return transformers.AutoModelForCausalLM.from_config(config).train(), config.vocab_size


def inputs_of(name, tokens):
    """Keywords of a call of the module, which computes its loss from them."""
    ids = tokens[:, :-1].contiguous()
    if name in CONFIGS:  # the library shifts labels itself
        return {"input_ids": ids, "labels": ids}
    return {"ids": ids, "targets": tokens[:, 1:].contiguous()}


class Runner(bench_gpu.Runner):
    """One module in one form and precision; only whole steps."""

    def __init__(self, cell, device):
        self.cell, self.device, self.scaler = cell, device, None
        self.is_graph = self.is_course = False
        self.optimizer, self.last_loss = None, None
        self.autocast_dtype = bench_gpu.AUTOCAST.get(cell["precision"])
        torch.set_float32_matmul_precision("highest")
        torch.manual_seed(cell["seed"])
        with torch.device(device):
            self.model, vocab = module_of(cell["size"], cell["context"])
            tokens = torch.randint(0, vocab, (cell["batch"], cell["context"] + 1))
        self.parameters = list(self.model.parameters())
        inputs = inputs_of(cell["size"], tokens)
        self.batch = tuple(inputs.values())

        def loss_of(*tensors):
            out = self.model(**dict(zip(inputs, tensors)))
            return out if isinstance(out, torch.Tensor) else out.loss

        mode = MODES[cell["form"]]
        self.loss_of = loss_of if mode is None else torch.compile(loss_of, dynamic=False, mode=mode)

    def make_optimizer(self):
        return torch.optim.AdamW(self.parameters, lr=bench_gpu.LEARNING_RATE,
                                 weight_decay=bench_gpu.WEIGHT_DECAY, fused=True)

    def step(self):
        torch.compiler.cudagraph_mark_step_begin()
        super().step()


class Kept:
    """The runner of this process, made by its first cell."""

    def __init__(self):
        self.runner = None

    def rows(self, cell, device):
        def work():
            self.runner = self.runner or Runner(cell, device)
            row = bench_gpu.measure(self.runner, "step")
            if cell["form"] == "reduce-overhead":  # a replay's memory is in no allocation that is counted
                row["peak_bytes"] = None
            return {**row, "parameters": sum(p.numel() for p in self.runner.parameters)}

        row = bench_gpu.attempt(work)
        bench_gpu.free_memory(device)
        yield {"mode": "step", "form": cell["form"], **row}


def unfilled():
    """Where no weight is needed: torch.nn.init does nothing meanwhile."""
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # before transformers 5, or there are none
        try:
            from transformers.modeling_utils import no_init_weights
        except ImportError:
            return contextlib.nullcontext()
    return no_init_weights()


def capture(name, batch, context, place):
    """Writes the module as a program: its shape and graph, no weights."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
    import tracestep

    with unfilled():
        module, vocab = module_of(name, context)
    if hasattr(module, "tie_weights"):  # which is left out with the values
        module.tie_weights()
    tokens = torch.randint(0, vocab, (batch, context + 1))
    inputs = inputs_of(name, tokens)
    args, keywords = ((), inputs) if name in CONFIGS else (tuple(inputs.values()), {})
    print(tracestep.capture(module, *args, folder=place, weights=False, check=False, overwrite=True, **keywords))


def main():
    parser = argparse.ArgumentParser(description=__doc__, parents=[early],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", metavar="MODULE,BATCH,CONTEXT,PRECISION,FORM")
    parser.add_argument("--capture", metavar="MODULE,BATCH,CONTEXT")
    parser.add_argument("--folder", help="of the capture")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; 0: torch's choice")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--serve", action="store_true", help="cells as JSON lines on stdin")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.capture:
        name, batch, context = arguments.capture.split(",")
        capture(name, int(batch), int(context), arguments.folder)
        return 0
    device, kept = torch.device(arguments.device), Kept()
    if arguments.serve:
        bench_gpu.serve(device, kept.rows)
        return 0
    size, batch, context, precision, form = arguments.cell.split(",")
    cell = {"size": size, "batch": int(batch), "context": int(context), "precision": precision,
            "form": form, "warmup": arguments.warmup, "steps": arguments.steps, "seed": 0}
    for row in kept.rows(cell, device):
        print(json.dumps(row))
    return 0 if row["status"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
