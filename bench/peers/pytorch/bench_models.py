#!/usr/bin/env python3
"""Times training steps of published models, as `transformers` has them, with random weights.

Forms: `eager`; `layers` (each layer under torch.compile, as many people train); `whole` (the model
under torch.compile, the trainer's torch_compile); `graph` (layers and loss compiled, causal attention
asked for by its flag, and the whole step one CUDA graph); `graph-whole` (the same, compiled in one
piece) and `graph-tuned` (and its products chosen by max-autotune). All have the fused AdamW.
Precisions: `fp32` is IEEE, `bf16` is autocast over float32 parameters, `bf16-pure` stores all in bf16;
`fp8` and `fp8-row` are `bf16` with torchao's products in the layers. With `--lora r=16,alpha=32,targets=all`
PEFT's adapters are trained alone, and `bf16` is autocast over a base that is stored in bf16, as people load it.

    python3 bench/peers/pytorch/bench_models.py --cell gpt2,8,1024,bf16,layers

With --serve, cells come as JSON lines on stdin, as for bench_gpu.py. A process keeps the model of its
first cell, so that a later visit finds it compiled: one process for each model and form. A cell with
`"is_kept": false` gives its model back instead, and `"layers"` is how many of them it has.
"""

import argparse
import json
import pathlib
import sys

# transformers may come from a folder, which stands behind what is installed.
early = argparse.ArgumentParser(add_help=False)
early.add_argument("--site")
early.add_argument("--lora", metavar="PARTS", help="adapters of PEFT")
if folder := early.parse_known_args()[0].site:
    sys.path.append(folder)

import torch
import torch.nn.functional as F
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import bench_gpu
import float8

FORMS = ("eager", "layers", "whole", "graph", "graph-whole", "graph-tuned")
PRECISIONS = ("fp32", "bf16", "bf16-pure", *float8.RECIPES)
RECOMPILES = 256  # a layer that is compiled once too often would run eagerly without a word
# model_type and the fields of config.json that differ from the family's defaults.
MODELS = {
    "llama-3.2-1b": ("llama", dict(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, rms_norm_eps=1e-5,
        max_position_embeddings=131072, tie_word_embeddings=True, rope_scaling=dict(
            rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=8192))),
    "llama-3.1-8b": ("llama", dict(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, rms_norm_eps=1e-5,
        max_position_embeddings=131072, rope_scaling=dict(
            rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=8192))),
    "qwen3-0.6b": ("qwen3", dict(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6,
        max_position_embeddings=40960, tie_word_embeddings=True)),
    "smollm2-135m": ("llama", dict(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5,
        max_position_embeddings=8192, tie_word_embeddings=True)),
    "qwen2.5-0.5b": ("qwen2", dict(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, rms_norm_eps=1e-6,
        max_position_embeddings=32768, tie_word_embeddings=True)),
    "pythia-160m": ("gpt_neox", dict(
        vocab_size=50304, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
        num_attention_heads=12, rotary_pct=0.25, max_position_embeddings=2048)),
    "gpt2": ("gpt2", dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    # Linear layers with a bias, as those of GPT-2.
    "pythia-160m": ("gpt_neox", dict(
        vocab_size=50304, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
        num_attention_heads=12, rotary_pct=0.25, max_position_embeddings=2048,
        tie_word_embeddings=False)),
    "qwen2.5-0.5b": ("qwen2", dict(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=1e6,
        max_position_embeddings=32768, tie_word_embeddings=True)),
}


def config_of(name):
    """Of a model above, or of a config.json."""
    family, fields = MODELS.get(name) or (None, json.loads(pathlib.Path(name).read_text()))
    return transformers.AutoConfig.for_model(family or fields.pop("model_type"), **fields)


LORA = early.parse_known_args()[0].lora
TARGETS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
           "down": "down_proj"}


def add_adapters(model, parts):
    """PEFT's adapters in their places; everything else is frozen."""
    import peft
    given = dict(part.split("=") for part in parts.split(","))
    names = given.get("targets", "q+v").split("+")
    targets = "all-linear" if names == ["all"] else [TARGETS[name] for name in names]
    peft.get_peft_model(model, peft.LoraConfig(r=int(given.get("r", 8)), lora_alpha=float(given.get("alpha", 8)),
                                               target_modules=targets, task_type="CAUSAL_LM"))


def causal_attention(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
    """Attention without the mask that transformers would make, which asks the device a question."""
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling,
                                         enable_gqa=key.shape[1] != query.shape[1])
    return out.transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("causal_only", causal_attention)


