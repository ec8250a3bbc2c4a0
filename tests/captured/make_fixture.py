#!/usr/bin/env python3
"""Writes tiny/: the folder of a captured module as tracestep.capture makes them, and what it computes.

The module embeds tokens, adds a table of positions (a buffer), mixes the tokens before each one by a fixed matrix
(a buffer), and passes two blocks, the second with a frozen weight; its head is the embedding (tied). Loss, logits
and gradients in expected.safetensors are computed here, in float64 and from the chain rule, by nothing but lists.

Usage: python3 make_fixture.py
"""
import json
import math
import random
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent / "tiny"
B, T, V, C, F = 2, 4, 11, 6, 8
DRAW = random.Random(57)


def f32(x):
    """Rounded to float32, which the weights are stored in."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def matrix(rows, columns, spread):
    return [[f32(DRAW.gauss(0, spread)) for _ in range(columns)] for _ in range(rows)]


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, list) else [x]


def shape(x):
    return [len(x), *shape(x[0])] if isinstance(x, list) else []


def product(a, b):
    columns = list(zip(*b))
    return [[math.fsum(p * q for p, q in zip(row, column)) for column in columns] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def added(a, b):
    return [[p + q for p, q in zip(x, y)] for x, y in zip(a, b)]


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, nested lists)."""
    formats = {"F64": "d", "F32": "f", "I64": "q", "BOOL": "?"}
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        bytes_ = struct.pack(f"<{len(flat(values))}{formats[dtype]}", *flat(values))
        header[name] = {"dtype": dtype, "shape": shape(values), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Block:
    """relu(x up' + bias) down', added to x."""

    def __init__(self):
        self.up, self.bias, self.down = matrix(F, C, 0.4), matrix(1, F, 0.2)[0], matrix(C, F, 0.4)

    def forward(self, x):
        self.x = x
        self.wide = [[h + b for h, b in zip(row, self.bias)] for row in product(x, transposed(self.up))]
        self.active = [[max(h, 0.0) for h in row] for row in self.wide]
        return added(x, product(self.active, transposed(self.down)))

    def backward(self, dy):
        """The gradients of x, up, bias and down."""
        d_active = product(dy, self.down)
        d_wide = [[d if h > 0 else 0.0 for d, h in zip(p, q)] for p, q in zip(d_active, self.wide)]
        return (added(dy, product(d_wide, self.up)), product(transposed(d_wide), self.x),
                [math.fsum(column) for column in zip(*d_wide)], product(transposed(dy), self.active))


def main():
    embed, positions = matrix(V, C, 0.5), matrix(T, C, 0.3)
    mix = [[f32(1 / (i + 1)) if j <= i else 0.0 for j in range(T)] for i in range(T)]
    blocks = [Block(), Block()]
    tokens = [[DRAW.randrange(V) for _ in range(T)] for _ in range(B)]
    targets = [[DRAW.randrange(V) for _ in range(T)] for _ in range(B)]

    x = [[e + p for e, p in zip(embed[token], positions[t])] for row in tokens for t, token in enumerate(row)]
    mixed = [row for b in range(B) for row in product(mix, x[b * T:(b + 1) * T])]
    h = blocks[1].forward(blocks[0].forward(mixed))
    logits = product(h, transposed(embed))
    losses, d_logits = [], []
    for row, target in zip(logits, flat(targets)):
        total = math.fsum(math.exp(z) for z in row)
        losses.append(math.log(total) - row[target])
        d_logits.append([(math.exp(z) / total - (j == target)) / (B * T) for j, z in enumerate(row)])
    loss = math.fsum(losses) / (B * T)

    dh = product(d_logits, embed)
    d_embed = product(transposed(d_logits), h)
    dh, _, d_bias1, d_down1 = blocks[1].backward(dh)
    dh, d_up0, d_bias0, d_down0 = blocks[0].backward(dh)
    dx = [row for b in range(B) for row in product(transposed(mix), dh[b * T:(b + 1) * T])]
    for token, row in zip(flat(tokens), dx):
        d_embed[token] = [p + q for p, q in zip(d_embed[token], row)]

    weights = {"embed.weight": embed, "blocks.0.up.weight": blocks[0].up, "blocks.0.up.bias": blocks[0].bias,
               "blocks.0.down.weight": blocks[0].down, "blocks.1.up.weight": blocks[1].up,
               "blocks.1.up.bias": blocks[1].bias, "blocks.1.down.weight": blocks[1].down}
    frozen = "blocks.1.up.weight"
    HERE.mkdir(exist_ok=True)
    write_safetensors(HERE / "weights.safetensors", {k: ("F32", v) for k, v in weights.items()})
    write_safetensors(HERE / "constants.safetensors", {"positions": ("F32", positions), "mix": ("F32", mix)})
    write_safetensors(HERE / "inputs.safetensors", {"ids": ("I64", tokens), "labels": ("I64", targets)})
    gradients = {"embed.weight": d_embed, "blocks.0.up.weight": d_up0, "blocks.0.up.bias": d_bias0,
                 "blocks.0.down.weight": d_down0, "blocks.1.up.bias": d_bias1, "blocks.1.down.weight": d_down1}
    write_safetensors(HERE / "expected.safetensors",
                      {"loss": ("F64", loss), "logits": ("F64", [logits[b * T:(b + 1) * T] for b in range(B)]),
                       **{"grad." + k: ("F64", v) for k, v in gradients.items()}})
    (HERE / "program.txt").write_text(program(weights, frozen))
    index = {"format": 1, "module": "TinyNet", "torch": "2.11.0",
             "inputs": [{"name": "ids", "role": "tokens", "high": V}, {"name": "labels", "role": "targets", "high": V}],
             "tied": {"head.weight": "embed.weight"}, "frozen": [frozen], "buffers": ["positions"],
             "check": {"loss": 1.1e-16, "gradients": 2.3e-15, "worst": "embed.weight"},
             "patterns": {"cross_entropy": 1}, "native": None}
    (HERE / "capture.json").write_text(json.dumps(index, indent=1) + "\n")


def program(weights, frozen):
    """The text, as the exporter writes it."""
    sizes = lambda x: ",".join(map(str, shape(x)))
    lines = [f"input %ids : i64[{B},{T}]", f"input %labels : i64[{B},{T}]"]
    lines += [f"{'constant' if name == frozen else 'parameter'} %{name} : f32[{sizes(x)}]" for name, x in weights.items()]
    lines += [f"constant %positions : f32[{T},{C}]", f"constant %mix : f32[{T},{T}]"]
    count = 0

    def node(type_, call, path, line):
        nonlocal count
        lines.append(f"%{count} : {type_} = {call} @ {path} forward tiny_net.py:{line}")
        count += 1
        return f"%{count - 1}"

    n = B * T
    x = node(f"f32[{B},{T},{C}]", "gather(%embed.weight, %ids)", "embed", 31)
    p = node(f"f32[{B},{T},{C}]", f"broadcast(%positions) {{shape=[{B},{T},{C}]}}", ".", 32)
    x = node(f"f32[{B},{T},{C}]", f"add({x}, {p})", ".", 32)
    m = node(f"f32[{B},{T},{T}]", f"broadcast(%mix) {{shape=[{B},{T},{T}]}}", "mixer", 12)
    x = node(f"f32[{B},{T},{C}]", f"matmul({m}, {x})", "mixer", 12)
    x = node(f"f32[{n},{C}]", f"reshape({x}) {{shape=[{n},{C}]}}", "mixer", 12)
    for i in range(2):
        block = f"blocks.{i}"
        h = node(f"f32[{n},{F}]", f"matmul({x}, %{block}.up.weight) {{transpose_b=true}}", block + ".up", 20)
        bias = node(f"f32[{n},{F}]", f"broadcast(%{block}.up.bias) {{shape=[{n},{F}]}}", block + ".up", 20)
        h = node(f"f32[{n},{F}]", f"add({h}, {bias})", block + ".up", 20)
        h = node(f"f32[{n},{F}]", f"relu({h})", block, 21)
        h = node(f"f32[{n},{C}]", f"matmul({h}, %{block}.down.weight) {{transpose_b=true}}", block + ".down", 21)
        x = node(f"f32[{n},{C}]", f"add({x}, {h})", block, 21)
    z = node(f"f32[{n},{V}]", f"matmul({x}, %embed.weight) {{transpose_b=true}}", "head", 34)
    logits = node(f"f32[{B},{T},{V}]", f"reshape({z}) {{shape=[{B},{T},{V}]}}", "head", 34)
    t = node(f"i64[{n}]", f"reshape(%labels) {{shape=[{n}]}}", "loss", 40)
    lines.append(f"%{count}, %{count + 1} : f32[], f32[{n}] = cross_entropy({z}, {t}) @ loss forward train.py:40")
    lines += [f'output "loss" = %{count}', f'output "logits" = {logits}']
    return 'program "TinyNet" {\n' + "".join(f"  {line}\n" for line in lines) + "}\n"


if __name__ == "__main__":
    main()
