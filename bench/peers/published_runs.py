#!/usr/bin/env python3
"""Holds predictions beside training runs that others have published.

    bench/peers/published_runs.py [--program build/tracestep] [--only TEXT] [--quick]
                                  [--output bench/results/published-runs.md]

published_runs.csv has a row for each: the model, the device and the form of its step, with the tokens
a second of each GPU, the peak and the MFU as they are printed there. `tracestep predict --published`
says the same from the device's data sheet; nothing in it is fitted to these rows. Where the links
between hosts are not stated, it is asked twice: as if they hid behind products, and with SLOW_LINK.
Rows whose column `aside` says yes were drawn by laid_aside() before shares by generation were fitted to
the others, and are told apart from them. published_peaks.csv has peaks that are printed, beside `tracestep memory --predict` of the same step.
With --quick one row of peaks for each of its notes. Needs no GPU: a minute on one core.
"""
import argparse
import csv
import json
import random
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEED = 55
HIDDEN_LINK, SLOW_LINK = 1e6, 25  # GB/s of each GPU; the second is a network of 200 Gb/s

PAGES = {
    "torchtitan A100": "https://github.com/pytorch/torchtitan/blob/"
                       "041336434916bdc0f88c1f89fda176fd3c2092e4/docs/performance.md",
    "torchtitan H100": "https://github.com/pytorch/torchtitan/blob/"
                       "31a17bfdb70bab6f62a13d21816a5339b911d6e3/benchmarks/"
                       "llama3_h100_202412_torchtitan.md",
    "fms-fsdp": "https://github.com/foundation-model-stack/fms-fsdp/blob/"
                "0d319983c4b3b7f7b3b5e2c5e7f746746b6f73a9/README.md",
    "llm.c": "https://github.com/karpathy/llm.c/tree/"
             "039904ee9fb925be226116d08b0e4c73e6518b7e/scripts",
    "torchtitan 165": "https://github.com/pytorch/torchtitan/pull/165",
    "llm.c 309": "https://github.com/karpathy/llm.c/pull/309",
    "write-up": "../../src/course/data/README.md",
    "llm-foundry": "https://github.com/mosaicml/llm-foundry/blob/"
                   "8c8dd48f72168c5d51e2f7b151595892a8fba43d/scripts/train/benchmarking/README.md",
    "LLM.Q": "https://github.com/IST-DASLab/llmq/blob/"
             "00ea1be96fc17fca9ea71bfbceebb1785cb0e7ce/README.md",
}

ABOUT = {
    "links": "The links between hosts are not stated: the prediction is of links that hide behind "
             "products, the other one of 25 GB/s for each GPU; what they had lies between. MFU of "
             "`torchtitan` counts the embedding among the weights, ours those of products alone.",
    "llmc": "Step times are those of the scripts' comments, in round figures. Weights, activations and "
            "gradients are bf16 as there; float32 master weights, which AdamW reads besides, are not "
            "said. At these rates MFU is 60 to 64 % on an A100 and 47 % on an H100.",
    "llmq": "Rates are printed with two or three digits; the context is its default. Micro-batches add "
            "up to 524,288 tokens, which the page says of another card. The page gives its rates on an L40S as 72 to 93 % "
            "of the fastest there could be: by a lower peak than that of the data sheet, of which they "
            "are 37 to 43 % as MFU.",
    "geforce": "At the reported rates MFU is 76 to 84 % of the data sheet's peak (the page says 75 to 82 %): such "
               "cards run above the clock of the sheet.",
    "context": "Another form, and so left out of the errors: eager PyTorch of 2023 that fuses less, with tiled "
               "attention in Triton. One model over contexts, on one host: with one share for products and "
               "attention these errors were between 0 and 75 %, growing with the context.",
    "power": "Not a device of the table, and so left out of the errors: these H100 had 2.4 TB/s and a "
             "limit of 500 W, where an H100 SXM has 3.35 and 700, and the page gives no peak for them. "
             "Their selective recomputation keeps every other product of a layer, which cannot be "
             "said here: what is recomputed is chosen for the peak that they report.",
}

