#!/usr/bin/env python3
"""Captures architectures of transformers and modules of one's own, and holds each to its own autograd.

    .venv-oracle/bin/python tools/soak/captured_modules.py [--only NAME,…] [--program PROGRAM]
                                                       [--rows FILE] [--output FILE]

Each is small, with random weights, three rows, 19 positions (beyond a window of 8) and 131 words. The program
of each, with all patterns and with none, is run in float64 by tests/python/program_reader.py; loss, logits and
every gradient are compared with the module's, relative to the largest of the tensor (a gradient that is 0 but
for rounding: to 1e-3 of the largest of all). With --program, capture's own check runs too, by that program.
With it, loss, logits and gradients in float32 on the CPU, eager and compiled, and the losses and weights of ten steps of
AdamW are compared with the module's in float64, and so are PyTorch's own in float32 (weights whose gradient is 0 but for
rounding move by its sign, and are left out; the others are compared by the norm of a tensor). Ours pass within 1e-5, or
up to 1.5 times PyTorch's error. Where ten steps do not, both begin again from weights that are at most one unit in the last
place of float32 away, twelve times, and the largest errors are compared: a preactivation of a ReLU that comes to lie within
rounding of 0 has its gradient or none, and what that makes of a loss is the same for both. The peaks of its steps are measured beside the predicted ones: forward, with
backward, with an update, recomputed, and on two ranks. Modules of other packages are tried where these are installed.
With --rows, what FILE already has is not run again, and the rest is added to it. What --output's page says of a card
stays. Exit status 1: something differs.
"""
import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import capture_test  # noqa: E402
import torch  # noqa: E402
import tracestep  # noqa: E402
from tracestep._capture import PATTERNS  # noqa: E402
from tracestep._capture.export import Inputs, Step, Widened, leaves_of, widened_copy  # noqa: E402
from tracestep._capture.folder import read_tensors  # noqa: E402

warnings.filterwarnings("ignore")
BOUND = 1e-10
SIZES = dict(vocab_size=131, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64)
GROUPED = dict(num_key_value_heads=2)
WINDOWED = dict(num_key_value_heads=2, head_dim=8, sliding_window=8)
# A config needs these beside the sizes above.
ARCHITECTURES = {
    "bert": {}, "bloom": dict(n_layer=2, n_head=4), "cohere": GROUPED,
    "distilbert": dict(dim=32, n_heads=4, n_layers=2, hidden_dim=48), "falcon": {},
    "gemma": dict(num_key_value_heads=2, head_dim=8), "gemma2": WINDOWED, "gemma3_text": WINDOWED,
    "glm": dict(num_key_value_heads=2, head_dim=8, pad_token_id=0), "gpt2": {},
    "gpt_neo": dict(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8),
    "gpt_neox": {}, "gptj": dict(rotary_dim=4, n_inner=48), "granite": GROUPED, "llama": GROUPED,
    "mistral": WINDOWED, "modernbert": dict(local_attention=8, pad_token_id=0),
    "mpt": dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=64), "olmo": GROUPED, "olmo2": GROUPED,
    "opt": dict(ffn_dim=48, word_embed_proj_dim=32), "phi": GROUPED, "phi3": dict(num_key_value_heads=2, pad_token_id=0),
    "qwen2": GROUPED, "qwen3": dict(num_key_value_heads=2, head_dim=8), "roberta": {}, "stablelm": GROUPED,
    "starcoder2": dict(num_key_value_heads=2, sliding_window=8),
    "t5": dict(d_model=32, d_ff=48, num_layers=2, num_heads=4, d_kv=8, decoder_start_token_id=0),
    "vit": dict(image_size=16, patch_size=4)}
MASKED = ("bert", "distilbert", "modernbert", "roberta")
IDS = torch.randint(1, 131, (3, 19), generator=torch.Generator().manual_seed(1))
IMAGES, LABELS = torch.linspace(-1, 1, 3 * 768).sin().reshape(3, 3, 16, 16), torch.tensor([0, 1, 1])


