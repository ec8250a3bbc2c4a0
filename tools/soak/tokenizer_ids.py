#!/usr/bin/env python3
"""Tokens of tokenizer.json beside those of the library `tokenizers`, in each family's configuration.

Trains a tokenizer for each family of tests/golden/tokenizer_fixtures.py on Debian's translations and on
sources, and compares tokens of a megabyte of such text, of many languages, emoji and random bytes, and of
--count texts made at random, and what they decode to. Code points are those that this Python and the
library's NFC know: newer ones are read otherwise by older tables. --time also times ten megabytes on one thread.
Makes a virtual environment .venv-tokenizers with the PyPI packages (or run it by a Python that has them) and
builds the helper `tokenize` (or takes --program). The last line is a summary as JSON. Exit status 1: a
difference.

Usage: tools/soak/tokenizer_ids.py [--count N] [--seed N] [--entries N] [--families NAME,...] [--time]
                                [--published] [--program PATH]
TRACESTEP_TOKENIZERS names a folder of published tokenizers: of each folder in it the tokenizer.json, compared with
`tokenizers`, and the tokenizer.model, with `sentencepiece`. --published: these alone; status 77 where it is not set.
"""
import argparse
import gettext
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-tokenizers"
PUBLISHED = os.environ.get("TRACESTEP_TOKENIZERS", "")
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")

if "--published" in sys.argv and not PUBLISHED:
    print("TRACESTEP_TOKENIZERS names no folder of published tokenizers: nothing is compared")
    sys.exit(77)
if not all(map(importlib.util.find_spec, ("tokenizers", "sentencepiece"))):
    if Path(sys.prefix) == VENV:
        sys.exit("tokenizers or sentencepiece is not in .venv-tokenizers")
    if not (VENV / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "--quiet", "tokenizers==0.23.3", "sentencepiece==0.2.3"],
                       check=True)
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])

import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/golden"))
import tokenizer_fixtures as fixtures  # noqa: E402

MEGABYTE = 1 << 20
LOSING = {"unknown", "pieces"}  # of no family: they leave out text, or put some in front


def is_known(c):
    """Whether this Python has the code point, and the library, whose NFC has older tables, its class."""
    if unicodedata.category(chr(c)) in ("Cn", "Cs", "Co"):
        return False
    text = "a\u0345" + chr(c)
    return not unicodedata.combining(chr(c)) or NFC.normalize_str(text) == unicodedata.normalize("NFC", text)


NFC = tokenizers.normalizers.NFC()
KNOWN = [c for c in range(0x110000) if is_known(c)]
SPACES = [c for c in KNOWN if chr(c).isspace()] + [0x180e, 0x200b, 0x200c, 0x200d, 0xfeff]
MARKS = [c for c in KNOWN if unicodedata.combining(chr(c))]
COMPOSED = [c for c in KNOWN if unicodedata.decomposition(chr(c)) and
            unicodedata.normalize("NFC", chr(c)) != unicodedata.normalize("NFD", chr(c))]
NUMBERS = [c for c in KNOWN if unicodedata.category(chr(c))[0] == "N"]


def translations(rng, size):
    """Lines of Debian's translations, languages mixed."""
    files = sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo"))
    if not files:
        sys.exit("/usr/share/locale has no translations")
    out, total = [], 0
    while total < size:
        path = rng.choice(files)
        try:
            catalog = gettext.GNUTranslations(path.open("rb"))._catalog
        except (OSError, ValueError, IndexError):  # damaged, or with a head of its own
            continue
        lines = [text for key, text in catalog.items() if key and isinstance(text, str)]
        for text in rng.sample(lines, min(len(lines), 200)):
            out.append(text)
            total += len(text.encode()) + 1
    return out


