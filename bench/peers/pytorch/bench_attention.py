#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention on the CPU: forward, and backward apart from it.

One process per cell, as compare_attention_cpu.py runs them; prints one JSON object.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F

DTYPES = {"fp32": torch.float32, "bf16-pure": torch.bfloat16}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--precision", choices=DTYPES, default="fp32")
    parser.add_argument("--threads", type=int, default=0, help="0 keeps torch's own choice")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--max-seconds", type=float, default=10.0, help="of timed steps")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    shape = (arguments.batch, 1, arguments.context, arguments.width)
    q, k, v = (torch.rand(shape).mul_(2).sub_(1).to(DTYPES[arguments.precision])
               .requires_grad_() for _ in range(3))
    upstream = torch.rand(shape).to(q.dtype)
    forward, backward, start = [], [], None
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            start = time.perf_counter()
        begin = time.perf_counter()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        middle = time.perf_counter()
        y.backward(upstream)
        end = time.perf_counter()
        q.grad = k.grad = v.grad = None
        if start is not None:
            forward.append(1e3 * (middle - begin))
            backward.append(1e3 * (end - middle))
            if end - start > arguments.max_seconds:
                break
    print(json.dumps({"version": torch.__version__, "forward_ms": forward,
                      "backward_ms": backward}))


if __name__ == "__main__":
    main()
