#!/usr/bin/env python3
"""tracestep.step: a module's training in its own process, held to PyTorch's own steps.

    tests/python/step_test.py --program build/tracestep [-k PATTERN]

Needs torch (tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import argparse
import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

try:
    import torch
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent)]

import tracestep  # noqa: E402
from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tracestep import _library  # noqa: E402

warnings.filterwarnings("ignore")
PROGRAM = "tracestep"
VOCAB, LENGTH = 31, 7


class Block(nn.Module):
    """Keys have no bias: its gradient is rounding alone, of which AdamW makes whole steps."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.o, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        n = self.ln1(x)
        q, k, v = (m(n).unflatten(2, (self.heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    """Tied weights, learned positions; logits, or the loss where there are targets."""

    def __init__(self, width=16, layers=1, dropout=0.0):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(16, width)
        self.h = nn.ModuleList(Block(width, 2, dropout) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            nn.init.normal_(p, 1.0 if p.dim() < 2 else 0.0, 0.2)

    def forward(self, ids, targets=None):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln(x))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(seed, rows=2, length=LENGTH):
    x = torch.randint(0, VOCAB, (rows, length + 1), generator=torch.Generator().manual_seed(seed))
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def two(dtype=torch.float32, seed=0, **options):
    """A module, and its copy for PyTorch."""
    torch.manual_seed(seed)
    model = GPT(**options).to(dtype)
    return model, copy.deepcopy(model)


def grouped(model, lr=1e-2):
    """AdamW with a group that decays and one that does not, and rates of their own."""
    wide = [p for p in model.parameters() if p.dim() > 1]
    return torch.optim.AdamW([{"params": wide, "weight_decay": 0.1},
                              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0, "lr": lr / 3}],
                             lr=lr, betas=(0.9, 0.95))


def made(model, loss=None, **options):
    """A step; only the first test has each program checked, which takes seconds."""
    return tracestep.step(model, loss, **{"check": False, **options})


def plain_step(model, optimizer, batches, clip=0.0):
    """PyTorch's own, with a batch or with micro-batches; their mean loss."""
    optimizer.zero_grad()
    total = 0.0
    for ids, targets in batches:
        loss = model(ids, targets) / len(batches)
        loss.backward()
        total += float(loss.detach())
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return total


def apart(model, other):
    """The largest difference of two modules' weights."""
    return max(float((p - q).detach().abs().max()) for p, q in zip(model.parameters(), other.parameters()))


class EqualTest(unittest.TestCase):
    def test_a_hundred_steps_in_float64_are_pytorchs(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        rates = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 100) for o in (optimizer, its)]
        step = made(model, optimizer=optimizer, clip=0.5, check=True)
        for i in range(100):
            self.assertAlmostEqual(float(step(*batch(i))), plain_step(other, its, [batch(i)], 0.5), delta=1e-9)
            for rate in rates:
                rate.step()
        self.assertLess(apart(model, other), 1e-9)
        for p, q in zip(model.parameters(), other.parameters()):
            for key in ("exp_avg", "exp_avg_sq", "step"):
                torch.testing.assert_close(optimizer.state[p][key], its.state[q][key], rtol=1e-9, atol=1e-12)

    def test_a_step_in_float32_is_pytorchs_but_for_rounding(self):
        for make in (lambda m: torch.optim.SGD(m.parameters(), 0.1, weight_decay=0.01), grouped):
            model, other = two()
            optimizer, its = make(model), make(other)
            step = made(model, optimizer=optimizer)
            loss = float(step(*batch(1)))
            self.assertAlmostEqual(loss, plain_step(other, its, [batch(1)]), delta=1e-5)
            self.assertLess(apart(model, other), 1e-6)
            step.release()

    def test_micro_batches_are_one_step(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer, accumulate=3, clip=0.3)
        for i in range(0, 12, 3):
            parts = [batch(i + k) for k in range(3)]
            losses = [float(step(*part)) for part in parts]
            self.assertAlmostEqual(sum(losses) / 3, plain_step(other, its, parts, 0.3), delta=1e-12)
        self.assertLess(apart(model, other), 1e-10)

    def test_a_loss_of_ones_own_gets_the_last_argument(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, loss_of, optimizer=optimizer)
        self.assertAlmostEqual(float(step(*batch(3))), plain_step(other, its, [batch(3)]), delta=1e-12)
        self.assertLess(apart(model, other), 1e-10)

    def test_bf16_keeps_float32_weights_and_falls(self):
        model, other = two()
        step = made(model, optimizer=grouped(model), precision="bf16")
        its = grouped(other)
        ours, theirs = [], []
        for i in range(30):
            ours.append(float(step(*batch(i % 3))))
            with torch.autocast("cpu", torch.bfloat16):
                its.zero_grad()
                loss = other(*batch(i % 3))
            loss.backward()
            its.step()
            theirs.append(float(loss.detach()))
        self.assertLess(abs(ours[0] - theirs[0]), 0.05)
        self.assertLess(ours[-1], ours[0] - 0.5)
        self.assertLess(abs(ours[-1] - theirs[-1]), 0.2)
        self.assertEqual({p.dtype for p in model.parameters()}, {torch.float32})


class OwnersTest(unittest.TestCase):
    def test_weights_and_moments_have_one_memory(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        step(*batch(0))
        places = [p.data_ptr() for p in model.parameters()]
        moments = [optimizer.state[p]["exp_avg"].data_ptr() for p in model.parameters()]
        before = {n: x.clone() for n, x in model.state_dict().items()}
        step(*batch(1))
        self.assertEqual(places, [p.data_ptr() for p in model.parameters()])
        self.assertEqual(moments, [optimizer.state[p]["exp_avg"].data_ptr() for p in model.parameters()])
        self.assertFalse(torch.equal(before["wte.weight"], model.state_dict()["head.weight"]))
        leaf = {x.name.decode(): x for x in next(iter(step._kept.values())).runs[_library.STEP].tensors()}
        block = leaf["h.0.q.weight"].block
        self.assertEqual(block, leaf["h.0.v.weight"].block)
        q, k = model.h[0].q.weight, model.h[0].k.weight
        self.assertEqual(k.data_ptr() - q.data_ptr(), q.numel() * 8)
        size = step.bytes()
        self.assertEqual(size["lent"] + size["own"], size["peak"])
        for i in range(2):
            plain_step(other, its, [batch(i)])
        self.assertLess(apart(model, other), 1e-10)

    def test_steps_of_both_take_turns(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        for i in range(8):
            if i % 3 == 1:
                plain_step(model, optimizer, [batch(i)])
            else:
                step(*batch(i))
            plain_step(other, its, [batch(i)])
        self.assertLess(apart(model, other), 1e-10)

    def test_changed_weights_reach_narrow_copies(self):
        model, other = two()
        step = made(model, optimizer=torch.optim.SGD(model.parameters(), 0.0), precision="bf16")
        first = float(step(*batch(0)))
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.5)
        self.assertGreater(abs(float(step(*batch(0))) - first), 1e-3)
        model.load_state_dict(other.state_dict())
        self.assertEqual(float(step(*batch(0))), first)

    def test_states_go_to_pytorch_and_come_back(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        for i in range(3):
            step(*batch(i))
            plain_step(other, its, [batch(i)])
        saved = copy.deepcopy(optimizer.state_dict())
        its.load_state_dict(copy.deepcopy(saved))  # which would otherwise share its tensors
        step(*batch(9))
        optimizer.load_state_dict(saved)
        model.load_state_dict(other.state_dict())
        step(*batch(3))
        plain_step(other, its, [batch(3)])
        self.assertLess(apart(model, other), 1e-10)

    def test_weights_are_there_once_and_a_release_takes_them_apart(self):
        model, _ = two()
        before = {n: StorageWeakRef(p.untyped_storage()) for n, p in model.named_parameters()}
        step = made(model, optimizer=grouped(model))
        step(*batch(0))
        after = {n: p.detach().clone() for n, p in model.named_parameters()}
        in_blocks = {n for n, p in model.named_parameters() if p.untyped_storage().nbytes() > p.nbytes}
        self.assertEqual(in_blocks, {f"h.0.{name}.weight" for name in "qkv"})
        self.assertEqual({n for n, storage in before.items() if storage.expired()}, in_blocks)
        step.release()
        for n, p in model.named_parameters():
            self.assertTrue(torch.equal(p, after[n]), n)
            self.assertEqual(p.untyped_storage().nbytes(), p.nbytes, n)
        with self.assertRaisesRegex(tracestep.UsageError, "released"):
            step(*batch(0))

    def test_a_step_that_fails_leaves_narrow_copies_as_they_were(self):
        model, other = two()
        steps = [made(m, optimizer=grouped(m), precision="bf16") for m in (model, other)]
        ids, targets = batch(0)
        for step in steps:
            step(ids, targets)
        with self.assertRaises(tracestep.Error):
            steps[0](ids, torch.full_like(targets, VOCAB))
        self.assertEqual(float(steps[0](*batch(1))), float(steps[1](*batch(1))))
        self.assertEqual(apart(model, other), 0.0)

    def test_saving_needs_nothing_special(self):
        model, other = two()
        step = made(model, optimizer=grouped(model))
        step(*batch(0))
        with tempfile.TemporaryDirectory() as place:
            torch.save(model.state_dict(), place + "/weights.pt")
            other.load_state_dict(torch.load(place + "/weights.pt"))
        self.assertEqual(apart(model, other), 0.0)


class ChangesTest(unittest.TestCase):
    def test_a_frozen_parameter_stays_and_thaws(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        step(*batch(0))
        plain_step(other, its, [batch(0)])
        for m in (model, other):
            m.h[0].q.weight.requires_grad_(False)
            m.h[0].q.weight.grad = None
        kept = model.h[0].q.weight.clone()
        step(*batch(1))
        plain_step(other, its, [batch(1)])
        self.assertTrue(torch.equal(kept, model.h[0].q.weight))
        self.assertLess(apart(model, other), 1e-10)

    def test_other_shapes_are_captured_once_and_kept(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer, keep=2)
        for i, rows in enumerate([3, 3, 1, 3, 1]):
            self.assertAlmostEqual(float(step(*batch(i, rows))), plain_step(other, its, [batch(i, rows)]), delta=1e-12)
        self.assertEqual(len(step._kept), 2)
        step(*batch(7, 2))
        self.assertEqual(len(step._kept), 2)

    def test_eval_and_train_are_two_programs(self):
        model, _ = two(dropout=0.5)
        step = made(model, optimizer=torch.optim.SGD(model.parameters(), 0.0))
        drops = {float(step(*batch(0))) for _ in range(3)}
        self.assertEqual(len(drops), 3)
        model.eval()
        same = {float(step(*batch(0))) for _ in range(3)}
        self.assertEqual(len(same), 1)
        self.assertAlmostEqual(same.pop(), float(model(*batch(0)).detach()), delta=1e-5)

    def test_a_new_rule_and_moved_weights_are_seen(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        step(*batch(0))
        plain_step(other, its, [batch(0)])
        for o in (optimizer, its):
            o.param_groups[0]["weight_decay"] = 0.5
            o.param_groups[1]["betas"] = (0.8, 0.9)
        model.ln.weight.data = model.ln.weight.data.clone()
        for i in (1, 2):
            step(*batch(i))
            plain_step(other, its, [batch(i)])
        self.assertLess(apart(model, other), 1e-10)


class RefusedTest(unittest.TestCase):
    def refused(self, words, model=None, optimizer=None, call=True, **options):
        model = model or two()[0]
        with self.assertRaisesRegex(tracestep.UsageError, words):
            step = made(model, optimizer=optimizer or grouped(model), **options)
            if call:
                step(*batch(0))

    def test_what_is_no_part_of_a_step_is_said_at_once(self):
        model, _ = two()
        parameters = list(model.parameters())
        self.refused("momentum=0.9", model, torch.optim.SGD(parameters, 0.1, momentum=0.9), False)
        self.refused("another rule", model, torch.optim.RMSprop(parameters), False)
        self.refused("amsgrad", model, torch.optim.AdamW(parameters, amsgrad=True), False)
        self.refused("added to the gradient", model, torch.optim.Adam(parameters, weight_decay=0.1), False)
        self.refused("is in no group", model, torch.optim.AdamW(parameters[:3]))
        self.refused("did you mean precision", model, precison="bf16", call=False)
        for name, value in (("grad_accum_dtype", "low"), ("lora", "r=4"), ("batch", 2), ("parallel", "dp=2")):
            self.refused(f"{name} is an option of the commands alone", model, accumulate=2, precision="bf16", call=False,
                         **{name: value})
        self.refused("wraps the module", nn.DataParallel(model), torch.optim.AdamW(parameters), False)
        self.refused("narrow moments", model, moments="8bit", call=False)
        hooked = two()[0]
        hooked.ln.weight.register_hook(lambda g: g)
        self.refused("hook on its gradient", hooked)

    def test_gradients_are_not_there_and_that_is_said(self):
        model, _ = two()
        step = made(model, optimizer=grouped(model))
        with self.assertRaisesRegex(tracestep.UsageError, "there is no .grad"):
            step(*batch(0)).backward()
        self.assertIsNone(model.ln.weight.grad)

    def test_a_module_that_branches_on_values_is_refused_and_unharmed(self):
        class Branches(GPT):
            def forward(self, ids, targets):
                return super().forward(ids, targets) * (2 if float(self.ln.weight.sum()) > 0 else 1)

        torch.manual_seed(0)
        model = Branches()
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.refused("torch.export cannot follow", model)
        for n, p in model.named_parameters():
            self.assertTrue(torch.equal(p, before[n]))

    def test_too_little_memory_is_an_exception_and_a_smaller_batch_runs(self):
        model, other = two()
        optimizer, its = grouped(model), grouped(other)
        small = two()[0]
        step = made(small, optimizer=grouped(small))
        step(*batch(0, rows=1))
        enough = step.bytes()["peak"] // 1024 + 1
        step = made(model, optimizer=optimizer, memory_limit=f"{enough}KiB")
        with self.assertRaises(tracestep.OutOfMemoryError) as raised:
            step(*batch(0, rows=16))
        self.assertIn("memory_limit", str(raised.exception))
        step(*batch(0, rows=1))
        plain_step(other, its, [batch(0, rows=1)])
        self.assertLess(apart(model, other), 1e-6)


class ProcessTest(unittest.TestCase):
    def test_two_steps_in_two_threads(self):
        pairs = [two(torch.float64, seed) for seed in (1, 2)]
        steps = [made(model, optimizer=grouped(model)) for model, _ in pairs]
        for step in steps:
            step(*batch(0))

        def work(step):
            for i in range(1, 10):
                step(*batch(i))

        threads = [threading.Thread(target=work, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for model, other in pairs:
            its = grouped(other)
            for i in range(10):
                plain_step(other, its, [batch(i)])
            self.assertLess(apart(model, other), 1e-10)

    def test_one_step_called_from_several_threads_takes_turns(self):
        model, _ = two()
        optimizer = grouped(model)
        step = made(model, optimizer=optimizer)
        step(*batch(0))
        threads = [threading.Thread(target=lambda: [step(*batch(i)) for i in range(5)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({float(s["step"]) for s in optimizer.state.values()}, {21.0})

    def test_a_fork_is_refused_and_its_parent_goes_on(self):
        model, _ = two()
        step = made(model, optimizer=grouped(model))
        step(*batch(0))
        child = os.fork()
        if child == 0:
            try:
                step(*batch(1))
            except tracestep.Error as problem:
                os._exit(7 if "fork" in str(problem) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        step(*batch(1))

    def test_an_index_that_is_none_is_an_exception_and_the_next_step_runs(self):
        model, _ = two()
        step = made(model, optimizer=grouped(model))
        step(*batch(0))
        ids, targets = batch(1)
        ids[0, 0] = VOCAB
        with self.assertRaisesRegex(tracestep.Error, f"{VOCAB}"):
            step(ids, targets)
        self.assertTrue(float(step(*batch(1))) > 0)

    def test_a_process_ends_quietly_with_a_step_alive(self):
        text = ("import sys; sys.argv = ['x']; sys.path[:0] = [%r, %r]\n"
                "import step_test as t, tracestep\ntracestep.use(%r)\n"
                "m, _ = t.two(); s = t.made(m, optimizer=t.grouped(m))\n"
                "print(float(s(*t.batch(0))) > 0)\n")
        done = subprocess.run([sys.executable, "-c", text % (str(ROOT / "python"), str(pathlib.Path(__file__).parent),
                                                             PROGRAM)], capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\n", ""))

    def test_the_commands_take_its_program(self):
        model, _ = two()
        step = made(model, optimizer=grouped(model))
        step(*batch(0))
        table = step.memory()
        rates = 2 * 12 - 8  # bytes of two groups' rates, and of one with a step size that is no pair
        self.assertEqual(int(table.table["peak_bytes"][0]), step.bytes()["peak"] - rates)
        self.assertTrue(step.profile(steps=1, warmup=1, no_ceilings=True).answer)

    def test_the_commands_know_of_its_micro_batches(self):
        model, _ = two()
        step = made(model, optimizer=grouped(model), accumulate=2)
        step(*batch(0))
        peak = int(step.memory().table["peak_bytes"][0])
        self.assertEqual(peak, int(step.memory(accumulate=2).table["peak_bytes"][0]))
        self.assertGreater(peak, int(step.memory(accumulate=1).table["peak_bytes"][0]))


def main():
    """Of this file, and of those that share its modules."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--program", default=PROGRAM)
    mine, rest = parser.parse_known_args()
    globals()["PROGRAM"] = os.path.abspath(mine.program)
    tracestep.use(PROGRAM)
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