OTHER_FORMS = ("power", "context")
# What the largest error says.
BOUND = ["One is beyond 15 %: 0.5B on an L40S, which was laid aside. The generation's share is fitted to a single run of a "
         "model twice as wide; products of 896 reach less there than the larger ones. A later page of the same program "
         "prints 44,000 tokens a second, of which the prediction is 12 % off. Before there were shares by generation, the "
         "20 errors of this program were 10.9 % in the median and 39.8 % at most."]

NOT_SAID = [
    "`torchtitan`, selective recomputation by ops on A100 (3 rows): it keeps every other product of a "
    "layer; `--recompute` keeps what stands between the parts that it names.",
    "`torchtitan` with float8, with context or pipeline parallelism (16 rows): there are none here; its "
    "tables of asynchronous tensor parallelism are pictures.",
    "`fms-fsdp`, 7B and 13B: gradients are summed over groups that are sharded inside (HSDP); 34B: its "
    "sizes are not published.",
    "LLM.Q with fp8, with moments or weights in the host's memory, or on an RTX PRO 6000: no such "
    "products, no such step on one GPU, no such device in the table.",
    "Peaks of `torchtitan` with selective recomputation by ops, of LLM.Q and `fms-fsdp`: of another form, "
    "or not printed. Peaks of write-ups A and D: how many copies of the scores and which gradients are "
    "alive is not said.",
]

# Whether the form is the same, and what explains the error.
PEAKS = {
    "graph": (True, "Eager steps of the course's model, whose forward keeps what backward needs. That write-up "
                    "saves three copies of the scores, ours two: at context 512 in float32 that is 4 GiB of "
                    "4.5 that are missing; in bf16 ours are wider. PyTorch's GB are taken for GiB."),
    "rounded": (None, "Printed in whole GB, which mix powers of ten and of two: a unit is 1 to 7 % of them. "
                      "The error is that of powers of two; of ten it is 7 points higher, which is near zero "
                      "for inference and steps."),
    "stay": (False, "Gradients of the step before stay until they are overwritten, so they stand beside the "
                    "activations: 16 bytes for each parameter and all that backward needs. Ours are "
                    "allocated in backward, as with `zero_grad(set_to_none=True)`. The times are of an "
                    "A800; its float32 products reach 64 to 75 % of the peak in these steps, where a "
                    "prediction takes 68 % of it for every kernel."),
    "active": (True, "Bytes in use, as 23.92 % of 95.04 GiB. Its FSDP gathers the next layer ahead and "
                     "sums gradients in float32 buffers of a whole layer."),
    "reserved": (False, "Bytes that the allocator holds, with its unused rest: above those in use by as much "
                        "as fragments take (33 against 24 % in the row above)."),
    "process": (False, "Memory of the whole process, with the CUDA context and cuDNN's workspace; it keeps "
                       "float32 master weights, and activations that ours does not keep (the 124M one prints "
                       "13,629 MiB of them)."),
}


# Models that the program does not know by name.
MPT = ("--vocab 50368 --norm-kind layer --norm-bias on --qkv-bias on --output-bias on --ffn-bias on "
       "--activation gelu --gated off --tied-head on --positions learned --max-positions 65536")
MODELS = {"mpt-1b": f"--d-model 2048 --d-ff 8192 --layers 24 --heads 16 {MPT}",
          "mpt-7b": f"--d-model 4096 --d-ff 16384 --layers 32 --heads 32 {MPT}"}

# What a row means where it does not say it: plans for a GPU assume other values.
PLAIN = {"--precision": "fp32", "--attention": "naive", "--executor": "eager", "--batch": "4"}


def plain(command):
    return command + [word for flag, value in PLAIN.items() if flag not in command
                      for word in (flag, value)]


def model_flags(model):
    return shlex.split(MODELS[model]) if model in MODELS else ["--model", model]


def laid_aside(rows):
    """The rows that shares are not fitted to: those of each device in an order that the seed draws, one
    device after the other, and every second of them."""
    draw, order = random.Random(SEED), []
    for device in dict.fromkeys(r["device"] for r in rows):
        group = [r for r in rows if r["device"] == device]
        draw.shuffle(group)
        order += group
    return order[::2]


def without(command, flag):
    return [word for i, word in enumerate(command) if word != flag and command[i - 1] != flag]