def of_transformers(name):
    """The module, its inputs and options."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(name, **{**SIZES, **ARCHITECTURES[name]})
    for key, value in list(vars(config).items()):
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    config.use_cache = False
    kind = ("ForImageClassification" if name == "vit" else "ForMaskedLM" if name in MASKED
            else "ForSeq2SeqLM" if name == "t5" else "ForCausalLM")
    module = getattr(transformers, f"AutoModel{kind}").from_config(config).train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    with torch.no_grad():  # as a trained one has, neither ones nor zeros
        for p in module.parameters():
            p.copy_(torch.randn(p.shape) * 0.2 + float(p.dim() == 1 and p.mean() == 1))
    inputs = dict(pixel_values=IMAGES, labels=LABELS) if name == "vit" else dict(input_ids=IDS, labels=IDS)
    return module, (), inputs


def mean_square(y):
    """A loss for modules that have none."""
    return y.float().square().mean()


# Modules of packages that nobody tuned the exporter for: each was tried once.
STRANGERS = {
    "x-transformers decoder": lambda: (_x("Decoder", causal=True), (IDS,), {"loss": mean_square}),
    "x-transformers decoder with rotary and GLU": lambda: (
        _x("Decoder", causal=True, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True), (IDS,), {"loss": mean_square}),
    "x-transformers encoder with ALiBi": lambda: (_x("Encoder", alibi_pos_bias=True), (IDS,), {"loss": mean_square}),
    "vit-pytorch ViT": lambda: _vit("ViT"), "vit-pytorch SimpleViT": lambda: _vit("SimpleViT"),
    "timm vit_tiny_patch16_224": lambda: _timm("vit_tiny_patch16_224", depth=2, img_size=32),
    "timm mixer_s16_224": lambda: _timm("mixer_s16_224", img_size=32),
    "timm convnext_atto": lambda: _timm("convnext_atto"),
    "mlp-mixer-pytorch": lambda: (_import("mlp_mixer_pytorch").MLPMixer(
        image_size=16, channels=3, patch_size=4, dim=16, depth=2, num_classes=5), (IMAGES,), _classes()),
    "g-mlp-pytorch": lambda: (_import("g_mlp_pytorch").gMLP(num_tokens=131, dim=16, depth=2, seq_len=19, causal=True),
                              (IDS,), {"loss": mean_square}),
    "perceiver-pytorch": lambda: (_import("perceiver_pytorch").Perceiver(
        num_freq_bands=2, depth=2, max_freq=4., input_channels=3, num_latents=8, latent_dim=16, num_classes=5,
        latent_heads=2, cross_dim_head=8, latent_dim_head=8), (IMAGES.permute(0, 2, 3, 1),), _classes()),
    "nystrom-attention": lambda: (_import("nystrom_attention").Nystromformer(
        dim=16, dim_head=8, heads=2, depth=1, num_landmarks=4, pinv_iterations=2), (IMAGES[:, 0],), {"loss": mean_square}),
    "linformer": lambda: (_import("linformer").LinformerLM(num_tokens=131, dim=16, seq_len=19, depth=2, heads=2, k=8),
                          (IDS,), {"loss": mean_square}),
}


def _import(name):
    import importlib

    return importlib.import_module(name)


def _classes():
    return {"loss": torch.nn.functional.cross_entropy, "targets": LABELS}


def _x(kind, causal=False, **options):
    x = _import("x_transformers")
    return x.TransformerWrapper(num_tokens=131, max_seq_len=64,
                                attn_layers=getattr(x, kind)(dim=32, depth=2, heads=4, attn_dim_head=8, **options))


def _vit(kind):
    vit = getattr(_import("vit_pytorch"), kind)
    return vit(image_size=16, patch_size=4, num_classes=5, dim=16, depth=2, heads=2, mlp_dim=24), (IMAGES,), _classes()


def _timm(name, **options):
    size = options.get("img_size", 32)
    image = torch.linspace(-1, 1, 9 * size * size).sin().reshape(3, 3, size, size)
    return _import("timm").create_model(name, num_classes=5, **options), (image,), _classes()


def modules():
    """Name, kind and how to make it."""
    for name, (make, inputs, options, _) in capture_test.CASES.items():
        yield name, "own", lambda make=make, inputs=inputs, options=options: (make(), inputs, options)
    for name in ARCHITECTURES:
        yield name, "transformers", lambda name=name: of_transformers(name)
    for name, make in STRANGERS.items():
        yield name, "tried once", make


ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
EXECUTORS = ("eager", "compiled")
STEPS = 10
# In float32 an error is judged beside PyTorch's own: it passes within the first, or up to so many times theirs.
USUAL, TIMES = 1e-5, 1.5
STARTS = 12  # of a module whose ten steps do not pass
NARROW = {"float32": "a backward pass", "losses": "ten losses", "weights": "ten steps' weights"}


def relative(mine, wanted, least=0.0):
    """The largest difference, of the largest of the tensor."""
    largest = max(float(wanted.abs().max()) if wanted.numel() else 0.0, least, 1e-30)
    return float((mine.reshape(wanted.shape) - wanted).abs().max()) / largest if wanted.numel() else 0.0


def called(module, inputs, options):
    """Loss and logits as capture sees them."""
    options = dict(options)
    loss, targets = options.pop("loss", None), options.pop("targets", ())
    targets = targets if isinstance(targets, tuple) else (targets,)
    step = Step(module, loss, Inputs.of(module, inputs, options, targets))
    return step(*step.inputs.tensors)


def doubled(x):
    """Tensors of real numbers in float64, inside of tuples and dicts too."""
    if isinstance(x, dict):
        return {key: doubled(value) for key, value in x.items()}
    if isinstance(x, tuple):
        return tuple(map(doubled, x))
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def by_torch(module, inputs, options):
    """One backward pass and ten steps of AdamW: what PyTorch finds, in the module's dtype."""
    loss, *logits = called(module, inputs, options)
    loss.backward()
    parameters = {n: p for n, p in leaves_of(module)[0].items() if p.requires_grad}
    found = {"loss": loss.detach(), "logits": logits[0].detach() if logits else None, "losses": [],
             "gradients": {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in parameters.items()}}
    optimizer = torch.optim.AdamW(parameters.values(), **ADAMW)
    for step in range(STEPS):
        # tracestep adds eps to the root before its bias is corrected (docs/training.md): the same eps for both.
        optimizer.param_groups[0]["eps"] = ADAMW["eps"] / (1 - ADAMW["betas"][1] ** (step + 1)) ** 0.5
        optimizer.zero_grad()
        step_loss = called(module, inputs, options)[0]
        step_loss.backward()
        optimizer.step()
        found["losses"].append(float(step_loss))
    return {**found, "weights": {n: p.detach() for n, p in parameters.items()}}


