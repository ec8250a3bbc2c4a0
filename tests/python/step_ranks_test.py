#!/usr/bin/env python3
"""tracestep.step in the two processes of torchrun, held to DistributedDataParallel.

    tests/python/step_ranks_test.py --program build/tracestep [-k PATTERN]

Needs torch (tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import contextlib
import datetime
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import step_test  # noqa: E402  (which skips where there is no torch)
import torch  # noqa: E402
import tracestep  # noqa: E402
from step_test import apart, batch, grouped, made, two  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

RANKS = 2
HAS_CARDS = torch.cuda.device_count() >= RANKS


def rank():
    return dist.get_rank()


def mine(i, rows=2):
    """Batch i of this rank."""
    return batch(RANKS * i + rank(), rows)


def mean(x):
    """Over all ranks."""
    x = torch.tensor(float(x), dtype=torch.float64)
    dist.all_reduce(x)
    return float(x) / RANKS


def ddp_step(model, optimizer, batches, clip=0.0):
    """DistributedDataParallel's, with a batch or with micro-batches; this rank's mean loss."""
    optimizer.zero_grad()
    total = 0.0
    for i, rows in enumerate(batches):
        with contextlib.nullcontext() if i == len(batches) - 1 else model.no_sync():
            loss = model(*rows) / len(batches)
            loss.backward()
        total += float(loss.detach())
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return total


class RanksTest(unittest.TestCase):
    def same(self, model):
        """On all ranks, to the bit."""
        for p in model.parameters():
            p = p.detach().cpu()
            found = [torch.empty_like(p) for _ in range(RANKS)]
            dist.all_gather(found, p)
            self.assertTrue(torch.equal(*found))

    def test_twenty_steps_in_float64_are_ddps(self):
        model, other = two(torch.float64, seed=rank())  # those of the first rank count
        optimizer = grouped(model)
        step = made(model, optimizer=optimizer, clip=0.5)
        other = nn.parallel.DistributedDataParallel(other)
        its = grouped(other)
        for i in range(20):
            ours, theirs = float(step(*mine(i))), ddp_step(other, its, [mine(i)], 0.5)
            self.assertAlmostEqual(ours, mean(theirs), delta=1e-9)
        self.assertLess(apart(model, other), 1e-9)
        self.same(model)

    def test_micro_batches_meet_once(self):
        model, other = two(torch.float64)
        other = nn.parallel.DistributedDataParallel(other)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer, accumulate=3, clip=0.3)
        for i in range(0, 12, 3):
            losses = [float(step(*mine(i + k))) for k in range(3)]
            theirs = ddp_step(other, its, [mine(i + k) for k in range(3)], 0.3)
            self.assertAlmostEqual(sum(losses) / 3, mean(theirs), delta=1e-9)
        self.assertLess(apart(model, other), 1e-9)

    def test_a_module_inside_of_ddp_is_given_as_it_is(self):
        model, other = two(torch.float64)
        wrapped, other = (nn.parallel.DistributedDataParallel(m) for m in (model, other))
        optimizer, its = grouped(wrapped), grouped(other)
        step = made(wrapped, optimizer=optimizer)
        for i in range(3):
            step(*mine(i))
            ddp_step(other, its, [mine(i)])
        ddp_step(wrapped, optimizer, [mine(7)])  # one of DDP's own on our weights and moments, then one of ours
        ddp_step(other, its, [mine(7)])
        step(*mine(8))
        ddp_step(other, its, [mine(8)])
        self.assertLess(apart(model, other), 1e-9)

    def test_alone_is_alone(self):
        model, other = two(torch.float64, seed=rank())
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer, group=False)
        for i in range(1 + rank()):
            step(*mine(i))
            step_test.plain_step(other, its, [mine(i)])
        self.assertLess(apart(model, other), 1e-10)

    def test_shapes_that_differ_are_refused_on_all_and_the_next_step_runs(self):
        model, other = two(torch.float64)
        other = nn.parallel.DistributedDataParallel(other)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        step(*mine(0))
        with self.assertRaisesRegex(tracestep.UsageError, "pad batches to one shape"):
            step(*mine(1, rows=1 + rank()))
        step(*mine(2, rows=1))
        for i, rows in ((0, 2), (2, 1)):
            ddp_step(other, its, [mine(i, rows)])
        self.assertLess(apart(model, other), 1e-9)

    def test_bf16_has_the_same_bits_on_all_ranks(self):
        model, _ = two(seed=3)
        step = made(model, optimizer=grouped(model), precision="bf16")
        losses = [float(step(*mine(i % 2))) for i in range(20)]
        self.assertLess(losses[-1], losses[0] - 0.3)
        self.same(model)

    def test_numbers_of_the_optimizer_change_on_all(self):
        model, other = two(torch.float64)
        other = nn.parallel.DistributedDataParallel(other)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        for i in range(4):
            if i == 2:
                for o in (optimizer, its):
                    o.param_groups[0]["weight_decay"] = 0.5
            step(*mine(i))
            ddp_step(other, its, [mine(i)])
        self.assertLess(apart(model, other), 1e-9)

    @unittest.skipUnless(HAS_CARDS, "needs a GPU for each rank")
    def test_steps_on_gpus_are_ddps_but_for_rounding(self):
        torch.cuda.set_device(rank())
        for accumulate in (1, 2):
            model, other = (m.cuda() for m in two())
            other = nn.parallel.DistributedDataParallel(other, device_ids=[rank()])
            optimizer, its = grouped(model), grouped(other)
            step = made(model, optimizer=optimizer, clip=0.5, accumulate=accumulate)
            for i in range(0, 10, accumulate):
                rows = [[x.cuda() for x in mine(i + k)] for k in range(accumulate)]
                losses = [float(step(*row)) for row in rows]
                self.assertAlmostEqual(sum(losses) / accumulate, mean(ddp_step(other, its, rows, 0.5)), delta=1e-3)
            self.assertLess(apart(model, other), 1e-3)
            self.same(model)
            step.release()

    def test_parameters_in_parts_are_refused(self):
        from torch.distributed.fsdp import fully_shard

        model, _ = two()
        fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (RANKS,)))
        with self.assertRaisesRegex(tracestep.UsageError, "DTensor, whose parts lie elsewhere"):
            made(model, optimizer=torch.optim.AdamW(model.parameters()))

    def test_a_trainer_of_hugging_faces_runs_on_all_ranks(self):
        sys.path.insert(0, str(step_test.ROOT / "examples/in_process"))
        try:
            import trainer
            from transformers import Trainer
        except ImportError as problem:
            self.skipTest(str(problem))
        rows, model = trainer.train(trainer.StepTrainer)
        theirs, other = trainer.train(Trainer)
        for a, b in zip(rows, theirs, strict=True):
            for key in ("loss", "grad_norm"):
                self.assertAlmostEqual(float(a[key]), float(b[key]), delta=2e-3)
        self.assertLess(apart(model, other), 2e-3)

    def test_a_rank_that_does_not_come_ends_the_step_with_pytorchs_words(self):
        model, _ = two()
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
        step = made(model, optimizer=grouped(model), group=group)
        step(*mine(0))
        if rank() == 0:
            with self.assertRaises(Exception) as raised:
                step(*mine(1))
            self.assertRegex(str(raised.exception) + str(raised.exception.__cause__), "(?i)time|closed|reset")
        dist.barrier()


def launched(program, words):
    """Runs this file in two processes."""
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
                           __file__, "--program", program, *words], env={**os.environ, "OMP_NUM_THREADS": "1"})
    return done.returncode


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("cpu:gloo,cuda:nccl" if HAS_CARDS else "gloo", timeout=datetime.timedelta(seconds=120))
        step_test.main()
    at = sys.argv.index("--program") if "--program" in sys.argv else None
    given = os.path.abspath(sys.argv[at + 1]) if at else step_test.PROGRAM
    sys.exit(launched(given, sys.argv[1:at] + sys.argv[at + 2:] if at else sys.argv[1:]))
