#!/usr/bin/env python3
"""The recording of a step of PyTorch (tracestep.capture, step=), held to MemTracker's count of a step that runs.

    tests/python/pytorch_step_test.py --program build/tracestep

Needs torch (tools/python_env); ends with status 77, which ctest calls skipped, where there is none.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import unittest
import warnings

try:
    import torch
except ImportError as problem:
    print(f"skipped: {problem}; tools/python_env makes an environment with torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]

import tracestep  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from tracestep._capture import inside_kernels, recorded_step  # noqa: E402

warnings.filterwarnings("ignore")
IDS = torch.randint(0, 300, (2, 64), generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """Perceptrons behind an embedding, in numbered blocks."""

    def __init__(self, is_checkpointed=False, holds_logits=False):
        super().__init__()
        self.tokens, self.head = nn.Embedding(300, 64), nn.Linear(64, 300)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
                                    for _ in range(3))
        self.is_checkpointed, self.holds_logits = is_checkpointed, holds_logits

    def forward(self, ids, targets):
        x = self.tokens(ids)
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x))
        logits = self.head(x)
        wide = logits.double()
        if not self.holds_logits:
            del logits
        return F.cross_entropy(wide.flatten(0, 1), targets.flatten())


def step(model, optimizer, ids, targets):
    """As people write it."""
    model(ids, targets).backward()
    optimizer.step()
    optimizer.zero_grad()


def recorded(model, run=step, **options):
    return recorded_step.record_step(model, (IDS, IDS), run, torch.optim.SGD(model.parameters(), 0.1), **options)


def peak(recording, is_tensor_only=True):
    """Of the list, without workspaces and what kernels take."""
    alive, now, most = {}, 0, 0
    for event in recording["events"]:
        if len(event) > 1:
            alive[event[0]] = max(0, event[1])
            now += alive[event[0]]
            most = max(most, now)
        else:
            now -= alive.pop(-event[0])
    return most


class Recordings(unittest.TestCase):
    """Of whole steps."""

    def test_the_peak_is_that_of_a_step_that_runs(self):
        from torch.distributed._tools.mem_tracker import MemTracker
        for again in (False, True):
            model = Model(again)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            recording = recorded(model)
            tracker = MemTracker()
            tracker.track_external(model, optimizer, IDS)
            with tracker:
                step(model, optimizer, IDS, IDS)
            (counted,) = (row["Total"] for device, row in tracker.get_tracker_snapshot("peak").items())
            scratch = inside_kernels.LT_WORKSPACE * (2 if again else 1)  # one for each thread that adds a bias
            self.assertLess(abs(peak(recording) - scratch - counted), 0.03 * counted, again)

    def test_a_name_keeps_its_tensor(self):
        def alive_at_loss(holds):
            recording, alive = recorded(Model(holds_logits=holds), steps=1), {}
            for event in recording["events"]:
                if len(event) > 1 and recording["names"][event[4]] == "nll_loss_forward":
                    return sum(alive.values())
                if len(event) > 1:
                    alive[event[0]] = max(0, event[1])
                else:
                    alive.pop(-event[0])
        self.assertEqual(alive_at_loss(True) - alive_at_loss(False), 4 * 2 * 64 * 300)

    def test_lines_modules_and_parts_are_those_of_the_source(self):
        recording = recorded(Model(True))
        names, phases = recording["names"], recording["phases"]
        rows = [(names[e[2]], names[e[3]], names[e[4]], phases[e[5]]) for e in recording["events"] if len(e) > 1]
        self.assertIn("recompute", {part for _, _, _, part in rows})
        gelu = {(module, part) for _, module, op, part in rows if op == "gelu"}
        self.assertEqual(gelu, {(f"blocks.{i}.2", part) for i in range(3) for part in ("forward", "recompute")})
        backward = {module for _, module, op, part in rows if op == "gelu_backward"}
        self.assertEqual(backward, {f"blocks.{i}.2" for i in range(3)})
        self.assertTrue(all(site.startswith("pytorch_step_test.py:") for site, _, op, part in rows
                            if op == "gelu" and part == "forward"))
        loss = {op: site for site, _, op, _ in rows if op.startswith("nll_loss")}
        self.assertRegex(loss["nll_loss_backward"], "pytorch_step_test.py:[0-9]+ forward")
        self.assertEqual(loss["nll_loss_backward"], loss["nll_loss_forward"])

    def test_nothing_of_the_module_changes(self):
        model = Model()
        before = {n: p.clone() for n, p in model.named_parameters()}
        recorded(model)
        for name, p in model.named_parameters():
            self.assertTrue(torch.equal(before[name], p))
            self.assertIsNone(p.grad)

    def test_attention_takes_the_way_of_a_card(self):
        def run(model, optimizer, x):
            with torch.autocast("cuda", torch.bfloat16):
                y = model(x)
                F.scaled_dot_product_attention(y, y, y, is_causal=True).sum().backward()
        recording = recorded_step.record_step(nn.Linear(64, 64), (torch.randn(1, 2, 64, 64),), run, steps=1)
        self.assertIn("_scaled_dot_product_cudnn_attention_backward", recording["names"])

    def test_a_bias_of_attention_that_learns_is_not_for_cudnn(self):
        def run(model, optimizer, x):
            with torch.autocast("cuda", torch.bfloat16):
                y = model(x)
                F.scaled_dot_product_attention(y, y, y, attn_mask=y[0, 0] @ y[0, 0].T).sum().backward()
        recording = recorded_step.record_step(nn.Linear(64, 64), (torch.randn(1, 2, 64, 64),), run, steps=1)
        self.assertIn("_scaled_dot_product_efficient_attention_backward", recording["names"])

    def test_numbers_become_tensors_of_the_card(self):
        def bounded(y):  # in backward on a thread of its own
            return torch.where(y > 0, y, torch.tensor(-1e4, device=y.device))[:, [0, 1]]

        def run(model, optimizer, x):
            checkpoint(bounded, model(x), use_reentrant=False).sum().backward()

        recording = recorded_step.record_step(nn.Linear(64, 64), (torch.randn(2, 64),), run, steps=1)
        sizes = [(event[1], recording["phases"][event[5]]) for event in recording["events"] if len(event) > 1]
        for phase in ("forward", "recompute"):
            self.assertIn((4, phase), sizes)
            self.assertIn((16, phase), sizes)
        self.assertFalse(torch._C._only_lift_cpu_tensors())

    def test_what_is_not_contiguous_is_computed_as_on_a_card(self):
        def run(model, optimizer, x):
            with torch.no_grad():
                model(x.transpose(0, 1))
                F.layer_norm(x.transpose(0, 1), (64,))

        recording = recorded_step.record_step(nn.Linear(64, 32), (torch.randn(8, 16, 64),), run, steps=1)
        sizes, names = 8 * 16 * 64 * 4, recording["names"]
        born = [(names[e[4]], e[1]) for e in recording["events"] if len(e) > 1 and recording["phases"][e[5]] == "forward"]
        self.assertNotIn("add", [op for op, _ in born])  # in place
        self.assertEqual([size for op, size in born if op == "native_layer_norm"][:2], [sizes, sizes])  # a copy, the result

    def test_a_mask_of_ones_is_left_out(self):
        def run(model, optimizer, x):
            mask = torch.ones(8, 16, device=x.device).bool()
            for is_full in (mask.all(), mask.sum() == mask.numel()):
                if not is_full:
                    torch.empty(12345, dtype=torch.uint8, device=x.device)
            if mask.sum() == 3:
                torch.empty(54321, dtype=torch.uint8, device=x.device)

        recording = recorded_step.record_step(nn.Linear(64, 32), (torch.randn(8, 16, 64),), run, steps=1)
        self.assertFalse({12345, 54321} & {e[1] for e in recording["events"] if len(e) > 1})

    def test_sums_of_columns_share_outputs_among_blocks(self):
        # As measured: rows × columns, and the bytes of partial sums on an H200.
        for rows, columns, size in ((2048, 3072, 50331648), (1024, 3072, 25165824), (8192, 8192, 138412032),
                                    (1536, 512, 6291456), (65536, 256, 134217728), (512, 512, 0)):
            x = torch.empty(rows, columns, device="meta")
            self.assertEqual(inside_kernels.of_sum(x, x.sum(0)), size)

    def test_a_capture_holds_it(self):
        with tempfile.TemporaryDirectory() as folder:
            tracestep.capture(Model(), IDS, IDS, folder=folder, overwrite=True, check=False, step=step)
            index = json.loads((pathlib.Path(folder) / "pytorch-step.json").read_text())
            self.assertEqual(len(index["steps"]), 2)
            found = tracestep.memory(program=folder, as_="pytorch")
            self.assertEqual(found.tables["pytorch"]["origin"][0], "recorded")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    options, rest = parser.parse_known_args()
    if options.program:
        os.environ["TRACESTEP_PROGRAM"] = options.program
        tracestep.use(options.program)
    unittest.main(argv=[sys.argv[0], *rest])
