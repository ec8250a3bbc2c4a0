#!/usr/bin/env python3
"""tracestep.step in loops as people write them: what happens between steps, and wrappers, scalers and schedulers of PyTorch's.

    tests/python/step_loop_test.py --program build/tracestep [-k PATTERN]

Needs torch (tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import copy
import gc
import pathlib
import sys
import tempfile
import types
import unittest
import warnings
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import step_test  # noqa: E402  (which skips where there is no torch)
import torch  # noqa: E402
import tracestep  # noqa: E402
from step_test import GPT, apart, batch, grouped, loss_of, made, plain_step, two  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import swa_utils  # noqa: E402
from tracestep import _step  # noqa: E402

LR = torch.optim.lr_scheduler


def captures():
    """Counts captures from here on."""
    count = [0]
    plain = _step.Capture

    def counted(*words):
        count[0] += 1
        return plain(*words)

    _step.Capture = counted
    return count


class LoopTest(unittest.TestCase):
    def setUp(self):
        plain = _step.Capture
        self.addCleanup(lambda: setattr(_step, "Capture", plain))

    def test_epochs_with_a_last_small_batch_evaluation_averages_and_rates_by_group(self):
        model, other = two(torch.float64, dropout=0.0)
        optimizer, its = grouped(model), grouped(other)
        rates = [LR.LambdaLR(o, [lambda i: 0.9 ** i, lambda i: 1 / (1 + i)]) for o in (optimizer, its)]
        averages = [swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)) for m in (model, other)]
        step = made(model, optimizer=optimizer, clip=0.5)
        x = torch.cat([torch.stack(batch(i, 1), 1) for i in range(7)])
        loader = torch.utils.data.DataLoader(x, batch_size=3, shuffle=False)  # 3, 3, 1
        count = captures()
        for _ in range(3):
            for rows in loader:
                ids, targets = rows[:, 0].contiguous(), rows[:, 1].contiguous()
                loss = float(step(ids, targets))
                self.assertAlmostEqual(loss, plain_step(other, its, [(ids, targets)], 0.5), delta=1e-9)
                for rate, average, m in zip(rates, averages, (model, other)):
                    rate.step()
                    average.update_parameters(m)
            model.eval()
            with torch.no_grad():
                ours, theirs = model(*batch(50)), other(*batch(50))
            model.train()
            self.assertAlmostEqual(float(ours), float(theirs), delta=1e-9)
        self.assertEqual(count[0], 2)
        self.assertLess(apart(model, other), 1e-9)
        self.assertLess(apart(*(a.module for a in averages)), 1e-9)
        self.assertEqual(optimizer.param_groups[1]["lr"], its.param_groups[1]["lr"])

    def test_a_checkpoint_in_the_middle_goes_on_anywhere(self):
        def saved(model, optimizer):
            with tempfile.TemporaryFile() as file:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
                file.seek(0)
                return torch.load(file)

        def resumed(found):
            found = copy.deepcopy(found)  # an optimizer keeps the tensors that it loads
            model, _ = two(torch.float64, seed=9)
            optimizer = grouped(model)
            model.load_state_dict(found["model"])
            optimizer.load_state_dict(found["optimizer"])
            return model, optimizer

        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        for i in range(3):
            step(*batch(i))
            plain_step(other, its, [batch(i)])
        mine, theirs = saved(model, optimizer), saved(other, its)
        ours = [resumed(mine), resumed(theirs)]
        steps = [made(m, optimizer=o) for m, o in ours]
        pytorchs, its = resumed(mine)
        for i in range(3, 6):
            plain_step(pytorchs, its, [batch(i)])
            for each in steps:
                each(*batch(i))
        for m, _ in ours:
            self.assertLess(apart(m, pytorchs), 1e-9)

    def test_the_scale_of_float16_is_a_grad_scalers(self):
        model, other = two()
        optimizer, its = grouped(model, 1e-3), grouped(other, 1e-3)
        scalers = [torch.amp.GradScaler("cpu", init_scale=2.0 ** 28, growth_interval=3) for _ in range(2)]
        # A compiled step has weights' gradients in float32 from their products, and overflows later than autocast does.
        step = made(model, optimizer=optimizer, precision="fp16", scaler=scalers[0], clip=1.0, executor="eager")
        seen = []
        for i in range(24):
            loss = float(step(*batch(i)))
            its.zero_grad()
            with torch.autocast("cpu", torch.float16):
                theirs = other(*batch(i))
            scalers[1].scale(theirs).backward()
            scalers[1].unscale_(its)
            nn.utils.clip_grad_norm_(other.parameters(), 1.0)
            scalers[1].step(its)
            scalers[1].update()
            self.assertAlmostEqual(loss, float(theirs.detach()), delta=0.02)
            self.assertEqual(scalers[0].get_scale(), scalers[1].get_scale(), i)
            seen.append(scalers[0].get_scale())
            counts = [{float(s["step"]) for s in o.state.values()} or {0.0} for o in (optimizer, its)]
            self.assertEqual(counts[0], counts[1])
        self.assertLess(min(seen), 2.0 ** 28)
        self.assertTrue(any(a < b for a, b in zip(seen, seen[1:])))  # it has grown
        self.assertGreater(counts[0].pop(), 8)
        self.assertLess(apart(model, other), 5e-3)
        scalers[0].load_state_dict({**scalers[0].state_dict(), "scale": 2.0 ** 40})
        before = [p.detach().clone() for p in model.parameters()]
        step(*batch(0))
        self.assertEqual(scalers[0].get_scale(), 2.0 ** 39)
        for p, q in zip(model.parameters(), before):
            self.assertTrue(torch.equal(p, q))
        optimizer.param_groups[0]["weight_decay"] = 0.2  # the program is another, its scale the same
        step(*batch(0))
        self.assertEqual(scalers[0].get_scale(), 2.0 ** 38)

    def test_a_compiled_step_in_float16_grows_and_shrinks_by_the_same_rule(self):
        model, _ = two()
        optimizer = grouped(model, 1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 22, growth_interval=2, growth_factor=4.0, backoff_factor=0.25)
        step = made(model, optimizer=optimizer, precision="fp16", scaler=scaler)
        good, done, skipped = 0, 0.0, 0
        for i in range(16):
            before = scaler.get_scale()
            step(*batch(i))
            now = next(iter(optimizer.state.values()))["step"].item()
            is_good, done = now > done, now
            good, skipped = good + 1 if is_good else 0, skipped + (not is_good)
            self.assertEqual(scaler.get_scale(), before * (0.25 if not is_good else 4 if good == 2 else 1))
            good %= 2
        self.assertGreater(skipped, 1)
        self.assertGreater(done, 4)

    def test_the_norm_of_the_gradients_is_pytorchs(self):
        for clip in (0.3, float("inf")):
            model, other = two(torch.float64)
            optimizer, its = grouped(model), grouped(other)
            step = made(model, optimizer=optimizer, clip=clip)
            for i in range(3):
                step(*batch(i))
                its.zero_grad()
                other(*batch(i)).backward()
                norm = float(nn.utils.clip_grad_norm_(other.parameters(), clip))
                its.step()
                self.assertAlmostEqual(step.grad_norm, norm, delta=1e-12)
            self.assertLess(apart(model, other), 1e-9)
        model, _ = two()
        step = made(model, optimizer=grouped(model), clip=1.0)
        with self.assertRaisesRegex(tracestep.UsageError, "nothing has been updated"):
            step.grad_norm
        step.clip = 0.0
        with self.assertRaisesRegex(tracestep.UsageError, "norm of the gradients is not computed"):
            step.grad_norm

    def test_recomputation_within_a_budget_changes_no_number(self):
        model, other = two(torch.float64, layers=3)
        rows = batch(0, rows=8)
        step = made(other, optimizer=torch.optim.SGD(other.parameters(), 0.0))
        step(*rows)
        all_bytes = step.bytes()["peak"]
        step.release()
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer, recompute=f"budget={(all_bytes * 92 // 100) // 1024}KiB")
        for i in range(3):
            self.assertAlmostEqual(float(step(*rows)), plain_step(other, its, [rows]), delta=1e-12)
        self.assertLess(apart(model, other), 1e-10)

    def test_autocast_around_a_step_is_a_precision(self):
        model, other = two()
        step = made(model, optimizer=torch.optim.SGD(model.parameters(), 0.0), precision="bf16")
        loss = float(step(*batch(0)))
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(float(step(*batch(0))), loss)
            same = copy.deepcopy(other)
            self.assertEqual(float(made(same, precision="bf16", optimizer=grouped(same))(*batch(0))), loss)
            wide = made(other, optimizer=grouped(other))
            with self.assertRaisesRegex(tracestep.UsageError, 'make it with precision="bf16"'):
                wide(*batch(0))
        wide(*batch(0))

    def test_rates_that_cycle_betas_plan_anew_and_say_so(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        rates = [LR.OneCycleLR(o, 1e-2, total_steps=8) for o in (optimizer, its)]
        step = made(model, optimizer=optimizer)
        count = captures()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i in range(6):
                step(*batch(i))
                plain_step(other, its, [batch(i)])
                for rate in rates:
                    rate.step()
        self.assertEqual(sum("cycle_momentum" in str(w.message) for w in said), 1)
        self.assertEqual(count[0], 1)
        self.assertLess(apart(model, other), 1e-9)

    def test_a_group_is_added_when_its_parameters_thaw(self):
        model, other = two(torch.float64)
        pairs = []
        for m in (model, other):
            m.h[0].up.requires_grad_(False)
            pairs.append((m, torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2)))
        step = made(model, optimizer=pairs[0][1])
        for i in range(4):
            if i == 2:
                for m, o in pairs:
                    m.h[0].up.requires_grad_(True)
                    o.add_param_group({"params": list(m.h[0].up.parameters()), "lr": 1e-3, "weight_decay": 0.0})
            step(*batch(i))
            plain_step(*pairs[1], [batch(i)])
        self.assertLess(apart(model, other), 1e-9)

    def test_a_part_of_a_group_thaws_and_counts_by_itself(self):
        model, other = two(torch.float64)
        pairs, unread = [], nn.Linear(2, 2).double()
        for m in (model, other):
            m.wte.weight.requires_grad_(False)
            m.unread = copy.deepcopy(unread)
            pairs.append((m, torch.optim.AdamW(m.parameters(), lr=1e-2)))
        step = made(model, optimizer=pairs[0][1])
        for i in range(5):
            if i in (1, 3, 4):
                for m, _ in pairs:
                    m.wte.weight.requires_grad_(i != 3)
            self.assertLess(abs(float(step(*batch(i))) - plain_step(*pairs[1], [batch(i)])), 1e-10)
        self.assertEqual({int(pairs[0][1].state[p]["step"]) for p in (model.wte.weight, model.wpe.weight)}, {3, 5})
        self.assertLess(apart(model, other), 1e-9)

    def test_behind_a_change_that_is_refused_a_mended_module_goes_on(self):
        model, other = two(torch.float64)
        optimizer, its = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, other))
        step = made(model, optimizer=optimizer)
        own = {n: p for n, p in model.named_parameters(remove_duplicate=False)}
        step(*batch(0))
        model.load_state_dict({n: x.clone() for n, x in model.state_dict().items()}, assign=True)  # which the optimizer has not
        for _ in range(2):
            with self.assertRaisesRegex(tracestep.UsageError, "none of its parameters is one of the module"):
                step(*batch(1))
        for n, p in own.items():
            setattr(model.get_submodule(n.rpartition(".")[0]), n.rpartition(".")[2], p)
        step(*batch(1))
        for i in range(2):
            plain_step(other, its, [batch(i)])
        self.assertLess(apart(model, other), 1e-9)


class EndTest(unittest.TestCase):
    def test_a_step_that_nobody_holds_leaves_nothing(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        for i in range(3):  # one after the other, on the same weights and moments
            step = made(model, optimizer=optimizer)
            step(*batch(i))
            plain_step(other, its, [batch(i)])
            session, seen, folder = step._session, weakref.ref(step), step.folder
            self.assertTrue(folder.is_dir())
            del step
            gc.collect()
            self.assertIsNone(seen())
            self.assertFalse(session.handle)
            self.assertFalse(folder.exists())
        self.assertLess(apart(model, other), 1e-10)

    def test_a_call_that_fails_leaves_no_run_behind(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(model, optimizer=optimizer)
        for _ in range(3):
            with self.assertRaisesRegex(tracestep.Error, "the step has no loss"):
                step(batch(0)[0])  # no targets: logits are no loss
        step(*batch(0))
        plain_step(other, its, [batch(0)])
        self.assertEqual(len(step._kept), 1)
        self.assertLess(apart(model, other), 1e-10)


class Scaled(GPT):
    """With plain attributes of its own, a configuration, and a counter of its calls."""

    def __init__(self):
        super().__init__()
        self.factor, self.calls = 1.0, 0
        self.config = types.SimpleNamespace(shift=0.0)

    def forward(self, ids, targets):
        self.calls += 1
        return super().forward(ids, targets) * self.factor + self.config.shift


class ModuleTest(unittest.TestCase):
    def setUp(self):
        plain = _step.Capture
        self.addCleanup(lambda: setattr(_step, "Capture", plain))
        torch.manual_seed(0)

    def made(self, model):
        step = made(model, optimizer=torch.optim.SGD(model.parameters(), 0.0))
        return step, captures()

    def same(self, step, model):
        self.assertAlmostEqual(float(step(*batch(0))), float(model(*batch(0)).detach()), delta=1e-9)

    def test_plain_attributes_and_a_configurations_are_seen(self):
        model = Scaled().double()
        step, count = self.made(model)
        first = float(step(*batch(0)))
        for _ in range(2):
            step(*batch(1))
        self.assertEqual(count[0], 1)  # counting its own calls makes no other program
        model.factor = 2.0
        self.assertAlmostEqual(float(step(*batch(0))), 2 * first, delta=1e-9)
        model.config.shift = 1.0
        self.assertAlmostEqual(float(step(*batch(0))), 2 * first + 1, delta=1e-9)
        step(*batch(1))
        self.assertEqual(count[0], 3)
        model.factor, model.config.shift = 1.0, 0.0
        self.assertAlmostEqual(float(step(*batch(0))), first, delta=1e-9)
        model.h[0].dropout = 0.5
        self.assertNotAlmostEqual(float(step(*batch(0))), float(step(*batch(0))), delta=1e-9)

    def test_other_parts_parameters_and_hooks_are_seen(self):
        model, _ = two(torch.float64)
        step, count = self.made(model)
        self.same(step, model)
        model.ln = nn.Identity()
        self.same(step, model)
        model.h[0].up = nn.Linear(16, 32, bias=False).double().requires_grad_(False)
        self.same(step, model)
        model.h[0].ln1.bias = nn.Parameter(torch.ones(16, dtype=torch.float64), requires_grad=False)
        self.same(step, model)
        handle = model.h[0].register_forward_hook(lambda part, given, x: 2 * x)
        self.same(step, model)
        handle.remove()
        self.same(step, model)
        self.assertEqual(count[0], 5)
        model.h[0].register_full_backward_hook(lambda *_: None)
        with self.assertRaisesRegex(tracestep.UsageError, "backward hook"):
            step(*batch(0))

    def test_a_hook_on_a_gradient_is_refused_whenever_it_comes(self):
        model, _ = two()
        step, _ = self.made(model)
        step(*batch(0))
        handle = model.ln.weight.register_hook(lambda g: g)
        for _ in range(2):
            with self.assertRaisesRegex(tracestep.UsageError, "hook on its gradient"):
                step(*batch(0))
        handle.remove()
        step(*batch(0))

    def test_a_compiled_module_is_the_module_inside(self):
        model, other = two(torch.float64)
        optimizer, its = grouped(model), grouped(other)
        step = made(torch.compile(model), optimizer=optimizer)
        for i in range(2):
            step(*batch(i))
            plain_step(other, its, [batch(i)])
        self.assertLess(apart(model, other), 1e-10)
        self.assertIs(step.model, model)
        model, other = two(torch.float64)
        model.compile()
        step = made(model, optimizer=grouped(model))
        step(*batch(0))
        plain_step(other, grouped(other), [batch(0)])
        self.assertLess(apart(model, other), 1e-10)

    def test_a_scaler_without_float16_and_a_group_without_processes_are_refused(self):
        model, _ = two()
        with self.assertRaisesRegex(tracestep.UsageError, 'scaled with precision="fp16"'):
            made(model, optimizer=grouped(model), scaler=torch.amp.GradScaler("cpu"))
        with self.assertRaisesRegex(tracestep.UsageError, "has not been initialized"):
            made(model, optimizer=grouped(model), group=object())

    def test_a_loss_of_ones_own_and_accumulation_in_bf16_fall(self):
        model, _ = two()
        step = made(model, loss_of, optimizer=grouped(model), accumulate=2, precision="bf16")
        losses = [float(step(*batch(i % 2))) for i in range(40)]
        self.assertLess(sum(losses[-2:]), sum(losses[:2]) - 1)


if __name__ == "__main__":
    step_test.main()
