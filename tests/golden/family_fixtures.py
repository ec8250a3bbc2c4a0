#!/usr/bin/env python3
"""Writes tests/golden/families/: for each family a small model of random weights made by
transformers, its config.json, its logits, loss, gradients and ten steps of AdamW, float32 on a CPU.

    python3 tests/golden/family_fixtures.py [FOLDER]     (needs torch, transformers, safetensors)

Weights and gradients are stored by tracestep's names; where a family rotates halves of a head, rows
of queries and keys are permuted, so that neighbours are rotated instead.
"""
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

BATCH, CONTEXT, STEPS = 2, 12, 10
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
SIZES = dict(vocab_size=48, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64)
GROUPED = dict(SIZES, num_key_value_heads=2)

# Name: the class of its configuration, its fields.
MODELS = {
    "llama2": ("LlamaConfig", SIZES),
    "llama3": ("LlamaConfig", dict(GROUPED, tie_word_embeddings=True, rope_scaling=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=16))),
    "llama_yarn": ("LlamaConfig", dict(GROUPED, head_dim=8, rope_scaling=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16))),
    "llama_linear": ("LlamaConfig", dict(GROUPED, attention_bias=True, mlp_bias=True,
        rope_scaling=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
    "mistral": ("MistralConfig", dict(GROUPED, sliding_window=5)),
    "qwen2": ("Qwen2Config", dict(GROUPED, tie_word_embeddings=True, use_sliding_window=True,
                                  sliding_window=5, max_window_layers=1)),
    "qwen3": ("Qwen3Config", dict(GROUPED, head_dim=10)),
    "gemma2": ("Gemma2Config", dict(GROUPED, head_dim=8, sliding_window=5,
                                    query_pre_attn_scalar=7)),
    "gemma3": ("Gemma3TextConfig", dict(GROUPED, num_hidden_layers=3, head_dim=8, sliding_window=5,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "olmo2": ("Olmo2Config", GROUPED),
    "phi3": ("Phi3Config", dict(GROUPED, sliding_window=6)),
    "smollm2": ("LlamaConfig", dict(GROUPED, num_attention_heads=6, tie_word_embeddings=True)),
    "gpt2": ("GPT2Config", dict(vocab_size=48, n_embd=24, n_layer=2, n_head=4, n_positions=32,
                                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "pythia": ("GPTNeoXConfig", dict(SIZES, hidden_size=32, num_attention_heads=2,
                                     rotary_pct=0.25)),
    "neox_serial": ("GPTNeoXConfig", dict(SIZES, num_attention_heads=2, rotary_pct=0.5,
                                          use_parallel_residual=False)),
}
NORMS = {"before": ("ln1", "ln2"), "both": ("ln1", "ln1_after", "ln2", "ln2_after"),
         "after": ("ln1_after", "ln2_after")}
NAMES_OF_NORMS = {
    "before": ("input_layernorm", "post_attention_layernorm"),
    "both": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
             "post_feedforward_layernorm"),
    "after": ("post_attention_layernorm", "post_feedforward_layernorm")}


def head_width(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rotated(config):
    if isinstance(config, transformers.GPT2Config):
        return 0
    share = getattr(config, "rotary_pct", None)
    parameters = getattr(config, "rope_parameters", None) or {}
    if share is None:
        share = parameters.get("partial_rotary_factor", 1.0)
    return int(head_width(config) * share)


def neighbours(x, heads, width, turned):
    """Rows of each head: element j and j + turned/2 become neighbours."""
    half = turned // 2
    order = [i for j in range(half) for i in (j, j + half)] + list(range(turned, width))
    return x.reshape(heads, width, *x.shape[1:])[:, order].reshape(x.shape)


def like_llama(config, state):
    place = ("both" if "model.layers.0.pre_feedforward_layernorm.weight" in state else
             "before" if "model.layers.0.input_layernorm.weight" in state else "after")
    norms = dict(zip(NAMES_OF_NORMS[place], NORMS[place]))
    out = {}
    for name, x in state.items():
        parts = name.split(".")
        kind = parts[-1]
        if name.startswith("model.embed_tokens"):
            out["token_embeddings.weight"] = x
        elif name.startswith("model.norm"):
            out["ln_final." + kind] = x
        elif name.startswith("lm_head"):
            out["lm_head.weight"] = x
        else:
            layer = f"layers.{parts[2]}."
            part = parts[-2]
            if part in norms:
                out[layer + norms[part] + "." + kind] = x
            elif part == "qkv_proj":
                q = config.num_attention_heads * head_width(config)
                k = config.num_key_value_heads * head_width(config)
                for own, piece in zip("qkv", x.split([q, k, k])):
                    out[f"{layer}attn.{own}_proj.weight"] = piece
            elif part == "gate_up_proj":
                out[layer + "ffn.w1.weight"], out[layer + "ffn.w3.weight"] = x.chunk(2)
            else:
                own = {"gate_proj": "ffn.w1", "up_proj": "ffn.w3", "down_proj": "ffn.w2",
                       "o_proj": "attn.output_proj"}.get(part, "attn." + part)
                out[f"{layer}{own}.{kind}"] = x
    return out


def like_gpt2(config, state):
    out = {}
    renamed = {"ln_1": "ln1", "ln_2": "ln2", "c_fc": "ffn.w1"}
    for name, x in state.items():
        parts = name.split(".")
        kind = parts[-1]
        if name == "lm_head.weight":
            continue  # the embedding's
        if parts[1] in ("wte", "wpe"):
            out[{"wte": "token_embeddings", "wpe": "position_embeddings"}[parts[1]] + ".weight"] = x
        elif parts[1] == "ln_f":
            out["ln_final." + kind] = x
        else:
            layer, part = f"layers.{parts[2]}.", parts[-2]
            if part.startswith("c_") and kind == "weight":
                x = x.T
            if part == "c_attn":
                for own, piece in zip("qkv", x.chunk(3)):
                    out[f"{layer}attn.{own}_proj.{kind}"] = piece
            elif part == "c_proj":
                out[f"{layer}{'attn.output_proj' if parts[3] == 'attn' else 'ffn.w2'}.{kind}"] = x
            else:
                out[f"{layer}{renamed[part]}.{kind}"] = x
    return out


def like_neox(config, state):
    out = {}
    renamed = {"input_layernorm": "ln1", "post_attention_layernorm": "ln2",
               "dense": "attn.output_proj", "dense_h_to_4h": "ffn.w1", "dense_4h_to_h": "ffn.w2"}
    heads = config.num_attention_heads
    for name, x in state.items():
        parts = name.split(".")
        kind = parts[-1]
        if parts[1] == "embed_in":
            out["token_embeddings.weight"] = x
        elif parts[0] == "embed_out" or parts[0] == "lm_head":
            out["lm_head.weight"] = x
        elif parts[1] == "final_layer_norm":
            out["ln_final." + kind] = x
        else:
            layer, part = f"layers.{parts[2]}.", parts[-2]
            if part == "query_key_value":
                each = x.reshape(heads, 3, -1, *x.shape[1:])
                for i, own in enumerate("qkv"):
                    out[f"{layer}attn.{own}_proj.{kind}"] = each[:, i].reshape(-1, *x.shape[1:])
            else:
                out[f"{layer}{renamed[part]}.{kind}"] = x
    return out


def renamed(config, state):
    buffers = ("inv_freq", ".masked_bias", ".attn.bias", ".attention.bias")
    state = {k: v for k, v in state.items() if not k.endswith(buffers)}
    convert = {"gpt2": like_gpt2, "gpt_neox": like_neox}.get(config.model_type, like_llama)
    out = convert(config, state)
    if getattr(config, "tie_word_embeddings", False):
        out.pop("lm_head.weight", None)
    width, turned = head_width(config), rotated(config)
    heads = {"q": config.num_attention_heads,
             "k": getattr(config, "num_key_value_heads", None) or config.num_attention_heads}
    for name, x in out.items():
        part = name.split(".")[-2]
        if turned and part in ("q_proj", "k_proj", "q_norm", "k_norm"):
            own = 1 if x.shape[0] == width else heads[part[0]]
            out[name] = neighbours(x, own, width, turned)
    if config.model_type.startswith("gemma"):  # their norms multiply by 1 + weight
        out = {n.replace("weight", "deviation") if "norm" in n or "ln" in n.split(".")[-2] else n: x
               for n, x in out.items()}
    return {name: x.detach().float().contiguous().clone() for name, x in out.items()}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent / "families")
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, (kind, fields)) in enumerate(MODELS.items()):
        torch.manual_seed(1000 + index)
        # Without a padding token, whose row of the embedding would get no gradient.
        config = getattr(transformers, kind)(**dict(fields, pad_token_id=None),
                                             attn_implementation="eager")
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.train()
        with torch.no_grad():  # norms and biases start as ones and zeros, which hides mistakes
            for x in model.parameters():
                x.add_(0.1 * torch.randn_like(x))
        tokens = torch.randint(0, 48, (BATCH, CONTEXT))
        targets = torch.randint(0, 48, (BATCH, CONTEXT))
        tensors = {"weights." + k: v for k, v in renamed(config, model.state_dict()).items()}
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        losses = []
        for step in range(STEPS):
            logits = model(tokens, use_cache=False).logits
            loss = F.cross_entropy(logits.reshape(-1, 48), targets.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                gradients = {k: x.grad for k, x in model.named_parameters()}
                tensors |= {"gradients." + k: v for k, v in renamed(config, gradients).items()}
                tensors["logits"] = logits.detach().contiguous().clone()
            optimizer.step()
        tensors["tokens"], tensors["targets"] = tokens.contiguous(), targets.contiguous()
        save_file(tensors, folder / f"{name}.safetensors",
                  metadata={"losses": json.dumps(losses), "adamw": json.dumps(ADAMW),
                            "parameters": str(model.num_parameters()),
                            "made_by": f"transformers {transformers.__version__}, "
                                       f"torch {torch.__version__}"})
        text = config.to_json_string(use_diff=False)
        (folder / f"{name}.json").write_text(text)
        print(name, model.num_parameters(), losses[0], losses[-1])


if __name__ == "__main__":
    main()
