#!/usr/bin/env python3
"""How fast `tracestep read` is on large recordings, and how much memory it takes.

A real trace is repeated with shifted times, fresh ids and names of its own until it has the bytes asked for, plain
and gzip; a real snapshot likewise, with addresses of its own. Prints seconds, MB of text a second and the most
memory that was resident. Takes no part in the tests: 4 GB need minutes and disk space.
"""
import argparse
import gzip
import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import time

NUMBER = re.compile(
    r'("ts": |"correlation": |"External id": |"Sequence number": |"id": )([0-9]+)(?=[.,\s}])')
NAME = re.compile(r'"cat": "(?:kernel|cpu_op)", "name": "((?:[^"\\]|\\.)*)')


def open_text(path, mode):
    return gzip.open(path, mode, compresslevel=1) if str(path).endswith(".gz") else open(path, mode)


def templates(events):
    """Each event as literal texts with numbers between them: what differs between repetitions."""
    out = []
    for event in events:
        parts = NUMBER.split(event)  # text, key, number, text, …
        literals, slots = [parts[0]], []
        for key, number, text in zip(parts[1::3], parts[2::3], parts[3::3]):
            literals[-1] += key
            slots.append((key.startswith('"ts'), int(number)))
            literals.append(text)
        out.append((literals, slots))
    return out


def write_trace(source, target, size, names):
    """Repeats the trace `source` until `target` has `size` bytes of text and `names` names."""
    with open_text(source, "rt") as file:
        text = file.read()
    begin = text.index("[", text.index('"traceEvents"')) + 1
    end = text.rindex("]")
    events = re.split(r"""(?<=\}),(?=\s*\{\s*"ph")""", text[begin:end])
    stamps = [int(n) for n in re.findall(r'"ts": ([0-9]+)', text[begin:end])]
    ids = [int(n) for k, n in NUMBER.findall(text[begin:end]) if not k.startswith('"ts')]
    span, ids_span = max(stamps) - min(stamps) + 1000, max(ids) + 1
    repeats = max(1, round(size / (end - begin)))
    named = [i for i, event in enumerate(events) if NAME.search(event)]
    fresh = -(-names // repeats)  # names that each repetition adds
    made = templates(events)
    with open_text(target, "wt") as out:
        out.write(text[:begin])
        for r in range(repeats):
            lines = []
            for i, (literals, slots) in enumerate(made):
                line = literals[0]
                for (is_time, number), text_behind in zip(slots, literals[1:]):
                    line += str(number + r * (span if is_time else ids_span)) + text_behind
                lines.append(line)
            for i in named[:fresh]:
                lines[i] = NAME.sub(lambda m: m.group(0) + f" of {r}.{i}", lines[i], count=1)
            out.write(",".join(lines) + ("," if r + 1 < repeats else ""))
        out.write(text[end:])


def plain(value):
    """The pickle of a value without memo, head and end, so that such texts can stand in a row."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=2)
    pickler.fast = True
    pickler.dump(value)
    return file.getvalue()[2:-1]


def write_snapshot(source, target, size):
    """Repeats the events of the snapshot `source`, each time as new objects."""
    with open(source, "rb") as file:
        base = pickle.load(file)
    trace = max(base["device_traces"], key=len)
    shift = max(e.get("time_us", 0) for e in trace) - min(e.get("time_us", 0) for e in trace) + 1
    with open(target, "wb") as out:
        out.write(b"\x80\x02}(" + plain("segments") + plain(base["segments"]))
        out.write(plain("device_traces") + b"](](")
        r = 0
        while out.tell() < size:
            for event in trace:
                out.write(plain({**event, "time_us": event.get("time_us", 0) + r * shift}))
            r += 1
        out.write(b"eeu.")


def measure(program, path, text_bytes):
    began = time.monotonic()
    child = subprocess.Popen([program, "read", str(path), "--format", "json"], stdout=subprocess.PIPE)
    answer = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    print(f"| {path.name} | {path.stat().st_size / 1e6:,.0f} | {text_bytes / 1e6:,.0f} | {seconds:.1f} "
          f"| {text_bytes / 1e6 / seconds:.0f} | {usage.ru_utime + usage.ru_stime:.1f} "
          f"| {usage.ru_maxrss / 1024:,.0f} | {len(answer) / 1e6:.1f} |", flush=True)
    return status


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--program", default="build/tracestep")
    options.add_argument("--trace", help="a trace of torch.profiler, .json or .json.gz")
    options.add_argument("--snapshot", help="a memory snapshot, .pickle")
    options.add_argument("--bytes", type=float, default=4e9, help="of the trace's text")
    options.add_argument("--snapshot-bytes", type=float, default=1e9)
    options.add_argument("--names", type=int, default=100_000)
    options.add_argument("--gzip", action="store_true", help="the trace compressed as well")
    options.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("out"))
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| file | MB | MB of text | s | MB/s | CPU s | MiB resident | MB of answer |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    failed = 0
    if given.trace:
        plain = given.folder / "large.json"
        write_trace(given.trace, plain, given.bytes, given.names)
        size = plain.stat().st_size
        failed |= measure(given.program, plain, size)
        if given.gzip:
            packed = given.folder / "large.json.gz"
            with open(packed, "wb") as out:
                subprocess.run(["gzip", "-1", "-c", str(plain)], stdout=out, check=True)
            failed |= measure(given.program, packed, size)
    if given.snapshot:
        path = given.folder / "large.pickle"
        write_snapshot(given.snapshot, path, given.snapshot_bytes)
        failed |= measure(given.program, path, path.stat().st_size)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
