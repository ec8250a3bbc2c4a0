#!/usr/bin/env python3
"""Times one training step of the course's model in PyTorch on the CPU.

Each cell (one mode at one shape) runs in a fresh process, so that its peak resident memory is
its own. Every mode computes the loss: `inference` without autograd, `forward` keeping what
backward needs, `forward-backward` with fresh gradients, `step` with AdamW on top.

    python3 bench/peers/pytorch/bench_step.py --size small --context 128 --mode step --json
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

MODES = ("inference", "forward", "forward-backward", "step")


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=("course", "best"), default="best")
    parser.add_argument("--size", help="a preset such as small; or give the four sizes below")
    parser.add_argument("--d-model", type=int)
    parser.add_argument("--d-ff", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--context", default="512", help="one or several, comma separated")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--mode", default="step", help="comma separated: " + ", ".join(MODES))
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="0 keeps torch's own choice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", choices=("auto", "course", "fused", "foreach", "loop"),
                        default="auto", help="auto: course form its own, best form the first "
                        "of fused, foreach, loop that this torch has")
    parser.add_argument("--attention", choices=("auto", "plain"), default="auto",
                        help="best form: auto takes scaled_dot_product_attention if present")
    parser.add_argument("--norm", choices=("auto", "plain"), default="auto",
                        help="best form: auto takes torch's rms_norm if present")
    parser.add_argument("--compile", action="store_true", help="wrap the loss in torch.compile")
    parser.add_argument("--json", action="store_true", help="one JSON line per cell")
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    for mode in arguments.mode.split(","):
        if mode not in MODES:
            parser.error(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    sizes = (arguments.d_model, arguments.d_ff, arguments.layers, arguments.heads)
    if not arguments.size and None in sizes:
        parser.error("give --size, or all of --d-model --d-ff --layers --heads")
    return arguments


def make_config(arguments, model):
    if arguments.size:
        sizes = dict(model.SIZES[arguments.size])
    else:
        sizes = dict(d_model=arguments.d_model, d_ff=arguments.d_ff, layers=arguments.layers,
                     heads=arguments.heads)
    return model.Config(**sizes, vocab=arguments.vocab, context=int(arguments.context))


def make_model(arguments, model, config):
    parameters = model.init_parameters(config, arguments.seed)
    if arguments.form == "course":
        return model.CourseModel(config, parameters)
    return model.BestModel(config, parameters, use_sdpa=arguments.attention == "auto",
                           use_rms_norm=arguments.norm == "auto")


def make_optimizer(arguments, model, parameters):
    """Returns the optimizer and the name of the variant that this torch turned out to have."""
    lr, decay = 1e-3, 0.1
    wanted = arguments.optimizer
    if wanted == "course" or (wanted == "auto" and arguments.form == "course"):
        return model.CourseAdamW(parameters, lr, decay), "course"
    variants = ("fused", "foreach", "loop") if wanted == "auto" else (wanted,)
    for variant in variants:
        try:
            return model.make_best_adamw(parameters, lr, decay, variant), variant
        except (TypeError, RuntimeError) as problem:
            reason = problem
    raise SystemExit(f"[bench_step] this torch has no {wanted} AdamW: {reason}")


def zero_gradients(parameters):
    for p in parameters:
        p.grad = None


def make_sample(torch, arguments, lm, optimizer, parameters, batch):
    """Returns the function whose one call is one sample."""
    loss_of = torch.compile(lm.loss) if arguments.compile else lm.loss
    mode = arguments.mode

    def inference():
        with torch.no_grad():
            loss_of(*batch)

    def forward():
        loss_of(*batch)

    def forward_backward():
        zero_gradients(parameters)
        loss_of(*batch).backward()

    def step():
        forward_backward()
        optimizer.step()

    return {"inference": inference, "forward": forward, "forward-backward": forward_backward,
            "step": step}[mode]


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_cell(arguments):
    import torch
    import model

    import_rss = peak_rss_bytes()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    config = make_config(arguments, model)
    lm = make_model(arguments, model, config)
    parameters = list(lm.parameters.values())
    optimizer, optimizer_name = None, None
    if arguments.mode == "step":
        optimizer, optimizer_name = make_optimizer(arguments, model, parameters)
    tokens = torch.randint(0, config.vocab, (2, arguments.batch, config.context))
    sample = make_sample(torch, arguments, lm, optimizer, parameters, (tokens[0], tokens[1]))

    warmup_ms, samples_ms = [], []
    for i in range(arguments.warmup + arguments.steps):
        start = time.perf_counter_ns()
        sample()
        elapsed = (time.perf_counter_ns() - start) / 1e6
        (warmup_ms if i < arguments.warmup else samples_ms).append(round(elapsed, 3))
    return {
        "framework": "pytorch", "version": torch.__version__, "form": arguments.form,
        "size": arguments.size or "custom", "d_model": config.d_model, "d_ff": config.d_ff,
        "layers": config.layers, "heads": config.heads, "context": config.context,
        "batch": arguments.batch, "vocab": config.vocab, "mode": arguments.mode,
        "threads": torch.get_num_threads(),
        "attention": "sdpa" if getattr(lm, "use_sdpa", False) else "plain",
        "norm": "rms_norm" if getattr(lm, "use_rms_norm", False) else "plain",
        "optimizer": optimizer_name, "compiled": arguments.compile,
        "parameters": sum(p.numel() for p in parameters),
        "warmup_ms": warmup_ms, "samples_ms": samples_ms,
        "median_ms": round(statistics.median(samples_ms), 3), "min_ms": min(samples_ms),
        "import_rss_bytes": import_rss, "peak_rss_bytes": peak_rss_bytes(),
    }


def print_row(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    print(f"{row['size']} context {row['context']} {row['form']} {row['mode']}: "
          f"median {row['median_ms']:.1f} ms, min {row['min_ms']:.1f} ms, "
          f"peak RSS {row['peak_rss_bytes'] / 2**20:.0f} MiB "
          f"(torch {row['version']}, {row['threads']} threads)", flush=True)


def main():
    arguments = parse_arguments()
    if arguments.cell:
        print(json.dumps(run_cell(arguments)))
        return 0
    status = 0
    for context in arguments.context.split(","):
        for mode in arguments.mode.split(","):
            # The last value of a repeated flag wins, so the cell's own values go behind.
            command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:],
                       "--context", context, "--mode", mode, "--cell"]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if result.returncode != 0:
                print(f"[bench_step] context {context} mode {mode}: the cell failed with exit "
                      f"code {result.returncode}", file=sys.stderr)
                status = 1
                continue
            print_row(json.loads(result.stdout.splitlines()[-1]), arguments.json)
    return status


if __name__ == "__main__":
    sys.exit(main())