def by_program(captured, executor, has_logits):
    """The same by tracestep, in float32 on the CPU."""
    with tempfile.TemporaryDirectory() as place:
        files = {name: pathlib.Path(place) / name for name in ("gradients", "logits", "weights")}
        asked = {"gradients": files["gradients"], **({"logits": files["logits"]} if has_logits else {})}
        result = tracestep.eval(program=captured, executor=executor, threads=1, **asked)
        losses = []
        tracestep.train(program=captured, steps=STEPS, lr=ADAMW["lr"], beta1=ADAMW["betas"][0], beta2=ADAMW["betas"][1],
                        eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"], executor=executor, threads=1,
                        save=files["weights"], overwrite=True, on_step=lambda row: losses.append(row["loss"]))
        return {"loss": torch.tensor(result.table["loss"][0]), "losses": losses,
                "logits": read_tensors(files["logits"])["logits"] if has_logits else None,
                "gradients": read_tensors(files["gradients"]), "weights": read_tensors(files["weights"])}


def apart(found, exact):
    """The largest differences of one backward pass, of ten losses, and of the weights behind them."""
    overall = max(float(g.abs().max()) for g in exact["gradients"].values() if g.numel())
    backward = [relative(found["loss"].double(), exact["loss"])]
    backward += [relative(found["gradients"][n].double(), g, 1e-3 * overall) for n, g in exact["gradients"].items()
                 if n in found["gradients"]]
    if exact["logits"] is not None:
        backward.append(relative(found["logits"].double(), exact["logits"]))
    weights = 0.0
    for name, p in exact["weights"].items():
        moves = exact["gradients"][name].abs() > 1e-4 * overall
        difference = (found["weights"][name].reshape(p.shape).double() - p)[moves].norm()
        weights = max(weights, float(difference) / max(float(p.norm()), 1e-30))
    losses = [torch.tensor(x["losses"], dtype=torch.float64) for x in (found, exact)]
    return {"float32": max(backward), "losses": relative(*losses), "weights": weights}


def in_float32(make):
    """By figure: our error, the larger of both executors', and PyTorch's, each against the module in float64."""
    row = from_start(make, None)
    if all(passes(row, figure) for figure in NARROW):
        return row
    more = [from_start(make, start) for start in range(STARTS)]
    row.update({figure: tuple(max(r[figure][i] for r in [row, *more]) for i in (0, 1)) for figure in ("losses", "weights")})
    return {**row, "jumps": [sum(r["losses"][i] > USUAL for r in more) for i in (0, 1)]}


