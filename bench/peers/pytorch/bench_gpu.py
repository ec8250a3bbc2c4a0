#!/usr/bin/env python3
"""Times training steps of the course's model in PyTorch on a GPU: many cells in one process.

Forms: `course` (elementary operations and einsum, run eagerly, its own AdamW), `course-compiled`
(the same under torch.compile), `best` (merged projections, library attention and norm, blocks
under torch.compile, fused AdamW), `best-eager` (the same without torch.compile) and `graph` (the
whole step of `best` captured once in a CUDA graph and replayed). Precisions: `fp32` is IEEE
(TF32 off), `tf32` lets products use it, `bf16` and `fp16` are autocast over float32 parameters;
fp16 trains with torch's gradient scaler; `fp8` and `fp8-row` are bf16 with torchao's products in the
blocks. `inference` ends with the logits, as in tracestep; the
other modes have a loss. A cell that runs out of memory says so in its status,
and the next one runs.

    python3 bench/peers/pytorch/bench_gpu.py --size small --context 128,512 --form course,graph

With --serve the cells come as JSON lines on stdin, and each is answered with a line per mode;
compare_gpu.py uses this to let PyTorch and tracestep take turns.
"""

import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import float8
import model

MODES = ("inference", "forward", "forward-backward", "step")
FORMS = ("course", "course-compiled", "best", "best-eager", "graph")
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16,
            **{p: torch.bfloat16 for p in float8.RECIPES}}  # of all but the blocks' products
PRECISIONS = ("fp32", "tf32", *AUTOCAST)
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.1
CAPTURE_WARMUP = 3  # runs on a side stream before a capture, as torch's documentation asks for
OutOfMemory = torch.cuda.OutOfMemoryError


class Clock:
    """Wall, issue and event times of calls; on the CPU there are no events."""

    def __init__(self, device):
        self.is_cuda = device.type == "cuda"
        self.wall_ms, self.issue_ms, self.event_ms = [], [], []
        if self.is_cuda:
            self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def time(self, sample):
        self.synchronize()
        begin = time.perf_counter_ns()
        if self.is_cuda:
            self.start.record()
        sample()
        if self.is_cuda:
            self.end.record()
        issued = time.perf_counter_ns()
        self.synchronize()
        end = time.perf_counter_ns()
        self.wall_ms.append(round((end - begin) / 1e6, 4))
        self.issue_ms.append(round((issued - begin) / 1e6, 4))
        if self.is_cuda:
            self.event_ms.append(round(self.start.elapsed_time(self.end), 4))


class Runner:
    """One model in one form and precision: samples of any mode, captured where asked for."""

    def __init__(self, cell, device):
        self.cell, self.device = cell, device
        self.is_graph = cell["form"] == "graph"
        self.is_course = cell["form"].startswith("course")
        precision = cell["precision"]
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        self.autocast_dtype = AUTOCAST.get(precision)
        self.scaler = torch.amp.GradScaler(device.type) if precision == "fp16" else None
        sizes = {k: cell[k] for k in ("d_model", "d_ff", "layers", "heads") if cell.get(k)}
        config = model.Config(**{**model.SIZES.get(cell["size"], {}), **sizes},
                              vocab=cell["vocab"], context=cell["context"])
        torch.manual_seed(cell["seed"])
        start = model.init_parameters(config, cell["seed"], device=device)
        if self.is_course:
            if precision in float8.RECIPES:
                raise ValueError(f"the course's forms have no {precision}")
            self.model = model.CourseModel(config, start, use_einsum=True)
        else:
            self.model = model.BestModel(config, start,
                                         compile_blocks=cell["form"] in ("best", "graph"),
                                         linear=float8.linear_of(precision)
                                         if precision in float8.RECIPES else F.linear)
        self.parameters = list(self.model.parameters.values())
        self.loss_of, self.logits_of = self.model.loss, self.model.logits
        if cell["form"] == "course-compiled":
            self.loss_of = torch.compile(self.model.loss, dynamic=False)
            self.logits_of = torch.compile(self.model.logits, dynamic=False)
        shape = (2, cell["batch"], config.context)
        self.batch = tuple(torch.randint(0, config.vocab, shape, device=device))
        self.optimizer = None
        self.last_loss = None

    def autocast(self):
        if self.autocast_dtype is None:
            return contextlib.nullcontext()
        # Inside a capture no cast may be kept from outside it; a weight is used once anyway.
        return torch.autocast(self.device.type, self.autocast_dtype,
                              cache_enabled=not self.is_graph)

    def loss(self):
        with self.autocast():
            loss = self.loss_of(*self.batch)
        self.last_loss = loss.detach()  # what backward would need dies with the sample
        return loss

    def inference(self):
        with torch.no_grad(), self.autocast():
            self.logits_of(self.batch[0])

    def forward(self):
        self.loss()

    def forward_backward(self):
        self.zero_gradients()
        loss = self.loss()
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def step(self):
        self.forward_backward()
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def zero_gradients(self):
        for p in self.parameters:
            p.grad = None

    def make_optimizer(self):
        if self.is_course:
            return model.CourseAdamW(self.parameters, LEARNING_RATE, WEIGHT_DECAY)
        return model.make_best_adamw(self.parameters, LEARNING_RATE, WEIGHT_DECAY,
                                     capturable=self.is_graph)

    def sample_of(self, mode):
        """The function whose one call is one sample."""
        if mode == "step" and self.optimizer is None:
            self.optimizer = self.make_optimizer()
        sample = {"inference": self.inference, "forward": self.forward,
                  "forward-backward": self.forward_backward, "step": self.step}[mode]
        return self.captured(sample) if self.is_graph else sample

    def captured(self, sample):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARMUP):
                sample()
        torch.cuda.current_stream().wait_stream(side)
        self.release()  # so that gradients are born inside the capture
        torch.cuda.reset_peak_memory_stats()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sample()
        return graph.replay

    def release(self):
        """Drops what a mode leaves behind."""
        self.zero_gradients()
        self.last_loss = None


