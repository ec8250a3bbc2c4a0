#!/usr/bin/env python3
"""Rounding errors of tracestep and of PyTorch autocast, both against float64, on the same model.

Random weights and tokens are written to files. PyTorch computes the logits in float64, and in each
precision under autocast (float32: as it is, IEEE); tracestep writes its own for the same batch. Of
each it is printed how far the loss of a sequence is off (root mean square over sequences) and the
logits are (relative L2 norm), and tracestep's error over PyTorch's.

    python3 bench/peers/pytorch/compare_precision.py --device cuda --tracestep build-cuda/tracestep
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch

import model

DTYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def save_safetensors(path, tensors):
    header, offset = {}, 0
    for name, x in tensors.items():
        size = x.numel() * x.element_size()
        header[name] = {"dtype": NAMES[x.dtype], "shape": list(x.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(x.contiguous().numpy().tobytes())


def load_safetensors(path, name):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + length])[name]
    dtype = {v: k for k, v in NAMES.items()}[entry["dtype"]]
    begin, end = (8 + length + o for o in entry["data_offsets"])
    return torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(entry["shape"])


def losses(logits, targets):
    """One per sequence, in float64 from logits of any dtype."""
    flat = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten(),
                                             reduction="none")
    return flat.reshape(targets.shape).mean(1)


def errors(logits, expected, targets):
    loss = losses(logits, targets) - losses(expected, targets)
    off = (logits.double() - expected).norm() / expected.norm()
    return float(loss.square().mean().sqrt()), float(off)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tracestep", default="build-cuda/tracestep", metavar="FILE")
    parser.add_argument("--precisions", default="fp32,tf32,bf16,fp16")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    config = model.Config(d_model=arguments.d_model, d_ff=4 * arguments.d_model,
                          layers=arguments.layers, heads=arguments.d_model // 64, vocab=10000,
                          context=arguments.context)
    parameters = model.init_parameters(config, seed=0)
    stream = torch.randint(0, config.vocab, (arguments.batch * arguments.context + 1,))
    tokens = stream[:-1].reshape(arguments.batch, -1)
    targets = stream[1:].reshape(arguments.batch, -1)

    def torch_logits(dtype, autocast=None):
        own = {n: p.detach().to(arguments.device, dtype) for n, p in parameters.items()}
        lm = model.CourseModel(config, own)
        with torch.no_grad(), torch.autocast(arguments.device.split(":")[0], autocast,
                                             enabled=autocast is not None):
            return lm.logits(tokens.to(arguments.device)).cpu()

    expected = torch_logits(torch.float64)
    print(f"torch {torch.__version__}, {arguments.layers} layers, width {arguments.d_model}, batch "
          f"{arguments.batch}, context {arguments.context}; root mean square error of a sequence's "
          "loss, relative error of the logits")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_safetensors(folder / "weights.safetensors",
                         {n: p.detach().float() for n, p in parameters.items()})
        (folder / "tokens.bin").write_bytes(stream.to(torch.int32).numpy().tobytes())
        for precision in arguments.precisions.split(","):
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            theirs = errors(torch_logits(torch.float32, DTYPES[precision]), expected, targets)
            for ops in ("primitive", "fused"):
                out = folder / "logits.safetensors"
                subprocess.run([arguments.tracestep, "eval", "--device", arguments.device,
                                "--init", folder / "weights.safetensors", "--heads",
                                str(config.heads), "--tokens", folder / "tokens.bin",
                                "--token-dtype", "uint32", "--batch", str(arguments.batch),
                                "--context", str(arguments.context), "--batches", "1",
                                "--precision", precision, "--ops", ops, "--logits", out],
                               check=True, stdout=subprocess.DEVNULL)
                ours = errors(load_safetensors(out, "logits"), expected, targets)
                ratio = ours[0] / theirs[0]
                if DTYPES[precision] is not None:  # float32's own errors are noise of 1e-8
                    worst = max(worst, ratio)
                print(f"{precision:5} {ops:9}  loss: PyTorch {theirs[0]:.2e}, tracestep "
                      f"{ours[0]:.2e}, ratio {ratio:.2f};  logits: {theirs[1]:.2e}, {ours[1]:.2e}, "
                      f"ratio {ours[1] / theirs[1]:.2f}", flush=True)
    print(f"largest ratio of the losses' errors in 16 bits: {worst:.2f}")
    return 0 if worst <= 2.0 else 1


if __name__ == "__main__":
    sys.exit(main())
