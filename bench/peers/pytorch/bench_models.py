#!/usr/bin/env python3
"""Times training steps of published models, as `transformers` has them, with random weights; and of
the course's model (model.py) by the name of its size.

Forms: `eager`; `layers` (each layer under torch.compile, as many people train); `whole` (the model
under torch.compile, the trainer's torch_compile); `graph` (layers and loss compiled, causal attention
asked for by its flag, and the whole step one CUDA graph); `graph-whole` (the same, compiled in one
piece) and `graph-tuned` (and its products chosen by max-autotune). All have the fused AdamW.
Precisions: `fp32` is IEEE, `bf16` is autocast over float32 parameters, `bf16-pure` stores all in bf16;
`fp8` and `fp8-row` are `bf16` with torchao's products in the layers. With `"lora": "r=16,alpha=32,targets=all"` in a
cell (`--lora`) PEFT's adapters are trained alone, and `bf16` is autocast over a base that is stored in bf16, as people load it;
`base=nf4` there keeps matrices of the layers in bitsandbytes' 4 bits, with double quantization. `"packed": true` (`--pack`)
makes rows of sixteen documents, to whose ends FlashAttention's form for many lengths keeps.

    python3 bench/peers/pytorch/bench_models.py --cell gpt2,8,1024,bf16,layers

With --serve, cells come as JSON lines on stdin, as for bench_gpu.py. A process keeps the model of its
first cell, so that a later visit finds it compiled: one process for each model and form; with adapters it serves several
batches and contexts. A cell with
`"is_kept": false` gives its model back instead, and `"layers"` is how many of them it has.
"""

import argparse
import json
import pathlib
import sys

# transformers may come from a folder, which stands behind what is installed.
early = argparse.ArgumentParser(add_help=False)
early.add_argument("--site")
if folder := early.parse_known_args()[0].site:
    sys.path.append(folder)

import torch
import torch.nn.functional as F
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import bench_gpu
import course_sizes
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


TARGETS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj",
           "down": "down_proj"}
DOCUMENTS = 16  # in a packed row, as in those that tracestep measures


def keep_nf4(model):
    """The products of the layers with weights in 4 bits, as QLoRA's are loaded (bitsandbytes)."""
    import bitsandbytes
    for layer in model.base_model.layers:
        for module in list(layer.modules()):
            for name, part in list(module.named_children()):
                if not isinstance(part, torch.nn.Linear):
                    continue
                coded = bitsandbytes.nn.Linear4bit(part.in_features, part.out_features, part.bias is not None, device="meta",
                                                   compute_dtype=torch.bfloat16, compress_statistics=True, quant_type="nf4")
                device = part.weight.device
                coded.weight = bitsandbytes.nn.Params4bit(part.weight.detach().cpu(), requires_grad=False, quant_type="nf4",
                                                          compress_statistics=True, module=coded).to(device)
                coded.bias = part.bias
                setattr(module, name, coded)
    model.is_loaded_in_4bit = True


def add_adapters(model, parts):
    """PEFT's adapters in their places; everything else is frozen."""
    import peft
    given = dict(part.split("=") for part in parts.split(","))
    if given.get("base") == "nf4":
        keep_nf4(model)
    names = given.get("targets", "q+v").split("+")
    targets = "all-linear" if names == ["all"] else [TARGETS[name] for name in names]
    peft.get_peft_model(model, peft.LoraConfig(r=int(given.get("r", 8)), lora_alpha=float(given.get("alpha", 8)),
                                               target_modules=targets, task_type="CAUSAL_LM"))


def causal_attention(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
    """Attention without the mask that transformers would make, which asks the device a question; that of packed rows
    keeps to the bounds of documents."""
    if PACKED.bounds is not None:
        return packed_attention(query, key, value, scaling), None
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling,
                                         enable_gqa=key.shape[1] != query.shape[1])
    return out.transpose(1, 2).contiguous(), None


class Packed:
    """Where documents begin in all rows of a batch, one behind the other; None: rows are one text each."""

    def __init__(self):
        self.bounds, self.longest = None, 0

    def set(self, batch, context, device):
        """Sixteen documents a row, whose lengths lie up to a half around their mean; returns positions."""
        mean = context / DOCUMENTS
        ends = [round(mean * (i + 1) + mean * 0.25 * (i % 2 == 0)) for i in range(DOCUMENTS - 1)] + [context]
        lengths = [end - begin for begin, end in zip([0, *ends], ends)]
        bounds = torch.tensor([0, *lengths * batch]).cumsum(0)
        self.bounds, self.longest = bounds.to(device, torch.int32), max(lengths)
        return torch.cat([torch.arange(n) for n in lengths]).expand(batch, -1).to(device)

    def clear(self):
        self.bounds, self.longest = None, 0


PACKED = Packed()