def measure(runner, mode):
    """Times, peak and loss of one mode, as the fields of its row."""
    cell, is_cuda = runner.cell, runner.device.type == "cuda"
    sample = runner.sample_of(mode)
    warmup, clock = Clock(runner.device), Clock(runner.device)
    for _ in range(cell["warmup"]):
        warmup.time(sample)
    gc.collect()
    if is_cuda and not runner.is_graph:  # a graph allocates when it is captured, never again
        torch.cuda.reset_peak_memory_stats()
    for _ in range(cell["steps"]):
        clock.time(sample)
    row = {"status": "ok", "warmup_ms": warmup.wall_ms, "samples_ms": clock.wall_ms,
           "median_ms": statistics.median(clock.wall_ms), "min_ms": min(clock.wall_ms),
           "issue_ms": statistics.median(clock.issue_ms), "peak_bytes": None}
    if is_cuda:
        row.update(event_ms=statistics.median(clock.event_ms),
                   peak_bytes=torch.cuda.max_memory_allocated(),
                   reserved_bytes=torch.cuda.max_memory_reserved())
    row["loss"] = None if runner.last_loss is None else float(runner.last_loss)
    runner.release()
    return row


def attempt(work):
    """What `work` returns, or the status of how it failed; nothing of it stays alive."""
    try:
        return work()
    except OutOfMemory as problem:
        return {"status": "oom", "detail": str(problem).splitlines()[0]}
    except Exception as problem:  # the cells after this one still count
        text = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        return {"status": "error", "detail": f"{type(problem).__name__}: {text}"}


def free_memory(device):
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def run_cell(cell, device):
    """Yields a row per mode; one model serves all modes."""
    known = {"framework": "pytorch", "version": torch.__version__,
             **{k: cell[k] for k in ("form", "size", "context", "batch", "vocab", "precision")}}
    if hasattr(torch, "_dynamo"):
        torch._dynamo.reset()  # nothing compiled for another shape stays
    holder = {}
    failed = attempt(lambda: holder.update(runner=Runner(cell, device)))
    for mode in cell["modes"]:
        row = failed or attempt(lambda: measure(holder["runner"], mode))
        if row["status"] != "ok" and "runner" in holder:
            holder["runner"].release()
        free_memory(device)
        yield {**known, "mode": mode, **row}
    holder.clear()
    free_memory(device)


def describe(device):
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": "cpu",
             "python": sys.version.split()[0]}
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        about.update(device=facts.name, memory_bytes=facts.total_memory,
                     multiprocessors=facts.multi_processor_count,
                     capability=f"{facts.major}.{facts.minor}",
                     cudnn=torch.backends.cudnn.version())
    return about


def serve(device, rows_of=run_cell, about=None):
    """Cells in, rows out, one JSON object a line; {"end": true} closes the rows of a cell."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is not an answer

    def answer(what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    answer({**describe(device), **(about or {})})
    for line in sys.stdin:
        for row in rows_of(json.loads(line), device):
            answer(row)
        answer({"end": True})


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = "comma separated: "
    parser.add_argument("--form", default="course,best,graph", help=choice + ", ".join(FORMS))
    parser.add_argument("--size", default="small", help=choice + ", ".join(model.SIZES))
    parser.add_argument("--context", default="512", help="comma separated")
    parser.add_argument("--mode", default="step", help=choice + ", ".join(MODES))
    parser.add_argument("--precision", default="fp32", help=choice + ", ".join(PRECISIONS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N; cpu tries the script out")
    parser.add_argument("--json", action="store_true", help="one JSON line per cell")
    parser.add_argument("--serve", action="store_true", help="cells as JSON lines on stdin")
    arguments = parser.parse_args()
    for flag, known in (("form", FORMS), ("size", model.SIZES), ("mode", MODES),
                        ("precision", PRECISIONS)):
        for value in getattr(arguments, flag).split(","):
            if value not in known:
                parser.error(f"unknown {flag} {value!r}; known: {', '.join(known)}")
    return arguments


def print_row(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    name = (f"{row['size']} context {row['context']} {row['precision']} {row['form']} "
            f"{row['mode']}")
    if row["status"] != "ok":
        print(f"{name}: {row['status']} ({row['detail']})", flush=True)
        return
    peak = row["peak_bytes"]
    print(f"{name}: median {row['median_ms']:.3f} ms, min {row['min_ms']:.3f} ms, issue "
          f"{row['issue_ms']:.3f} ms" + (f", peak {peak / 2**20:.1f} MiB" if peak else ""),
          flush=True)


def main():
    arguments = parse_arguments()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("[bench_gpu] this torch sees no GPU")
    if arguments.serve:
        serve(device)
        return 0
    status = 0
    for size in arguments.size.split(","):
        for context in arguments.context.split(","):
            for precision in arguments.precision.split(","):
                for form in arguments.form.split(","):
                    cell = {"size": size, "context": int(context), "precision": precision,
                            "form": form, "modes": arguments.mode.split(","),
                            "batch": arguments.batch, "vocab": arguments.vocab,
                            "warmup": arguments.warmup, "steps": arguments.steps,
                            "seed": arguments.seed}
                    for row in run_cell(cell, device):
                        print_row(row, arguments.json)
                        status = 1 if row["status"] == "error" else status
    return status


if __name__ == "__main__":
    sys.exit(main())
