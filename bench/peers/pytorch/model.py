"""The course's Llama-like language model in plain PyTorch, in two forms.

`course` writes every composite out in elementary tensor operations, as a first
implementation does; `best` is the fastest form that plain PyTorch offers, and its
blocks can be compiled. Both hold the same parameters under the same names, so that
weights, losses and gradients can be exchanged. A model lives where its parameters
do. Runs on torch 1.13 and later.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F

from course_sizes import SIZES

RMS_NORM_EPS = 1e-5
ROPE_THETA = 10000.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of one model: everything that decides a tensor's shape."""

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocab: int = 10000
    context: int = 512

    @property
    def d_head(self):
        return self.d_model // self.heads


def parameter_shapes(config):
    """Names and shapes of all parameters; linear weights are [out, in]."""
    d, f, v = config.d_model, config.d_ff, config.vocab
    shapes = {"token_embeddings.weight": (v, d)}
    for i in range(config.layers):
        layer = f"layers.{i}"
        shapes[f"{layer}.ln1.weight"] = (d,)
        for name in ("q_proj", "k_proj", "v_proj", "output_proj"):
            shapes[f"{layer}.attn.{name}.weight"] = (d, d)
        shapes[f"{layer}.ln2.weight"] = (d,)
        shapes[f"{layer}.ffn.w1.weight"] = (f, d)
        shapes[f"{layer}.ffn.w2.weight"] = (d, f)
        shapes[f"{layer}.ffn.w3.weight"] = (f, d)
    shapes["ln_final.weight"] = (d,)
    shapes["lm_head.weight"] = (v, d)
    return shapes


def init_parameters(config, seed=0, dtype=torch.float32, device="cpu"):
    """Draws truncated normals at three sigma, sigma^2 = 2/(in+out); embedding sigma 1; norms 1."""
    torch.manual_seed(seed)
    parameters = {}
    for name, shape in parameter_shapes(config).items():
        tensor = torch.empty(shape, dtype=dtype, device=device)
        if len(shape) == 1:
            tensor.fill_(1.0)
        else:
            embedding = name == "token_embeddings.weight"
            sigma = 1.0 if embedding else math.sqrt(2.0 / (shape[0] + shape[1]))
            torch.nn.init.trunc_normal_(tensor, 0.0, sigma, -3.0 * sigma, 3.0 * sigma)
        parameters[name] = tensor
    return parameters


def rope_tables(context, d_head, dtype):
    """cos and sin of t * theta^(-2j/d_head), each [T, d_head/2], computed in float64."""
    j = torch.arange(0, d_head, 2, dtype=torch.float64)
    t = torch.arange(context, dtype=torch.float64)
    angle = t[:, None] * ROPE_THETA ** (-j / d_head)[None, :]
    return angle.cos().to(dtype), angle.sin().to(dtype)


# --- elementary forms ---------------------------------------------------------------------------


def softmax(x):
    shifted = x - x.max(dim=-1, keepdim=True).values
    e = torch.exp(shifted)
    return e / e.sum(dim=-1, keepdim=True)


def log_sum_exp(x):
    m = x.max(dim=-1, keepdim=True).values
    return (torch.log(torch.exp(x - m).sum(dim=-1, keepdim=True)) + m).squeeze(-1)


def rms_norm(x, weight):
    """Root mean square normalisation, computed in float32 at least (float64 stays float64)."""
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + RMS_NORM_EPS)
    return (wide * scale * weight).to(x.dtype)


def silu(x):
    return x * torch.sigmoid(x)


def rope(x, cos, sin):
    """Rotates the pairs (2j, 2j+1) of the last dimension; x [..., T, D], tables [T, D/2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def causal_mask(context):
    """True where a query (row) may look at a key (column)."""
    return torch.tril(torch.ones(context, context, dtype=torch.bool))


def multiply_transposed(a, b):
    """a bᵀ over the last dimensions."""
    return a @ b.transpose(-1, -2)


def einsum_transposed(a, b):
    """The same as the course writes it; torch turns it into a batched product."""
    if b.dim() == 2:
        return torch.einsum("...i,oi->...o", a, b)
    return torch.einsum("...qd,...kd->...qk", a, b)


def attention(q, k, v, mask, product=multiply_transposed):
    """Scaled dot-product attention, q k v [..., T, D], everything materialised."""
    scores = product(q, k) / math.sqrt(q.shape[-1])
    scores = torch.where(mask, scores, torch.tensor(float("-inf"), dtype=scores.dtype))
    return softmax(scores) @ v


def cross_entropy(logits, targets):
    """Mean over rows of log-sum-exp minus the target's logit; logits [N, V], targets [N]."""
    shifted = logits - logits.max(dim=-1, keepdim=True).values
    log_sum = torch.log(torch.exp(shifted).sum(dim=-1))
    picked = shifted.gather(-1, targets[:, None]).squeeze(-1)
    return (log_sum - picked).mean()


