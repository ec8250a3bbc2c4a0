#!/usr/bin/env python3
"""A training loop as nanoGPT has it, with its three lines changed; --plain is the loop before.

    python examples/in_process/gpt_loop.py [--plain] [--steps 20] [--program build/tracestep]
"""
import argparse
import math

import torch
import tracestep
from torch import nn
from torch.nn import functional as F

TEXT = ("A training step is a program. It reads a batch of tokens, guesses each next token, and says how wrong it was: "
        "the loss. It walks back through everything it did and finds, for each weight, in which direction the loss "
        "falls: the gradient. Then it takes a small step that way. ") * 4
BATCH, CONTEXT, WIDTH, HEADS, LAYERS = 4, 32, 32, 4, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (y.unflatten(2, (HEADS, -1)).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        for p in self.parameters():
            nn.init.normal_(p, 1.0 if p.dim() < 2 else 0.0, 0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(data, generator):
    at = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator).tolist()
    return torch.stack([data[i:i + CONTEXT] for i in at]), torch.stack([data[i + 1:i + 1 + CONTEXT] for i in at])


def learning_rate(step, steps, most=1e-2):
    return most * 0.5 * (1 + math.cos(math.pi * step / steps))


def train(steps, plain=False):
    """The losses, and the model."""
    torch.manual_seed(1337)
    model = GPT()
    data = torch.tensor(list(TEXT.encode()))
    generator = torch.Generator().manual_seed(0)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.95))
    step = None if plain else tracestep.step(model, optimizer=optimizer, clip=1.0)  # 1. new
    losses = []
    for i in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(i, steps)
        idx, targets = get_batch(data, generator)
        if plain:
            _, loss = model(idx, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        else:
            loss = step(idx, targets)  # 2. instead of the five lines above
        losses.append(float(loss.detach()))
    if step:
        step.release()  # 3. new, where the model lives on
    return losses, model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--program")
    options = parser.parse_args()
    if options.program:
        tracestep.use(options.program)
    for number, value in enumerate(train(options.steps, options.plain)[0], 1):
        print(f"step {number:2}  loss {value:.4f}")