def from_start(make, start):
    """As in_float32(), of the module with its weights, or with those of a start beside them."""
    torch.manual_seed(3)
    module, inputs, options = make()
    if start is not None:
        nudge(module, start)
    captured = tracestep.capture(module, *inputs, check=False, **options)
    wide = widened_copy(module)
    with Widened():
        exact = by_torch(wide, doubled(tuple(inputs)), doubled(options))
    theirs = apart(by_torch(module, inputs, options), exact)
    ours = [apart(by_program(captured, executor, exact["logits"] is not None), exact) for executor in EXECUTORS]
    return {n: (max(x[n] for x in ours), theirs[n]) for n in NARROW}


def nudge(module, start):
    """Moves each weight to a neighbour in its dtype, or leaves it."""
    generator = torch.Generator().manual_seed(start)
    with torch.no_grad():
        for p in leaves_of(module)[0].values():
            way = torch.randint(-1, 2, p.shape, generator=generator).to(p.dtype)
            p.copy_(torch.where(way == 0, p, torch.nextafter(p, way * torch.inf)))


def passes(row, figure):
    """True if the error of a figure, if there is one, is small or not much larger than PyTorch's."""
    ours, theirs = row.get(figure, (0.0, 0.0))
    return ours <= max(USUAL, TIMES * theirs)


def tried(name, make, checks):
    """What a table says of one."""
    torch.manual_seed(3)
    began = time.monotonic()
    module, inputs, options = make()
    try:
        (lifted, out), (plain, other) = capture_test.read(module, inputs, options, (PATTERNS, ()))
        row = {"with": lifted, "without": plain, "nodes": f"{len(out.program.nodes)} / {len(other.program.nodes)}",
               "found": ", ".join(f"{n} {name}" for name, n in out.lifted.items()) or "—",
               "constants": str(len(out.constants))}
        if checks:
            check = tracestep.capture(module, *inputs, **options).check
            row["program"] = max(check["loss"], check["gradients"])
            torch.manual_seed(3)
            module, inputs, options = make()
            row["peaks"] = peaks_of(name, tracestep.capture(module, *inputs, check=False, **options))
            row.update(in_float32(make))
        return {**row, "seconds": time.monotonic() - began}
    except tracestep.Error as refused:
        return {"reason": str(refused)}


def row_of(name, program):
    """What is found of one module, in a process of its own; None: its package is missing."""
    torch.set_num_threads(1)
    if program:
        tracestep.use(program)
    make = next(make for other, _, make in modules() if other == name)
    try:
        row = tried(name, make, program)
    except ImportError as missing:
        print(f"{name}: left out, {missing}", flush=True)
        return None
    except Exception as failure:  # neither captured nor refused: a mistake of the exporter, or of the module
        row = {"failure": f"{type(failure).__name__}: {str(failure).splitlines()[0][:200] if str(failure) else ''}"}
    print(name, "equal" if is_equal(row) else "NOT", row, flush=True)
    return row


def is_equal(row):
    """True if its errors are within their bounds."""
    return "with" in row and max(row["with"], row["without"], row.get("program", 0.0)) <= BOUND and \
        not row.get("peaks", (0, 0))[1] and all(passes(row, figure) for figure in NARROW)


STEPS_MEASURED = ({"mode": "forward"}, {"mode": "forward-backward"}, {"mode": "step"}, {"mode": "step", "recompute": "blocks"},
                  {"mode": "step", "parallel": "dp=2"}, {"mode": "step", "parallel": "dp=2,shard=3"})