def sources(size):
    files = sorted([*(ROOT / "src").rglob("*.cpp"), *(ROOT / "tools").rglob("*.py"), *(ROOT / "docs").rglob("*.md")])
    out, total = [], 0
    for path in random.Random(1).sample(files, len(files)):
        if total >= size:
            break
        out.append(path.read_text())
        total += len(out[-1].encode())
    return out


def random_text(rng, lines):
    """Bytes: pieces of text, signs of every kind, names of added tokens, and sometimes no UTF-8."""
    def sign():
        kind = rng.randrange(8)
        if kind < 2:
            return chr(rng.randrange(0x20, 0x7f))
        pool = [KNOWN, SPACES, MARKS, COMPOSED, NUMBERS, range(0x1f300, 0x1f6d8)][kind - 2]
        return chr(rng.choice(pool))

    names = fixtures.EDGES + ["<s>", "</s>", "<|im_start|>", "<|user|>", "word", "Hello", "\n\n", "▁▁", "  ",
                              "<0x41>", "[INST]", "<think>", "'s", "'LL", "'ſ"]
    out = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(7)
        if kind == 0:
            line = rng.choice(lines)
            start = rng.randrange(len(line) + 1)
            out.append(line[start:start + rng.randrange(80)].encode())
        elif kind == 1:
            out.append("".join(sign() for _ in range(rng.randrange(12))).encode())
        elif kind == 2:
            out.append((sign() * rng.randrange(1, 40)).encode())
        elif kind == 3:
            name = rng.choice(names)
            out.append(name[:rng.choice([len(name), rng.randrange(len(name) + 1)])][:60].encode())
        elif kind == 4:
            out.append(chr(rng.choice(SPACES)).encode() * rng.randrange(1, 5))
        elif kind == 5:
            out.append(str(rng.randrange(10 ** rng.randrange(1, 20))).encode())
        elif rng.randrange(4) == 0:
            out.append(rng.randbytes(rng.randrange(8)))
    return b"".join(out)


class Refused(Exception):
    """In the words of the program."""


def theirs_of(path):
    """Text -> (tokens, what they decode to, where that is to be compared) of the library for such a file."""
    if path.suffix == ".model":
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return lambda text: (model.encode(text), None)
    library = tokenizers.Tokenizer.from_file(str(path))

    def encoded(text):
        ids = library.encode(text, add_special_tokens=False).ids
        return ids, library.decode(ids, skip_special_tokens=False)
    return encoded


def ours(program, path, texts):
    """(tokens, decoded bytes, seconds) of each text; Refused: a tokenizer that is not taken."""
    given = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
    run = subprocess.run([program, path], input=given, capture_output=True)
    if run.returncode != 0:
        raise Refused(f"{path}: {run.stderr.decode(errors='replace').strip()}")
    out, at = [], 0
    while at < len(run.stdout):
        tokens = run.stdout.index(b"\n", at)
        facts = run.stdout.index(b"\n", tokens + 1)
        size, seconds = run.stdout[tokens + 1:facts].split()
        ids = [int(word) for word in run.stdout[at:tokens].split()]
        at = facts + 1 + int(size) + 1
        out.append((ids, run.stdout[facts + 1:at - 1], float(seconds)))
    return out


def compare(name, path, texts, program):
    """How many texts have other tokens, or decode to other bytes where the library's are UTF-8."""
    faults, mine, theirs = 0, ours(program, path, texts), theirs_of(path)
    for text, (ids, decoded, _) in zip(texts, mine, strict=True):
        expected, back = theirs(text.decode("utf-8", "replace"))
        # Beyond UTF-8, decoding is ours alone.
        if ids == expected and (back is None or "\ufffd" in back or name in LOSING or decoded == back.encode()):
            continue
        faults += 1
        if faults <= 3:
            at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
            print(f"{name}: {text[:60]!r}\n  at {at}: ours {ids[at:at + 8]}, theirs {expected[at:at + 8]}; "
                  f"decoded {decoded[:60]!r}, {back[:60] if back else back!r}")
    return faults


