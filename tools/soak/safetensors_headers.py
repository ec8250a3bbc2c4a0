#!/usr/bin/env python3
"""Random and mutated safetensors files, judged by our reader and by the reference library.

Makes a virtual environment .venv-safetensors with the PyPI package `safetensors`, builds the helper
judge_safetensors (or takes --program), and reports every file on which the two differ in a way that
docs/files.md does not announce. The last line is a summary as JSON. Exit status 1: a difference.

Usage: tools/soak/safetensors_headers.py [--count N] [--seed N] [--program PATH]
"""
import argparse
import collections
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-safetensors"

# Where ours is the stricter one on purpose: a part of its message.
STRICTER = ["occurs twice", "contains NUL", "more than 64 dimensions", "more than 65536 members",
            "from 0 to 2^63-1", "contains a NUL byte", "does not fit 64 bits"]
TYPES = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "I16": 16, "U16": 16, "F16": 16,
         "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64}
NUMBERS = ["-0", "-1", "0", "1", "1.0", "1e0", "01", "+1", "9223372036854775807",
           "9223372036854775808", "18446744073709551615", "18446744073709551616", "1e400", "null",
           "true", "\"1\"", "[]", "{}", "NaN"]
PIECES = [b"{", b"}", b"[", b"]", b",", b":", b"\"", b"\\", b" ", b"\n", b"\t", b"\0", b"\xff",
          b"\xef\xbb\xbf", b"\\u0000", b"\\ud800", b"\\u0061", b"\\x", b"//", b"\x0b", b"\x7f",
          b"\xc3\xa9", b"\xed\xa0\x80", b"\"dtype\":", b"\"shape\":[]", b"\"__metadata__\":{}",
          b"\"new\":1,", b"\"new\":[[{}]],"]


def valid(rng):
    """The members of a header that is right, as text, and its data."""
    members, at = [], 0
    if rng.random() < 0.3:
        members.append('"__metadata__":' + json.dumps({f"k{i}": "v" for i in range(rng.randrange(3))}))
    for i in range(rng.randrange(4)):
        dtype, bits = rng.choice(list(TYPES.items()))
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        size = bits // 8
        for dim in shape:
            size *= dim
        members.append(f'"{rng.choice("abcdefgh")}{i}":' + json.dumps(
            {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]},
            separators=rng.choice([(",", ":"), (", ", ": ")])))
        at += size
    if rng.random() < 0.3:
        rng.shuffle(members)
    return members, at


def mutated(header, rng):
    out = bytearray(header)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        place, kind = rng.randrange(len(out) + 1), rng.randrange(5)
        digits = [i for i, c in enumerate(out) if 48 <= c < 58]
        if kind == 0 and digits:
            i = rng.choice(digits)
            out[i:i + 1] = rng.choice(NUMBERS).encode()
        elif kind == 1:
            out[place:place] = rng.choice(PIECES)
        elif kind == 2:
            del out[place:place + rng.randrange(1, 4)]
        elif kind == 3 and place < len(out):
            out[place] = rng.randrange(256)
        elif len(out) > 2:
            a, b = sorted((rng.randrange(len(out)), rng.randrange(len(out))))
            out[place:place] = out[a:b]
    return bytes(out)


def file_of(rng):
    members, size = valid(rng)
    header = ("{" + ",".join(members) + "}").encode()
    if rng.random() < 0.2:
        header = rng.choice([b" ", b"\n", b""]) + header + b" " * rng.randrange(9)
    header = mutated(header, rng)
    length = len(header)
    if rng.random() < 0.05:
        length = rng.choice([0, 1, length - 1, length + 1, 100_000_001, 2**63, 2**64 - 1])
    data = size if rng.random() < 0.95 else max(0, size + rng.choice([-1, 1, 8]))
    return struct.pack("<Q", length % 2**64) + header + bytes(data)


REFERENCE = """
import sys
from safetensors import deserialize
for path in sys.stdin:
    try:
        deserialize(open(path.rstrip("\\n"), "rb").read())
        print("accept", flush=True)
    except Exception as e:
        print("refuse", " ".join(str(e).split())[:300], flush=True)
"""


def start(command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            errors="replace")


def ask(judge, path):
    judge.stdin.write(f"{path}\n")
    judge.stdin.flush()
    answer = judge.stdout.readline().rstrip("\n")
    if not answer:
        sys.exit(f"a judge ended at {path} with {judge.wait()}")
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, help="judge_safetensors; built when left out")
    args = parser.parse_args()
    if args.program is None:
        subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", "judge_safetensors"],
                       check=True, stdout=subprocess.DEVNULL)
        args.program = ROOT / "build/tests/judge_safetensors"
    if not (VENV / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "--quiet", "safetensors==0.8.0"], check=True)
    ours = start([args.program])
    theirs = start([VENV / "bin/python", "-c", REFERENCE])
    rng = random.Random(args.seed)
    counts, differences = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.safetensors"
        for _ in range(args.count):
            content = file_of(rng)
            path.write_bytes(content)
            a, b = ask(ours, path), ask(theirs, path)
            if a.split()[0] == b.split()[0]:
                counts["both " + a.split()[0]] += 1
            elif a.startswith("refuse") and (part := next((s for s in STRICTER if s in a), None)):
                counts[f"stricter: {part}"] += 1
            else:
                differences += 1
                if differences <= 20:
                    print(f"{content[:400]!r}\n  ours:   {a}\n  theirs: {b}")
    print(json.dumps({"battery": "safetensors_headers", "files": args.count,
                      "differences": differences, "counts": dict(sorted(counts.items())),
                      "ok": differences == 0}))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
