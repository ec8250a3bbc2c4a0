"""A model of Hugging Face's transformers as files that the program reads."""
from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ._commands import call

Tensors = dict[str, Any]
NORMS = {"before": ("ln1", "ln2"), "both": ("ln1", "ln1_after", "ln2", "ln2_after"),
         "after": ("ln1_after", "ln2_after")}
NAMES_OF_NORMS = {
    "before": ("input_layernorm", "post_attention_layernorm"),
    "both": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
             "post_feedforward_layernorm"),
    "after": ("post_attention_layernorm", "post_feedforward_layernorm")}


def head_width(config: Any) -> int:
    """Elements of a head's q, k and v."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def rotated(config: Any) -> int:
    """How many elements of each head turn with the position."""
    if config.model_type == "gpt2":
        return 0
    share = getattr(config, "rotary_pct", None)
    parameters = getattr(config, "rope_parameters", None) or {}
    if share is None:
        share = parameters.get("partial_rotary_factor", 1.0)
    return int(head_width(config) * share)


def neighbours(x: Any, heads: int, width: int, turned: int) -> Any:
    """Rows of each head: element j and j + turned/2 become neighbours."""
    half = turned // 2
    order = [i for j in range(half) for i in (j, j + half)] + list(range(turned, width))
    return x.reshape(heads, width, *x.shape[1:])[:, order].reshape(x.shape)


def like_llama(config: Any, state: Tensors) -> Tensors:
    """Llama, and what its files are named like: Mistral, Qwen, Gemma, OLMo, Phi."""
    place = ("both" if "model.layers.0.pre_feedforward_layernorm.weight" in state else
             "before" if "model.layers.0.input_layernorm.weight" in state else "after")
    norms = dict(zip(NAMES_OF_NORMS[place], NORMS[place]))
    out: Tensors = {}
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


def like_gpt2(config: Any, state: Tensors) -> Tensors:
    """GPT-2: products by the transposed weight; q, k and v in one."""
    out: Tensors = {}
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


def like_neox(config: Any, state: Tensors) -> Tensors:
    """GPT-NeoX, Pythia: q, k and v of each head side by side."""
    out: Tensors = {}
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


def by_own_names(config: Any, state: Tensors) -> Tensors:
    """The tensors of a state_dict under tracestep's names, most of them as views of the given ones.

    `config`: the model's, as transformers has it. Names that are not known stay as they are, and the program
    refuses them.
    """
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
    return out


@dataclass
class Model:
    """Files of a model: `config`, its config.json, for `model=`, and `weights`, for `init=`.

    Those in a temporary folder go with this object.
    """

    config: Path
    weights: Path


def _write(file: BinaryIO, tensors: Tensors) -> None:
    """safetensors: a header in JSON, then the tensors as float32, one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, x in tensors.items():
        begin, end = end, end + 4 * x.numel()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for x in tensors.values():
        whole = x.detach().cpu().float().contiguous()
        file.write(ctypes.string_at(whole.data_ptr(), 4 * whole.numel()))


def from_module(model: Any, folder: str | os.PathLike[str] | None = None) -> Model:
    """Reads a causal language model of transformers: its config and its weights, as float32.

    Writes config.json and weights.safetensors to `folder`, or to a temporary one. The families are those of
    docs/models.md. Errors: those of the program, for a model that it has not, and for names or shapes of
    weights that do not fit the config as soon as it reads them.
    """
    place = Path(tempfile.mkdtemp(prefix="tracestep-") if folder is None else folder)
    place.mkdir(parents=True, exist_ok=True)
    found = Model(place / "config.json", place / "weights.safetensors")
    if folder is None:
        weakref.finalize(found, shutil.rmtree, place, ignore_errors=True)
    found.config.write_text(model.config.to_json_string(use_diff=False), encoding="utf-8")
    call("fit", (), {"model": found.config, "batch": 1, "context": 1, "memory_limit": "1TiB"}, False)
    with found.weights.open("wb") as file:
        _write(file, by_own_names(model.config, model.state_dict()))
    return found