def predicted(program, row, mode, link):
    flags = row["flags"].format(gpus=row["gpus"], peak=row["peak_gib"],
                                alternate=every_other_layer(program, row["model"]))
    command = [program, "predict", *model_flags(row["model"]), "--published", row["device"],
               "--batch", str(int(row["batch"]) * int(row["gpus"])), "--context", row["context"],
               "--attention", "flash", "--mode", mode, "--format", "json", *shlex.split(flags)]
    if mode != "step":  # no update has any
        command = without(command, "--moments")
    if int(row["gpus"]) > 1:
        command += ["--link-gb-s", str(link)]
    return json.loads(subprocess.run(plain(command), check=True, capture_output=True, text=True).stdout)


def every_other_layer(program, model):
    layers = 0 if model in MODELS else layers_of(program, model)
    return "+".join(f"layers.{i}" for i in range(0, layers, 2))


def layers_of(program, model, known={}):
    if not known:
        listing = subprocess.run([program, "models", "--format", "json"], check=True,
                                 capture_output=True, text=True).stdout
        known.update({m["model"]: m for m in json.loads(listing)["rows"]})
    return known[model]["layers"]


def tokens_per_s(program, row, link):
    """Of each GPU; and the row of the prediction of one micro-batch with its update."""
    step = predicted(program, row, "step", link)["rows"][0]
    ms, micro = step["predicted_ms"], int(row["micro"])
    if micro > 1:
        ms += (micro - 1) * predicted(program, row, "forward-backward", link)["rows"][0]["predicted_ms"]
    tokens = int(row["batch"]) * int(row["context"]) * micro
    return tokens / (ms * 1e-3), step


