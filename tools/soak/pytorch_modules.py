"""Modules whose memory is compared between a card and its prediction (pytorch_memory.py): NAME -> build.

Each build makes a module and its inputs on the default device; the module returns its loss. `is_checkpointed` computes
blocks again in backward, by torch.utils.checkpoint.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A pre-norm block: attention and a perceptron, in the style of GPT-2."""

    def __init__(self, c, heads, causal=True, dropout=0.0):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(y.transpose(1, 2).contiguous().view(b, t, c)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    """nanoGPT's arrangement, with tied weights."""

    def __init__(self, v, c, layers, heads, t, dropout=0.0, is_checkpointed=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(v, c), nn.Embedding(t, c)
        self.blocks = nn.ModuleList(Block(c, heads, dropout=dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, v, bias=False)
        self.head.weight = self.tokens.weight
        self.is_checkpointed = is_checkpointed

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class RmsNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotated(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class LlamaBlock(nn.Module):
    """Grouped heads, rotations, a gated perceptron."""

    def __init__(self, c, heads, groups, ffn, own_attention=False):
        super().__init__()
        self.heads, self.groups, self.width, self.own = heads, groups, c // heads, own_attention
        self.norm1, self.norm2 = RmsNorm(c), RmsNorm(c)
        self.q, self.o = nn.Linear(c, c, bias=False), nn.Linear(c, c, bias=False)
        self.k, self.v = (nn.Linear(c, groups * self.width, bias=False) for _ in range(2))
        self.gate, self.up, self.down = (nn.Linear(c, ffn, bias=False), nn.Linear(c, ffn, bias=False),
                                         nn.Linear(ffn, c, bias=False))

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h = self.norm1(x)
        q = self.q(h).view(b, t, self.heads, self.width).transpose(1, 2)
        k, v = (f(h).view(b, t, self.groups, self.width).transpose(1, 2) for f in (self.k, self.v))
        q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
        k, v = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (k, v))
        if self.own:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.width)
            scores = scores.masked_fill(torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), 1), float("-inf"))
            y = scores.softmax(-1).to(v.dtype) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, v, c, layers, heads, groups, ffn, own_attention=False, is_checkpointed=False):
        super().__init__()
        self.tokens = nn.Embedding(v, c)
        self.layers = nn.ModuleList(LlamaBlock(c, heads, groups, ffn, own_attention) for _ in range(layers))
        self.norm, self.head = RmsNorm(c), nn.Linear(c, v, bias=False)
        self.width, self.is_checkpointed = c // heads, is_checkpointed

    def forward(self, ids, targets):
        x = self.tokens(ids)
        at = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)
        rates = 1e4 ** (-torch.arange(0, self.width, 2, device=ids.device, dtype=torch.float32) / self.width)
        angles = torch.outer(at, rates).repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.is_checkpointed else layer(x, cos, sin)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Vit(nn.Module):
    """Patches of images by a convolution, then blocks."""

    def __init__(self, c, layers, heads, patch, side, classes, is_checkpointed=False):
        super().__init__()
        self.patch = nn.Conv2d(3, c, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, c))
        self.positions = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, c))
        self.blocks = nn.ModuleList(Block(c, heads, causal=False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, classes)
        self.is_checkpointed = is_checkpointed

    def forward(self, images, labels):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return F.cross_entropy(self.head(self.norm(x[:, 0])), labels)


class Translator(nn.Module):
    """nn.Transformer between an embedding and a head."""

    def __init__(self, v, c, layers, heads, ffn, is_checkpointed=False):
        super().__init__()
        self.tokens = nn.Embedding(v, c)
        self.body = nn.Transformer(c, heads, layers, layers, ffn, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(c, v)
        self.is_checkpointed = is_checkpointed

    def forward(self, source, ids, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        x, y = self.tokens(source), self.tokens(ids)
        if self.is_checkpointed:
            for layer in self.body.encoder.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            x = self.body.encoder.norm(x)
            for layer in self.body.decoder.layers:
                y = checkpoint(layer, y, x, mask, use_reentrant=False)
            y = self.body.decoder.norm(y)
        else:
            y = self.body(x, y, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(y).transpose(1, 2), targets)


class Published(nn.Module):
    """A model of transformers, with labels."""

    def __init__(self, model, is_checkpointed):
        super().__init__()
        self.model = model
        if is_checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def forward(self, **inputs):
        return self.model(**inputs).loss


def ids_of(v, *shape):
    return torch.randint(0, v, shape)


def gpt(v, c, layers, heads, b, t, dropout=0.0):
    return lambda again: (Gpt(v, c, layers, heads, t, dropout, again), (ids_of(v, b, t), ids_of(v, b, t)), {})


def llama(v, c, layers, heads, groups, ffn, b, t, own=False):
    return lambda again: (Llama(v, c, layers, heads, groups, ffn, own, again), (ids_of(v, b, t), ids_of(v, b, t)), {})


def vit(c, layers, heads, patch, side, b):
    return lambda again: (Vit(c, layers, heads, patch, side, 1000, again),
                          (torch.randn(b, 3, side, side), ids_of(1000, b)), {})


def translator(v, c, layers, heads, ffn, b, s, t):
    return lambda again: (Translator(v, c, layers, heads, ffn, again),
                          (ids_of(v, b, s), ids_of(v, b, t), ids_of(v, b, t)), {})


def published(kind, b, t, auto="CausalLM", attention="sdpa", **sizes):
    """A model of transformers that reads tokens, made from sizes of its configuration."""
    def build(again):
        model = made_from(kind, auto, attention, sizes)
        ids = ids_of(model.config.vocab_size, b, t)
        return Published(model, again), (), {"input_ids": ids, "labels": ids}
    return build


def pictured(kind, b, side, **sizes):
    """One that classifies images."""
    def build(again):
        model = made_from(kind, "ImageClassification", "sdpa", {"image_size": side, "num_labels": 1000, **sizes})
        return Published(model, again), (), {"pixel_values": torch.randn(b, 3, side, side), "labels": ids_of(1000, b)}
    return build


def heard(kind, b, frames, t, **sizes):
    """One that writes down speech."""
    def build(again):
        model = made_from(kind, "SpeechSeq2Seq", "sdpa", sizes)
        ids = ids_of(model.config.vocab_size, b, t)
        return Published(model, again), (), {"input_features": torch.randn(b, 80, frames), "labels": ids}
    return build


def made_from(kind, auto, attention, sizes):
    """Without dropout and without a cache of keys."""
    import transformers
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(kind, **sizes)
    for key, value in list(vars(config).items()):
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    config.use_cache = False
    return getattr(transformers, f"AutoModelFor{auto}").from_config(config, attn_implementation=attention).train()


SMALL = {
    "gpt": gpt(32000, 768, 6, 12, 2, 1024),
    "gpt2": published("gpt2", 2, 512, n_layer=6),
    "llama": llama(16000, 1024, 6, 16, 4, 2816, 2, 1024),
    "vit": vit(768, 6, 12, 16, 224, 16),
    "translator": translator(16000, 512, 4, 8, 2048, 8, 256, 256),
}

GROUPED = dict(vocab_size=32000, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4,
               intermediate_size=2816, max_position_embeddings=2048, pad_token_id=0)
PLAIN = {k: v for k, v in GROUPED.items() if k != "num_key_value_heads"}
LARGE = {
    "gpt-medium": gpt(50304, 1024, 12, 16, 4, 1024),
    "gpt-dropout": gpt(50304, 768, 12, 12, 8, 512, 0.1),
    "gpt-long": gpt(32000, 768, 12, 12, 1, 4096),
    "llama-own": llama(32000, 1024, 12, 16, 4, 2816, 4, 1024),
    "llama-scores": llama(16000, 1024, 12, 16, 4, 2816, 4, 512, True),
    "vit-base": vit(768, 12, 12, 16, 224, 64),
    "vit-large": vit(1024, 16, 16, 16, 224, 32),
    "translator-6": translator(32000, 768, 6, 12, 3072, 16, 256, 256),
    "gpt2-base": published("gpt2", 8, 512),
    "llama-published": published("llama", 4, 1024, **GROUPED),
    "mistral": published("mistral", 4, 1024, **{**GROUPED, "sliding_window": 512}),
    "qwen2": published("qwen2", 4, 1024, **GROUPED),
    "gemma": published("gemma", 4, 512, **{**GROUPED, "head_dim": 128, "vocab_size": 64000}),
    "opt": published("opt", 4, 1024, vocab_size=50272, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, ffn_dim=4096,
                     word_embed_proj_dim=1024),
    # Nothing was tuned on those below: they were named before they ran.
    "qwen3": published("qwen3", 4, 1024, **{**GROUPED, "head_dim": 64}),
    "gpt_neox": published("gpt_neox", 4, 1024, **{**PLAIN, "intermediate_size": 4096}),
    "bloom": published("bloom", 4, 512, attention="eager", vocab_size=64000, hidden_size=1024, n_layer=12, n_head=16),
    "bert": published("bert", 16, 512, "MaskedLM", vocab_size=30522),
    "phi3": published("phi3", 4, 1024, **GROUPED),
    "t5": published("t5", 8, 512, "Seq2SeqLM", "eager", d_model=768, d_ff=3072, num_layers=8, num_heads=12, d_kv=64, decoder_start_token_id=0),
}

# Named before they ran in rows, each in a process of its own; no rule of the recorder was found on them.
WIDE = dict(vocab_size=32000, hidden_size=1280, num_hidden_layers=12, num_attention_heads=20, pad_token_id=0)
FRESH = {
    "bart": published("bart", 12, 512, "Seq2SeqLM", vocab_size=50265, d_model=768, encoder_layers=6, decoder_layers=6,
                      encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072),
    "modernbert": published("modernbert", 8, 1024, "MaskedLM", vocab_size=50368, hidden_size=768, num_hidden_layers=12,
                            num_attention_heads=12, intermediate_size=1152),
    "dinov2": pictured("dinov2", 72, 224, hidden_size=1024, num_hidden_layers=14, num_attention_heads=16, patch_size=14),
    "whisper": heard("whisper", 12, 3000, 256, d_model=768, encoder_layers=8, decoder_layers=8, encoder_attention_heads=12,
                     decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072),
    "olmo2": published("olmo2", 4, 1024, **{**WIDE, "intermediate_size": 3456}),
    "starcoder2": published("starcoder2", 4, 1024, **{**WIDE, "num_key_value_heads": 4, "intermediate_size": 5120}),
    "cohere": published("cohere", 4, 1024, **{**GROUPED, "vocab_size": 48000}),
    "gpt_bigcode": published("gpt_bigcode", 4, 1024, vocab_size=49152, n_embd=1024, n_layer=12, n_head=16),
}
# Fresh ones that the recorder could not record at first.
MENDED = {
    "gemma2": published("gemma2", 4, 1024, "CausalLM", "eager", **{**GROUPED, "head_dim": 64, "sliding_window": 512}),
    "falcon": published("falcon", 4, 1024, vocab_size=65024, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16),
    "mpt": published("mpt", 4, 1024, "CausalLM", "eager", vocab_size=50432, d_model=1024, n_layers=12, n_heads=16),
    "gptj": published("gptj", 4, 1024, "CausalLM", "eager", vocab_size=50400, n_embd=1024, n_layer=12, n_head=16, rotary_dim=64),
    "deberta": published("deberta-v2", 16, 512, "MaskedLM", "eager", vocab_size=64000, hidden_size=768, num_hidden_layers=12,
                         num_attention_heads=12, intermediate_size=3072, relative_attention=True, pos_att_type=["c2p", "p2c"],
                         position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True),
    "swin": pictured("swin", 48, 224, embed_dim=128, depths=[2, 2, 18, 2], num_heads=[4, 8, 16, 32]),
}
# Named after the rules were mended by what the rows of all those above showed, and before they ran.
FRESHER = {
    "granite": published("granite", 4, 1024, **{**GROUPED, "vocab_size": 49152}),
    "nemotron": published("nemotron", 4, 1024, **{**WIDE, "num_key_value_heads": 4, "intermediate_size": 5120}),
    "electra": published("electra", 24, 512, "MaskedLM", vocab_size=30522, embedding_size=768, hidden_size=768, num_hidden_layers=12,
                         num_attention_heads=12, intermediate_size=3072),
    "pegasus": published("pegasus", 8, 512, "Seq2SeqLM", vocab_size=96103, d_model=768, encoder_layers=8, decoder_layers=8,
                         encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072),
    "glm4": published("glm4", 4, 1024, **{**GROUPED, "head_dim": 64, "vocab_size": 64000}),
    "vit": pictured("vit", 96, 224, hidden_size=768, num_hidden_layers=12, num_attention_heads=12),
    "phi": published("phi", 4, 1024, **{**WIDE, "num_key_value_heads": 20, "intermediate_size": 5120, "vocab_size": 51200}),
    "biogpt": published("biogpt", 4, 1024, vocab_size=42384, hidden_size=1280, num_hidden_layers=12, num_attention_heads=20,
                        intermediate_size=5120),
}
# The rows of a run: at least 4 GiB in every way.
LARGER = {
    "gpt-dropout": gpt(50304, 768, 12, 12, 12, 512, 0.1),
    "llama-scores": llama(16000, 1024, 12, 16, 4, 2816, 8, 512, True),
    "vit-large": vit(1024, 16, 16, 16, 224, 48),
    "translator-6": translator(32000, 768, 6, 12, 3072, 24, 256, 256),
    "gpt2-base": published("gpt2", 10, 512),
    "t5": published("t5", 12, 512, "Seq2SeqLM", "eager", d_model=768, d_ff=3072, num_layers=8, num_heads=12, d_kv=64, decoder_start_token_id=0),
}
KEPT = ("gpt-medium", "llama-own", "mistral", "gemma", "phi3", "qwen3")
ROWS = {**FRESH, **LARGER, **{name: LARGE[name] for name in KEPT}}