def build_helper(build):
    """Its path."""
    subprocess.run(["cmake", "--build", str(build), "--target", "tokenize"], check=True, stdout=subprocess.DEVNULL)
    return build / "tests/tokenize"


def in_documents(lines, size=16384):
    whole = "\n".join(lines).encode()
    return [whole[i:i + size].decode("utf-8", "ignore") for i in range(0, len(whole), size)]


def timed(name, path, documents, program):
    """Megabytes a second, of documents and of all as one text; the better of two."""
    theirs = tokenizers.Tokenizer.from_file(str(path))
    texts = [text.encode() for text in documents]
    size = sum(map(len, texts)) / 1e6
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        theirs.encode_batch_fast(documents, add_special_tokens=False)
        seconds.append(time.perf_counter() - start)
    single = min(sum(t for _, _, t in ours(program, path, texts)) for _ in range(2))
    whole = min(ours(program, path, [b"".join(texts)])[0][2] for _ in range(2))
    print(f"{name:14} theirs {size / min(seconds):6.1f} MB/s  ours {size / single:6.1f} in documents, "
          f"{size / whole:6.1f} as one text", flush=True)
    return {"theirs": round(size / min(seconds), 1), "ours": round(size / single, 1), "whole": round(size / whole, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100000, help="random texts for each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entries", type=int, default=8000, help="of each trained vocabulary")
    parser.add_argument("--families", default="", help="names, separated by commas; all when left out")
    parser.add_argument("--published", action="store_true", help="those of TRACESTEP_TOKENIZERS alone")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--program", type=Path, help="the helper; built when left out")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the folder to build it in")
    args = parser.parse_args()
    if args.program is None:
        args.program = build_helper(args.build)
    published = sorted(path for name in ("json", "model") for path in Path(PUBLISHED).glob(f"*/tokenizer.{name}")
                       if PUBLISHED)
    if PUBLISHED and not published:
        sys.exit(f"TRACESTEP_TOKENIZERS: no folder in {PUBLISHED} has a tokenizer.json or tokenizer.model")
    rng = random.Random(args.seed)
    lines, code = translations(rng, MEGABYTE // 2), sources(MEGABYTE // 4)
    corpus = fixtures.SENTENCES.splitlines() * 3 + translations(rng, 2 * MEGABYTE) + code
    noise = [random_text(rng, lines) for _ in range(4000)]
    megabyte = b"\n".join([*(line.encode() for line in lines + code), *noise])
    texts = [megabyte, *fixtures.texts(), *noise, *(random_text(rng, lines) for _ in range(args.count))]
    documents = in_documents(translations(rng, 7_000_000) + sources(3_000_000)) if args.time else []
    faults, runs, speed, names, refused = 0, 0, {}, [], []
    only = set(filter(None, args.families.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name, make in fixtures.families(corpus, args.entries).items():
            if args.published or only and name not in only:
                continue
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps(make(), ensure_ascii=False))
            found.append((name, path))
        found += [(f"{path.parent.name}/{path.name}", path) for path in published]
        for name, path in found:
            try:
                bad = compare(name, path, texts, args.program)
            except Refused as reason:
                refused.append(name)
                print(f"{name:14} is refused: {reason}", flush=True)
                continue
            faults, runs = faults + bad, runs + len(texts)
            names.append(name)
            print(f"{name:14} {len(texts)} texts, {len(megabyte)} bytes in the first: {bad} differ", flush=True)
            if documents and path.suffix == ".json":
                speed[name] = timed(name, path, documents, args.program)
    print(json.dumps({"battery": "tokenizers", "families": names, "runs": runs, "faults": faults,
                      "refused": refused,
                      "tokenizers": tokenizers.__version__, "unicode": unicodedata.unidata_version,
                      "megabytes_per_second": speed, "ok": faults == 0 and runs > 0}))
    return 0 if faults == 0 and runs > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
