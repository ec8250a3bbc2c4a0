#!/usr/bin/env python3
"""Writes the golden values of one tiny model, computed by PyTorch in float64 and float32.

Weights and tokens come from Python's own generator, so they are the same bits under any torch
version; computed values agree between versions to the last few bits. Run from anywhere:
    python3 tests/golden/make_fixtures.py
"""

import array
import json
import math
import pathlib
import random
import struct
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "peers" / "pytorch"))
import model  # noqa: E402

CONFIG = model.Config(d_model=32, d_ff=64, layers=2, heads=4, vocab=97, context=16)
BATCH = 3
STEPS = 10
TOKEN_COUNT = 2000
SEED = 20240531
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.1
CLIP = 1.0

SAFETENSORS_DTYPES = {torch.float64: "F64", torch.int64: "I64", torch.float32: "F32"}
ARRAY_CODES = {torch.float64: "d", torch.int64: "q", torch.float32: "f"}


def write_safetensors(path, tensors):
    """Widest dtype first, then by name; the header is padded so that data starts at 8 bytes."""
    order = sorted(tensors, key=lambda n: (-tensors[n].element_size(), n))
    header = {"__metadata__": {"format": "pt"}}
    blobs, offset = [], 0
    for name in order:
        tensor = tensors[name].detach().contiguous()
        blob = array.array(ARRAY_CODES[tensor.dtype], tensor.flatten().tolist()).tobytes()
        header[name] = {
            "dtype": SAFETENSORS_DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def truncated_normal(generator, sigma):
    while True:
        value = generator.gauss(0.0, sigma)
        if abs(value) <= 3.0 * sigma:
            return value


def make_weights():
    """The model's own initialisation, but norm weights scatter around 1 so that they count."""
    generator = random.Random(SEED)
    weights = {}
    for name, shape in model.parameter_shapes(CONFIG).items():
        if len(shape) == 1:
            values = [1.0 + truncated_normal(generator, 0.1) for _ in range(shape[0])]
        else:
            embedding = name == "token_embeddings.weight"
            sigma = 1.0 if embedding else math.sqrt(2.0 / sum(shape))
            values = [truncated_normal(generator, sigma) for _ in range(shape[0] * shape[1])]
        weights[name] = torch.tensor(values, dtype=torch.float32).reshape(shape)
    return weights


def make_tokens():
    """A noisy affine walk: predictable enough for the loss to fall within ten steps."""
    generator = random.Random(SEED + 1)
    tokens = [generator.randrange(CONFIG.vocab)]
    while len(tokens) < TOKEN_COUNT:
        tokens.append((3 * tokens[-1] + 7 + generator.randrange(4)) % CONFIG.vocab)
    return tokens


def sequential_batch(tokens, step):
    """Row b of step s starts at token (s*B+b)*T; targets are one token later; reading wraps."""
    rows = []
    for row in range(BATCH):
        start = (step * BATCH + row) * CONFIG.context
        rows.append([tokens[(start + i) % len(tokens)] for i in range(CONFIG.context + 1)])
    both = torch.tensor(rows, dtype=torch.int64)
    return both[:, :-1], both[:, 1:]


def new_model(weights, dtype):
    return model.CourseModel(CONFIG, {n: w.to(dtype) for n, w in weights.items()})


def first_batch(weights, tokens, dtype):
    """Logits and gradients of the mean cross-entropy of batch 0, rounded to float32."""
    lm = new_model(weights, dtype)
    inputs, targets = sequential_batch(tokens, 0)
    logits = lm.logits(inputs)
    model.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    expected = {"logits": logits.detach().float()}
    for name, parameter in lm.parameters.items():
        expected[f"grad.{name}"] = parameter.grad.float()
    return expected


def train(weights, tokens, dtype, clip):
    """Ten AdamW steps; losses are from before the update, norms from before clipping."""
    lm = new_model(weights, dtype)
    optimizer = model.CourseAdamW(lm.parameters.values(), LEARNING_RATE, WEIGHT_DECAY)
    losses, norms = [], []
    for step in range(STEPS):
        loss = lm.loss(*sequential_batch(tokens, step))
        loss.backward()
        norms.append(model.clip_gradients(lm.parameters.values(), clip))
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, {n: p.detach().float() for n, p in lm.parameters.items()}


def relative_l2(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def describe_run(weights, tokens, clip):
    losses64, norms64, after64 = train(weights, tokens, torch.float64, clip)
    losses32, norms32, after32 = train(weights, tokens, torch.float32, clip)
    drift = max(relative_l2(after32[n], after64[n]) for n in after64)
    run = {
        "clip": clip,
        "losses": losses64,
        "losses_float32": losses32,
        "grad_norms": norms64,
        "grad_norms_float32": norms32,
        "float32_weight_drift_relative_l2": drift,
    }
    return run, after64


def main():
    torch.set_num_threads(1)
    weights, tokens = make_weights(), make_tokens()
    write_safetensors(HERE / "tiny_weights.safetensors", weights)
    (HERE / "tiny_tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))

    expected = first_batch(weights, tokens, torch.float64)
    write_safetensors(HERE / "tiny_expected.safetensors", expected)
    single = first_batch(weights, tokens, torch.float32)
    noise = {n: relative_l2(single[n], expected[n]) for n in expected}

    unclipped, after = describe_run(weights, tokens, 0.0)
    clipped, after_clipped = describe_run(weights, tokens, CLIP)
    write_safetensors(HERE / "tiny_weights_after10.safetensors", after)
    write_safetensors(HERE / "tiny_weights_after10_clipped.safetensors", after_clipped)
    report = {
        "model": {"d_model": CONFIG.d_model, "d_ff": CONFIG.d_ff, "layers": CONFIG.layers,
                  "heads": CONFIG.heads, "vocab": CONFIG.vocab, "context": CONFIG.context,
                  "batch": BATCH},
        "optimizer": {"learning_rate": LEARNING_RATE, "weight_decay": WEIGHT_DECAY,
                      "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "steps": STEPS},
        "float32_noise_relative_l2": {
            "logits": noise["logits"],
            "worst_gradient": max(v for n, v in noise.items() if n != "logits"),
        },
        "unclipped": unclipped,
        "clipped": clipped,
    }
    (HERE / "tiny_training.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