class CourseModel:
    """Course granularity: separate projections and every composite in elementary operations.

    `use_einsum` writes products as einsum: the course's way, other rounding, more host work.
    """

    def __init__(self, config, parameters, use_einsum=False):
        self.config = config
        self.product = einsum_transposed if use_einsum else multiply_transposed
        self.parameters = {n: p.detach().clone().requires_grad_() for n, p in parameters.items()}
        like = self.parameters["ln_final.weight"]
        tables = rope_tables(config.context, config.d_head, like.dtype)
        self.cos, self.sin = (table.to(like.device) for table in tables)
        self.mask = causal_mask(config.context).to(like.device)

    def linear(self, x, name):
        return self.product(x, self.parameters[f"{name}.weight"])

    def split_heads(self, x):
        batch, context, _ = x.shape
        return x.view(batch, context, self.config.heads, self.config.d_head).transpose(1, 2)

    def attention_block(self, x, layer):
        batch, context, width = x.shape
        q, k, v = (self.split_heads(self.linear(x, f"{layer}.{n}_proj")) for n in "qkv")
        cos, sin = self.cos[:context], self.sin[:context]
        mask = self.mask[:context, :context]
        y = attention(rope(q, cos, sin), rope(k, cos, sin), v, mask, self.product)
        y = y.transpose(1, 2).reshape(batch, context, width)
        return self.linear(y, f"{layer}.output_proj")

    def feed_forward(self, x, layer):
        gated = silu(self.linear(x, f"{layer}.w1")) * self.linear(x, f"{layer}.w3")
        return self.linear(gated, f"{layer}.w2")

    def logits(self, tokens):
        p = self.parameters
        x = p["token_embeddings.weight"][tokens]
        for i in range(self.config.layers):
            layer = f"layers.{i}"
            x = x + self.attention_block(rms_norm(x, p[f"{layer}.ln1.weight"]), f"{layer}.attn")
            x = x + self.feed_forward(rms_norm(x, p[f"{layer}.ln2.weight"]), f"{layer}.ffn")
        return self.linear(rms_norm(x, p["ln_final.weight"]), "lm_head")

    def loss(self, tokens, targets):
        logits = self.logits(tokens)
        return cross_entropy(logits.flatten(0, 1), targets.flatten())


BLOCK_WEIGHTS = ("ln1", "attn.qkv", "attn.output_proj", "ln2", "ffn.gate_up", "ffn.w2")