def packed_attention(query, key, value, scaling):
    batch, heads, tokens, width = query.shape
    if not query.is_cuda:  # to try the script out
        of = torch.bucketize(torch.arange(tokens), PACKED.bounds[1:].long(), right=True)
        mask = (of[:, None] == of[None, :]).tril()
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling,
                                              enable_gqa=key.shape[1] != heads).transpose(1, 2).contiguous()
    q, k, v = (x.transpose(1, 2).reshape(batch * tokens, x.shape[1], width) for x in (query, key, value))
    out = torch.ops.aten._flash_attention_forward(q, k, v, PACKED.bounds, PACKED.bounds, PACKED.longest, PACKED.longest,
                                                  0.0, True, False, scale=scaling)[0]
    return out.view(batch, tokens, heads, width)


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
        lora = cell.get("lora")
        is_narrow = cell["precision"] == "bf16-pure" or (lora and cell["precision"] == "bf16")
        dtype = torch.bfloat16 if is_narrow else torch.float32
        with torch.device(device):
            self.model = transformers.AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation="causal_only" if self.is_graph or lora else "sdpa")
        self.model.train()
        if cell["precision"] in float8.RECIPES:
            self.model = float8.convert(self.model, cell["precision"])
        if lora:
            add_adapters(self.model, lora)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.vocab, self.places = config.vocab_size, {}
        self.take(cell)
        self.loss_of = self.compiled(cell["form"])

    def take(self, cell):
        """Makes a batch of the cell's size."""
        self.cell = cell
        tokens = torch.randint(0, self.vocab, (cell["batch"], cell["context"] + 1), device=self.device)
        self.batch = (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        self.places = {}
        PACKED.clear()
        if cell.get("packed"):
            self.places = {"position_ids": PACKED.set(cell["batch"], cell["context"], self.device)}

    def parameter_count(self):
        return sum(p.numel() for p in self.model.parameters())

    def compiled(self, form):
        body = self.model.base_model
        mode = "max-autotune-no-cudagraphs" if form == "graph-tuned" else None

        def own_loss(hidden, targets):
            logits = self.model.get_output_embeddings()(hidden).float()
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

        def library_loss(tokens, _):  # shifts its labels itself
            return self.model(input_ids=tokens, labels=tokens, use_cache=False, **self.places).loss

        def graph_loss(tokens, targets, head=own_loss):
            return head(body(input_ids=tokens, use_cache=False, **self.places).last_hidden_state, targets)

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


class CourseRunner(bench_gpu.Runner):
    """The course's model in its fastest form, compiled block by block (`layers`, `graph`) or not; only whole steps."""

    FORMS = course_sizes.FORMS
    PRECISIONS = ("fp32", "bf16", *float8.RECIPES)
    VOCABULARY = 10000

    def __init__(self, cell, device):
        if cell["form"] not in self.FORMS or cell["precision"] not in self.PRECISIONS or cell.get("lora") or cell.get("packed"):
            raise ValueError(f"the course's model has forms {', '.join(self.FORMS)}, precisions {', '.join(self.PRECISIONS)}, "
                             "no adapters and no packed rows")
        self.made = None
        super().__init__({**cell, "form": self.FORMS[cell["form"]], "vocab": cell.get("vocab") or self.VOCABULARY}, device)

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters)

    def sample_of(self, mode):
        self.made = self.made or super().sample_of(mode)
        return self.made


class Kept:
    """The runner of this process: made by its first cell."""

    def __init__(self):
        self.runner, self.made_of = None, None

    def rows(self, cell, device):
        is_eager = cell.get("lora") and not cell["form"].startswith("graph")  # then other batches are no other model
        what = ("size", "form", "precision", "lora", *(() if is_eager else ("batch", "context", "packed")))
        made_of = tuple(cell.get(k) for k in what)
        if self.made_of not in (None, made_of):
            raise SystemExit(f"[bench_models] this process runs {self.made_of}, not {made_of}")
        self.made_of = made_of

        def work():
            kind = CourseRunner if cell["size"] in course_sizes.SIZES else Runner
            self.runner = self.runner or kind(cell, device)
            if any(cell.get(k) != self.runner.cell.get(k) for k in ("batch", "context", "packed")):
                self.runner.take(cell)
            self.runner.cell = {**self.runner.cell, "warmup": cell["warmup"], "steps": cell["steps"]}
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
    parser.add_argument("--lora", metavar="PARTS", help="adapters of PEFT")
    parser.add_argument("--pack", action="store_true", help="rows of sixteen documents")
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
            "form": form, "warmup": arguments.warmup, "steps": arguments.steps, "seed": 0,
            "lora": arguments.lora or "", "packed": arguments.pack}
    for row in kept.rows(cell, device):
        print(row)
    return 0 if row["status"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