# cuDNN's attention is the fastest of PyTorch's on Hopper; where it cannot, the next one runs.
FASTEST_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
                 SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Runner(bench_gpu.Runner):
    """One model in one form and precision; only whole steps."""

    def __init__(self, cell, device):
        self.cell, self.device, self.scaler = cell, device, None
        self.is_graph, self.is_course = cell["form"].startswith("graph"), False
        if self.is_graph:
            self.order = sdpa_kernel(FASTEST_FIRST, set_priority=True)
            self.order.__enter__()  # for as long as the process lives
        self.sample, self.optimizer, self.last_loss = None, None, None
        self.autocast_dtype = bench_gpu.AUTOCAST.get(cell["precision"])
        torch.set_float32_matmul_precision("highest")
        torch._dynamo.config.recompile_limit = RECOMPILES
        config = config_of(cell["size"])
        config.num_hidden_layers = cell.get("layers") or config.num_hidden_layers
        torch.manual_seed(cell["seed"])
        is_narrow = cell["precision"] == "bf16-pure" or (LORA and cell["precision"] == "bf16")
        dtype = torch.bfloat16 if is_narrow else torch.float32
        with torch.device(device):
            self.model = transformers.AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation="causal_only" if self.is_graph else "sdpa")
        self.model.train()
        if cell["precision"] in float8.RECIPES:
            self.model = float8.convert(self.model, cell["precision"])
        if LORA:
            add_adapters(self.model, LORA)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.tokens = torch.randint(0, config.vocab_size, (cell["batch"], cell["context"] + 1),
                                    device=device)
        self.loss_of = self.compiled(cell["form"])
        self.batch = (self.tokens[:, :-1].contiguous(), self.tokens[:, 1:].contiguous())

    def parameter_count(self):
        return sum(p.numel() for p in self.model.parameters())

    def compiled(self, form):
        body = self.model.base_model
        mode = "max-autotune-no-cudagraphs" if form == "graph-tuned" else None

        def own_loss(hidden, targets):
            logits = self.model.get_output_embeddings()(hidden).float()
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

        def library_loss(tokens, _):  # shifts its labels itself
            return self.model(input_ids=tokens, labels=tokens, use_cache=False).loss

        def graph_loss(tokens, targets, head=own_loss):
            return head(body(input_ids=tokens, use_cache=False).last_hidden_state, targets)

        if form in ("layers", "graph"):
            for layer in body.layers if hasattr(body, "layers") else body.h:
                layer.compile(dynamic=False)
        if form == "whole":
            self.model.compile(dynamic=False)
        if form == "graph":
            head = torch.compile(own_loss, dynamic=False)
            return lambda tokens, targets: graph_loss(tokens, targets, head)
        if self.is_graph:
            return torch.compile(graph_loss, dynamic=False, mode=mode)
        return library_loss

    def make_optimizer(self):
        return torch.optim.AdamW(self.parameters, lr=bench_gpu.LEARNING_RATE,
                                 weight_decay=bench_gpu.WEIGHT_DECAY, fused=True,
                                 capturable=self.is_graph)

    def sample_of(self, mode):
        if self.sample is None:
            self.sample = super().sample_of(mode)
        return self.sample


class Kept:
    """The runner of this process: made by its first cell."""

    def __init__(self):
        self.runner, self.made_of = None, None

    def rows(self, cell, device):
        made_of = tuple(cell[k] for k in ("size", "form", "precision", "batch", "context"))
        if self.made_of not in (None, made_of):
            raise SystemExit(f"[bench_models] this process runs {self.made_of}, not {made_of}")
        self.made_of = made_of

        def work():
            self.runner = self.runner or Runner(cell, device)
            row = bench_gpu.measure(self.runner, "step")
            return {**row, "parameters": self.runner.parameter_count()}

        row = bench_gpu.attempt(work)
        if not cell.get("is_kept", True):
            self.runner = self.made_of = None
            torch._dynamo.reset()
        bench_gpu.free_memory(device)
        yield {"mode": "step", "form": cell["form"], **row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, parents=[early],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", metavar="MODEL,BATCH,CONTEXT,PRECISION,FORM")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; 0: torch's choice")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--serve", action="store_true", help="cells as JSON lines on stdin")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    kept = Kept()
    if arguments.serve:
        bench_gpu.serve(device, kept.rows, {"transformers": transformers.__version__})
        return 0
    size, batch, context, precision, form = arguments.cell.split(",")
    cell = {"size": size, "batch": int(batch), "context": int(context), "precision": precision,
            "form": form, "warmup": arguments.warmup, "steps": arguments.steps, "seed": 0}
    for row in kept.rows(cell, device):
        print(row)
    return 0 if row["status"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