class BestModel:
    """The fastest plain-PyTorch form: merged projections, fused library composites.

    `use_sdpa` and `use_rms_norm` pick a library kernel where the installed torch has one.
    `compile_blocks` compiles one Transformer block, which all layers then share. `linear` computes
    the products of blocks.
    """

    def __init__(self, config, parameters, use_sdpa=True, use_rms_norm=True,
                 compile_blocks=False, linear=F.linear):
        self.config = config
        self.linear = linear
        self.use_sdpa = use_sdpa and hasattr(F, "scaled_dot_product_attention")
        self.use_rms_norm = use_rms_norm and hasattr(F, "rms_norm")
        self.parameters = {}
        for name, tensor in self.merged(parameters).items():
            self.parameters[name] = tensor.detach().clone().requires_grad_()
        like = self.parameters["ln_final.weight"]
        tables = rope_tables(config.context, config.d_head, like.dtype)
        self.cos, self.sin = (table[:, None, :].to(like.device) for table in tables)
        self.bias = None
        if not self.use_sdpa:
            hidden = ~causal_mask(config.context).to(like.device)
            self.bias = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
            self.bias.masked_fill_(hidden, float("-inf"))
        # A block's weights are arguments, so that one compilation serves every layer.
        self.block_weights = [tuple(self.parameters[f"layers.{i}.{name}.weight"]
                                    for name in BLOCK_WEIGHTS) for i in range(config.layers)]
        if compile_blocks:
            self.block = torch.compile(self.block, dynamic=False)

    def merged(self, parameters):
        """Replaces q, k, v by one qkv weight and w1, w3 by one gate_up weight."""
        merged = dict(parameters)
        for i in range(self.config.layers):
            attn, ffn = f"layers.{i}.attn", f"layers.{i}.ffn"
            merged[f"{attn}.qkv.weight"] = torch.cat(
                [merged.pop(f"{attn}.{n}_proj.weight") for n in "qkv"])
            merged[f"{ffn}.gate_up.weight"] = torch.cat(
                [merged.pop(f"{ffn}.{n}.weight") for n in ("w1", "w3")])
        return merged

    def norm(self, x, weight):
        if self.use_rms_norm:
            return F.rms_norm(x, (x.shape[-1],), weight, RMS_NORM_EPS)
        return rms_norm(x, weight)

    def attend(self, q, k, v):
        if self.use_sdpa:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        # The scale goes on q, which is T/D times smaller than the scores.
        context = q.shape[-2]
        scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
        return torch.softmax(scores + self.bias[:context, :context], dim=-1) @ v

    def attention_block(self, x, qkv_weight, output_weight):
        batch, context, width = x.shape
        qkv = self.linear(x, qkv_weight)
        qkv = qkv.view(batch, context, 3, self.config.heads, self.config.d_head)
        q, k, v = qkv.unbind(dim=2)
        cos, sin = self.cos[:context], self.sin[:context]
        # The tables are float32; under autocast q and k return to the dtype of v.
        q, k = rope(q, cos, sin).to(v.dtype), rope(k, cos, sin).to(v.dtype)
        y = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        y = y.transpose(1, 2).reshape(batch, context, width)
        return self.linear(y, output_weight)

    def feed_forward(self, x, gate_up_weight, down_weight):
        gate, up = self.linear(x, gate_up_weight).chunk(2, dim=-1)
        return self.linear(F.silu(gate) * up, down_weight)

    def block(self, x, ln1, qkv, output_proj, ln2, gate_up, down):
        x = x + self.attention_block(self.norm(x, ln1), qkv, output_proj)
        return x + self.feed_forward(self.norm(x, ln2), gate_up, down)

    def logits(self, tokens):
        x = F.embedding(tokens, self.parameters["token_embeddings.weight"])
        for weights in self.block_weights:
            x = self.block(x, *weights)
        x = self.norm(x, self.parameters["ln_final.weight"])
        return F.linear(x, self.parameters["lm_head.weight"])

    def loss(self, tokens, targets):
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())


class CourseAdamW:
    """AdamW in plain tensor operations: decay first, eps added to the uncorrected root."""

    def __init__(self, parameters, lr, weight_decay, betas=(0.9, 0.999), eps=1e-8):
        self.parameters = list(parameters)
        self.lr, self.weight_decay, self.betas, self.eps = lr, weight_decay, betas, eps
        self.step_count = 0
        # What torch's gradient scaler asks an optimizer for.
        self.param_groups = [{"params": self.parameters}]
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        self.step_count += 1
        beta1, beta2 = self.betas
        correction = math.sqrt(1 - beta2**self.step_count) / (1 - beta1**self.step_count)
        for p, m, v in zip(self.parameters, self.m, self.v):
            p -= self.lr * self.weight_decay * p
            m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
            v.mul_(beta2).add_(p.grad * p.grad, alpha=1 - beta2)
            p -= self.lr * correction * m / (torch.sqrt(v) + self.eps)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


def make_best_adamw(parameters, lr, weight_decay, variant="fused", capturable=False):
    """torch.optim.AdamW as `fused`, `foreach` or `loop`; raises where torch lacks the variant.

    `capturable`: its step count lives on the device, so that a CUDA graph may hold the step.
    """
    flags = {"fused": dict(fused=True), "foreach": dict(foreach=True), "loop": dict(foreach=False)}
    more = dict(capturable=True) if capturable else {}
    return torch.optim.AdamW(list(parameters), lr=lr, weight_decay=weight_decay, **flags[variant],
                             **more)


@torch.no_grad()
def clip_gradients(parameters, clip):
    """Scales all gradients by min(1, clip/(norm+1e-6)); returns the global norm before that."""
    gradients = [p.grad for p in parameters]
    norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients))
    if clip > 0:
        scale = min(1.0, clip / (norm + 1e-6))
        for g in gradients:
            g.mul_(scale)
    return norm
