#!/usr/bin/env python3
"""tracestep.step on a GPU, in PyTorch's process: one allocator, one context, streams, threads, and memory that ends.

    tests/python/step_gpu_test.py --program build-cuda/tracestep [-k PATTERN]

Ends with status 77, which is called skipped, where there is no torch or no GPU.
"""
import os
import pathlib
import subprocess
import sys
import threading
import unittest

import step_test
from step_test import GPT, apart, batch, grouped, made, two  # noqa: F401: GPT for scripts

import torch
import tracestep

if not torch.cuda.is_available():
    print("skipped: there is no GPU")
    sys.exit(77)


def pair(seed=0, **options):
    return tuple(m.cuda() for m in two(seed=seed, **options))


def rows(i, count=2):
    return [x.cuda() for x in batch(i, count)]


def plain(model, optimizer, data, clip=0.0):
    return step_test.plain_step(model, optimizer, [data], clip)


def in_another_process(lines, *words):
    """What a script prints that has this file as `t`."""
    head = ("import sys; sys.argv = ['x']; sys.path[:0] = [%r, %r]\nimport step_gpu_test as t, torch, tracestep\n"
            "tracestep.use(%r)\n" % (str(step_test.ROOT / "python"), str(pathlib.Path(__file__).parent), step_test.PROGRAM))
    return subprocess.run([sys.executable, "-c", head + lines, *words], capture_output=True, text=True, timeout=300)