def peaks_of(name, captured):
    """How many peaks were measured, and how many of them are not as predicted."""
    rows = [row for what in STEPS_MEASURED for row in tracestep.memory(
        program=captured, precision="fp32,bf16", executor="eager,compiled", threads=1, **what).table.rows]
    wrong = [row for row in rows if row["measured_peak_bytes"] != row["predicted_peak_bytes"]]
    for row in wrong:
        print(name, row, flush=True)
    return len(rows), len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, joined by commas")
    parser.add_argument("--program", help="a program with which capture checks itself")
    parser.add_argument("--jobs", type=int, default=1, help="modules at a time")
    parser.add_argument("--output", type=pathlib.Path, help="a page for the table")
    parser.add_argument("--rows", type=pathlib.Path, help="a file of rows, one a line, that is taken and added to")
    options = parser.parse_args()
    if options.program:
        tracestep.use(options.program)
    only = [name for name in options.only.split(",") if name]
    wanted = {name: kind for name, kind, _ in modules() if not only or name in only}
    found = {}
    if options.rows and options.rows.exists():
        found = dict(map(json.loads, options.rows.read_text(encoding="utf-8").splitlines()))
    left = [name for name in wanted if name not in found]
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for name, row in zip(left, pool.map(row_of, left, [options.program] * len(left))):
            found[name] = row
            if options.rows:
                with options.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, row]) + "\n")
    rows = [(name, kind, is_equal(found[name]), found[name]) for name, kind in wanted.items() if found[name]]
    problems = sum(kind != "tried once" and not equal for _, kind, equal, _ in rows)
    if options.output:
        before = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        card = before[before.index(ON_A_CARD):] if ON_A_CARD in before else ""
        options.output.write_text(page(rows, bool(options.program)) + card, encoding="utf-8")
    return 1 if problems else 0


ON_A_CARD = "\n## On a card\n"
MORE_TITLES = " by the program | float32 | PyTorch's | ten losses | PyTorch's | weights | PyTorch's |"


def page(rows, checks):
    """The table as Markdown."""
    import platform

    try:
        import transformers
        version = f", transformers {transformers.__version__}"
    except ImportError:
        version = ""
    lines = ["# Captured modules", "",
             f"Written by `tools/soak/captured_modules.py --output`, with torch {torch.__version__.partition('+')[0]}{version}, "
             f"Python {platform.python_version()}, on a CPU, in {sum(r[3].get('seconds', 0.0) for r in rows) / 60:.0f} minutes.", ""]
    for kind, title in (("own", "Own modules"), ("transformers", "Architectures of transformers"),
                        ("tried once", "Modules of other packages, tried once")):
        of_kind = [r for r in rows if r[1] == kind]
        if not of_kind:
            continue
        equal = sum("with" in r[3] and max(r[3][n] for n in ("with", "without", "program") if n in r[3]) <= BOUND
                    for r in of_kind)
        lines += [f"## {title}: {equal} of {len(of_kind)} equal in float64", "",
                  "Differences of loss, logits and gradients in float64, relative to each tensor's largest; with all "
                  "patterns and with none; by the program on the device reference. Then errors in float32 on the CPU against the "
                  "module in float64, the larger of eager and compiled, beside PyTorch's own: of a backward pass, and of the "
                  "losses and weights of ten steps of AdamW." if kind == "own" else "", "",
                  (f"In float32 within {USUAL:.0e}, or within {TIMES} times PyTorch's error: " + ", ".join(
                      f"{what} of {sum(n in r[3] and passes(r[3], n) for r in of_kind)} "
                      f"({sum(n in r[3] and r[3][n][0] <= USUAL for r in of_kind)} within {USUAL:.0e})"
                      for n, what in NARROW.items()) + f". Of {sum(r[3].get('peaks', (0, 0))[0] for r in of_kind)} peaks measured, "
                  f"{sum(r[3].get('peaks', (0, 0))[1] for r in of_kind)} are not as predicted."
                   + "".join(f" Of {STARTS} more starts of {name}, whose weights are at most one unit in the last place away, "
                             f"{row['jumps'][0]} end with losses beyond {USUAL:.0e}, and {row['jumps'][1]} of PyTorch's own; the "
                             "table has the largest errors." for name, _, _, row in of_kind if "jumps" in row)) if checks else "", "",
                  f"| module | with | without |{MORE_TITLES if checks else ''} nodes | constants | composites |",
                  f"|---|--:|--:|{'--:|' * 7 if checks else ''}--:|--:|---|"]
        for name, _, _, row in of_kind:
            if "with" not in row:
                why = row.get("reason", row.get("failure", "")).replace("|", "\\|")
                lines.append(f"| {name} | {'refused' if 'reason' in row else 'failed'} | |{' |' * 7 if checks else ''} | | {why} |")
                continue
            lines.append(f"| {name} | {row['with']:.1e} | {row['without']:.1e} |"
                         + (f" {row['program']:.1e} | " + "".join(f"{x:.1e} | " for n in NARROW for x in row[n]) if checks else " ")
                         + f"{row['nodes']} | {row['constants']} | {row['found']} |")
        lines.append("")
    return "\n".join(line for i, line in enumerate(lines) if line or i and lines[i - 1]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