def line(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def page_of(report):
    return PAGES.get(report) or PAGES[report.split()[0]]


def compare(program, rows):
    out = []
    for row in rows:
        stated = row["link_gb_s"]
        rate, step = tokens_per_s(program, row, stated or HIDDEN_LINK)
        slow = None
        if int(row["gpus"]) > 1 and not stated:
            slow, _ = tokens_per_s(program, row, SLOW_LINK)
        reported = float(row["tokens_per_s"])
        out.append({**row, "rate": rate, "slow": slow, "error": 100 * (rate / reported - 1),
                    "peak": step["peak_bytes"] / 2**30, "mfu": step["mfu_percent"]})
        print(f"{row['report']:16} {row['model']:14} {out[-1]['error']:6.1f} %", file=sys.stderr)
    return out


def answer(program, command, row, extra=()):
    full = plain([program, *command, *shlex.split(row["flags"]), *extra, "--format", "json"])
    return json.loads(subprocess.run(full, check=True, capture_output=True, text=True).stdout)["rows"][0]


def peaks(program, quick):
    with open(Path(__file__).with_name("published_peaks.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    if quick:
        rows = list({row["about"]: row for row in reversed(rows)}.values())
    for row in rows:
        row["peak"] = answer(program, ["memory", "--predict", "--device", "cuda"],
                             row)["predicted_peak_bytes"] / 2**30
        row["error"] = 100 * (row["peak"] / float(row["printed"]) - 1)
        if row["device"]:
            rate = answer(program, ["predict", "--published", row["device"]], row)["tokens_per_s"]
            row["rate"] = rate / int(row["gpus"])
        print(f"{row['report']:16} {row['form']:50} {row['error']:6.1f} %", file=sys.stderr)
    return rows


def text_of_peaks(rows):
    same = [abs(r["error"]) for r in rows if PEAKS[r["about"]][0]]
    text = ["## Peaks", "",
            f"Of {len(same)} peaks whose step has the same form and whose unit is known the error is {statistics.median(same):.1f} % "
            f"in the median and {max(same):.1f} % at most; those of another form are listed with what "
            "differs. Each rank's, in GiB.", ""]
    head = ["report", "step", "flags", "printed", "predicted (GiB)", "error (%)", "tokens/s", "predicted"]
    for about, (is_same, words) in PEAKS.items():
        kind = {True: "The same form:", False: "Another form:",
                None: "The same form, in a unit that is not said:"}[is_same]
        text += [kind, "", line(head),
                 line(["---"] * len(head))]
        for r in (r for r in rows if r["about"] == about):
            page = PAGES.get(r["report"]) or PAGES["write-up"]
            text.append(line([
                f"[{r['report']}]({page})", r["form"], f"`{r['flags']}`",
                f"{r['printed']} {r['unit']}", f"{r['peak']:.2f}", f"{r['error']:+.1f}",
                r["tokens_per_s"], f"{r['rate']:,.0f}" if r["device"] else ""]))
        text += ["", words, ""]
    return text


def errors_of(rows):
    errors = [abs(r["error"]) for r in rows] or [0]
    return f"{statistics.median(errors):.1f} % in the median and {max(errors):.1f} % at most"


def text_of(results, printed_peaks, version):
    counted = [r for r in results if r["about"] not in OTHER_FORMS]
    aside = [r for r in counted if r["aside"]]
    fitted = [r for r in counted if not r["aside"]]
    text = [
        "# Predicted beside published runs", "",
        f"Made by `bench/peers/published_runs.py`, {version}: tokens a second of each GPU as others "
        "report them, beside `tracestep predict --published` of the same model, device and form. The "
        "prediction knows the device's data sheet, and for its generation the shares of the peak that "
        "products and attention reach ([predict](../../docs/predict.md#devices-that-are-not-here)).", "",
        "Before shares were fitted, every second row of each device was laid aside, in an order drawn by the "
        f"seed {SEED} (`laid_aside()` of the script): they were opened once, when the shares stood. On Ampere, Ada "
        "and GeForce shares are fitted to the other rows, on Ampere to those of one model over contexts, too; "
        "on Hopper to steps that were measured here ([a table](prediction-h200.md#from-the-data-sheet)). When "
        "the ten were opened they were 4.4 % off in the median and 17.6 % at most; after it only attention's share on "
        "Hopper was made one of the context, by what attention takes alone on an H200.", "",
        f"Of {len(counted)} runs whose model, device and form can be said, the error is {errors_of(counted)}: "
        f"of the {len(fitted)} that were not laid aside {errors_of(fitted)}, of the {len(aside)} that were "
        f"{errors_of(aside)}.", "", *BOUND, ""]
    head = ["report", "model", "GPUs", "batch of each", "context", "form", "tokens/s", "predicted",
            "at 25 GB/s", "error (%)", "laid aside", "MFU (%)", "predicted MFU (%)", "predicted peak (GiB)"]
    for about, words in ABOUT.items():
        rows = [r for r in results if r["about"] == about]
        if not rows:
            continue
        text += [line(head), line(["---"] * len(head))]
        for r in rows:
            micro = f" × {r['micro']}" if r["micro"] != "1" else ""
            text.append(line([
                f"[{r['report']}]({page_of(r['report'])})", r["model"], r["gpus"], r["batch"] + micro,
                r["context"], r["form"], f"{float(r['tokens_per_s']):,.0f}", f"{r['rate']:,.0f}",
                f"{r['slow']:,.0f}" if r["slow"] else "", f"{r['error']:+.1f}", r["aside"], r["mfu_percent"],
                f"{r['mfu']:.1f}", f"{r['peak']:.1f}"
                + (f" (reported {r['peak_gib']})" if r["peak_gib"] else "")]))
        text += ["", words, ""]
    text += text_of_peaks(printed_peaks)
    text += ["## What cannot be said", ""] + [f"- {words}" for words in NOT_SAID]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=ROOT / "build" / "tracestep")
    parser.add_argument("--only", default="", help="rows of reports whose name has this")
    parser.add_argument("--quick", action="store_true", help="few peaks")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/published-runs.md")
    args = parser.parse_args()
    with open(Path(__file__).with_suffix(".csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    drawn = laid_aside([r for r in rows if r["about"] not in OTHER_FORMS])
    if any((r in drawn) != (r["aside"] == "yes") for r in rows):
        sys.exit("published_runs.py: the rows that are laid aside are not those that the seed draws")
    rows = [r for r in rows if args.only in r["report"]]
    if not rows:
        sys.exit(f"published_runs.py: no report has \"{args.only}\" in its name")
    program = str(args.program)
    environment = predicted(program, rows[0], "step", HIDDEN_LINK)["environment"]
    version = f"{environment['tool']} ({environment['commit']}), {environment['date_utc']}"
    args.output.write_text(text_of(compare(program, rows), peaks(program, args.quick), version))


if __name__ == "__main__":
    main()
