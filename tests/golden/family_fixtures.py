#!/usr/bin/env python3
"""Writes tests/golden/families/: for each family a small model of random weights made by
transformers, its config.json, its logits, loss, gradients and ten steps of AdamW, float32 on a CPU.

    python3 tests/golden/family_fixtures.py [--only NAME] [FOLDER]     (needs torch, transformers, safetensors)

With --only one model alone: where torch is another, those of the others differ in their last bits.
Weights and gradients are stored as transformers writes them, "weights." and "gradients." before their
names.
"""
import argparse
import json
import pathlib
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

BATCH, CONTEXT, STEPS = 2, 12, 10
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
SIZES = dict(vocab_size=48, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64)
GROUPED = dict(SIZES, num_key_value_heads=2)

SECTIONS = dict(rope_type="default", rope_theta=1000000.0, mrope_section=[1, 1, 1])
VISION = dict(depth=1, num_heads=2, patch_size=4)

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
    # Twelve tokens are within the original positions of the first, and beyond those of the second.
    "phi3_near": ("Phi3Config", dict(GROUPED, hidden_size=32, original_max_position_embeddings=16,
        rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.3, 1.7],
                          long_factor=[1.2, 2.5, 5.0, 9.0]))),
    "phi3_far": ("Phi3Config", dict(GROUPED, hidden_size=32, original_max_position_embeddings=8,
        partial_rotary_factor=0.75, tie_word_embeddings=True,
        rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.3],
                          long_factor=[1.2, 2.5, 5.0]))),
    "gemma": ("GemmaConfig", dict(GROUPED, head_dim=8)),
    "olmo3": ("Olmo3Config", dict(GROUPED, num_hidden_layers=4, sliding_window=5, rope_scaling=dict(
        rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=16))),
    "starcoder2": ("Starcoder2Config", dict(GROUPED, sliding_window=5)),
    "smollm3": ("SmolLM3Config", dict(GROUPED, num_hidden_layers=4, no_rope_layer_interval=3)),
    # Of these the text part; the other one is as small as it can be.
    "qwen2_vl": ("Qwen2VLConfig", dict(
        text_config=dict(GROUPED, pad_token_id=None, rope_parameters=dict(SECTIONS)),
        vision_config=dict(VISION, embed_dim=16, hidden_size=24, mlp_ratio=2),
        tie_word_embeddings=True)),
    "qwen2_5_vl": ("Qwen2_5_VLConfig", dict(
        text_config=dict(GROUPED, pad_token_id=None, use_sliding_window=True, sliding_window=5,
                         max_window_layers=1, rope_parameters=dict(SECTIONS)),
        vision_config=dict(VISION, hidden_size=16, out_hidden_size=24, intermediate_size=20,
                           fullatt_block_indexes=[0]))),
    "stablelm": ("StableLmConfig", dict(GROUPED, hidden_size=32, partial_rotary_factor=0.75,
                                        layer_norm_eps=1e-3, use_qkv_bias=True)),
}


def model_of(kind, fields):
    """A model of random weights, without a padding token: its row of the embedding gets no gradient."""
    is_part = "text_config" in fields
    config = getattr(transformers, kind)(**(fields if is_part else dict(fields, pad_token_id=None)),
                                         attn_implementation="eager")
    auto = transformers.AutoModelForImageTextToText if is_part else transformers.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # norms and biases start as ones and zeros, which hides mistakes
        for x in model.parameters():
            x.add_(0.1 * torch.randn_like(x))
    return model


def text_parameters(model):
    """By the names that files have; of a multimodal model those of its text."""
    return {name.replace("model.language_model.", "model."): x for name, x in model.named_parameters()
            if "visual" not in name}


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "model.safetensors")
        return {name: x for name, x in tensors.items() if not name.startswith("visual.")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path, nargs="?",
                        default=pathlib.Path(__file__).parent / "families")
    parser.add_argument("--only", metavar="NAME", choices=MODELS)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, (kind, fields)) in enumerate(MODELS.items()):
        if options.only not in (None, name):
            continue
        torch.manual_seed(1000 + index)
        model = model_of(kind, fields)
        model.train()
        tokens = torch.randint(0, 48, (BATCH, CONTEXT))
        targets = torch.randint(0, 48, (BATCH, CONTEXT))
        tensors = {"weights." + k: v for k, v in saved(model).items()}
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        losses = []
        for step in range(STEPS):
            logits = model(tokens, use_cache=False).logits
            loss = F.cross_entropy(logits.reshape(-1, 48), targets.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                tensors |= {"gradients." + k: x.grad.clone() for k, x in text_parameters(model).items()}
                tensors["logits"] = logits.detach().contiguous().clone()
            optimizer.step()
        tensors["tokens"], tensors["targets"] = tokens.contiguous(), targets.contiguous()
        count = sum(x.numel() for x in text_parameters(model).values())
        save_file(tensors, folder / f"{name}.safetensors",
                  metadata={"losses": json.dumps(losses), "adamw": json.dumps(ADAMW),
                            "parameters": str(count),
                            "made_by": f"transformers {transformers.__version__}, "
                                       f"torch {torch.__version__}"})
        text = model.config.to_json_string(use_diff=False)
        (folder / f"{name}.json").write_text(text)
        print(name, count, losses[0], losses[-1])


if __name__ == "__main__":
    main()