class GpuTest(unittest.TestCase):
    def test_twenty_steps_are_pytorchs_but_for_rounding(self):
        model, other = pair(layers=2)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer, clip=0.5, check=True)
        for i in range(20):
            self.assertAlmostEqual(float(step(*rows(i))), plain(other, its, rows(i), 0.5), delta=1e-4)
        self.assertLess(apart(model, other), 1e-3)

    def test_nothing_is_copied_and_turns_are_taken(self):
        model, other = pair()
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        step(*rows(0))
        plain(other, its, rows(0))
        places = [x.data_ptr() for p in model.parameters() for x in (p, optimizer.state[p]["exp_avg"])]
        for i in range(1, 7):
            if i % 2:
                plain(model, optimizer, rows(i))
            else:
                step(*rows(i))
            plain(other, its, rows(i))
        self.assertEqual(places, [x.data_ptr() for p in model.parameters() for x in (p, optimizer.state[p]["exp_avg"])])
        self.assertLess(apart(model, other), 1e-3)
        size = step.bytes()
        self.assertEqual(size["lent"] + size["own"], size["peak"])

    def test_a_stream_of_ones_own_orders_steps_and_reads(self):
        model, other = pair()
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for i in range(8):
                ids, targets = (x.clone() for x in rows(i))
                step(ids, targets)
                ids.zero_(), targets.zero_()  # of this stream: behind the step
            copies = [p.detach().clone() for p in model.parameters()]
        stream.synchronize()
        for i in range(8):
            plain(other, its, rows(i))
        self.assertLess(max(float((p - q).abs().max()) for p, q in zip(copies, other.parameters())), 1e-3)

    def test_two_steps_in_two_threads(self):
        pairs = [pair(seed) for seed in (1, 2)]
        steps = [made(model, optimizer=grouped(model)) for model, _ in pairs]
        for step in steps:
            step(*rows(0))
        failed = []

        def work(step):
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    for i in range(1, 10):
                        step(*rows(i))
                    torch.cuda.current_stream().synchronize()
            except Exception as problem:  # of a thread, which would end unseen
                failed.append(problem)

        threads = [threading.Thread(target=work, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        for model, other in pairs:
            its = grouped(other)
            for i in range(10):
                plain(other, its, rows(i))
            self.assertLess(apart(model, other), 1e-3)

    def test_memory_that_ends_is_an_exception_and_the_next_step_runs(self):
        model, other = pair()
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        step(*rows(0))
        torch.cuda.empty_cache()
        held = [torch.empty(torch.cuda.mem_get_info()[0] - (256 << 20), dtype=torch.uint8, device="cuda")]
        wide = [x.cpu().repeat(400_000, 1) for x in rows(1)]  # its logits alone are 700 MB
        with self.assertRaises((tracestep.OutOfMemoryError, torch.cuda.OutOfMemoryError)):
            step(*[x.cuda() for x in wide])
        del held, wide
        torch.cuda.empty_cache()
        step(*rows(1))
        for i in range(2):
            plain(other, its, rows(i))
        self.assertLess(apart(model, other), 1e-3)

    def test_a_capture_of_pytorchs_is_not_entered(self):
        model, _ = pair()
        step = made(model, optimizer=grouped(model))
        data = rows(0)
        step(*data)
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(4, device="cuda")
        with torch.cuda.graph(graph):
            x += 1
            with self.assertRaisesRegex(tracestep.Error, "graph"):
                step(*data)
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(float(x[0]), 2.0)
        self.assertGreater(float(step(*data)), 0)

    def test_an_exception_in_the_loop_leaves_a_step_that_goes_on(self):
        model, _ = pair()
        step = made(model, optimizer=grouped(model))
        step(*rows(0))
        with self.assertRaises(KeyError):
            for i in range(3):
                step(*rows(i))
                if i == 1:
                    raise KeyError
        self.assertGreater(float(step(*rows(3))), 0)

    def test_a_fork_is_refused_and_its_parent_goes_on(self):
        model, _ = pair()
        step = made(model, optimizer=grouped(model))
        data = rows(0)
        step(*data)
        child = os.fork()
        if child == 0:
            try:
                step(*data)
            except tracestep.Error as problem:
                os._exit(7 if "fork" in str(problem) else 1)
            except BaseException:
                os._exit(3)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        step(*data)

    def test_a_process_ends_quietly_with_a_step_alive(self):
        done = in_another_process("m, _ = t.pair(); s = t.made(m, optimizer=t.grouped(m))\nprint(float(s(*t.rows(0))) > 0)\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\n", ""))

    def test_bf16_in_less_memory_than_pytorchs(self):
        lines = ("sizes = []\n"
                 "for ours in (False, True):\n"
                 "    torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); base = torch.cuda.memory_allocated()\n"
                 "    torch.manual_seed(0)\n"
                 "    m = t.GPT(width=256, layers=4).cuda(); o = t.grouped(m)\n"
                 "    ids, targets = (x.repeat(512, 1) for x in t.rows(0))\n"
                 "    s = t.made(m, optimizer=o, precision='bf16') if ours else None\n"
                 "    for _ in range(3):\n"
                 "        if ours:\n"
                 "            s(ids, targets)\n"
                 "        else:\n"
                 "            o.zero_grad()\n"
                 "            with torch.autocast('cuda', torch.bfloat16):\n"
                 "                loss = m(ids, targets)\n"
                 "            loss.backward(); o.step(); del loss\n"
                 "    sizes.append(torch.cuda.max_memory_allocated() - base + (s.bytes()['own'] if ours else 0))\n"
                 "    del m, o\n"
                 "print(sizes[1] <= sizes[0], sizes)\n")
        done = in_another_process(lines)
        self.assertTrue(done.stdout.startswith("True"), done.stdout + done.stderr)

    @unittest.skipUnless(torch.cuda.device_count() > 1, "needs two GPUs")
    def test_steps_of_two_devices_take_turns(self):
        pairs = [tuple(m.to(f"cuda:{d}") for m in two(seed=d)) for d in (0, 1)]
        steps = [made(model, optimizer=grouped(model)) for model, _ in pairs]
        for i in range(6):
            for d, step in enumerate(steps):
                step(*[x.to(f"cuda:{d}") for x in batch(i)])
        for d, (model, other) in enumerate(pairs):
            its = grouped(other)
            for i in range(6):
                plain(other, its, [x.to(f"cuda:{d}") for x in batch(i)])
            self.assertLess(apart(model, other), 1e-3)


if __name__ == "__main__":
    step_test.main()
