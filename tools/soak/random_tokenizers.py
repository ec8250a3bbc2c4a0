#!/usr/bin/env python3
"""Tokens of random tokenizer.json files beside those of the library `tokenizers`.

Makes --count files at random: normalizers, pre-tokenizers, options of byte-pair encoding, added tokens that
overlap, lie in white space or are found only as normalized, kinds that are not read; and some texts for each,
put together of what these files look for. Compares tokens, and what they decode to with the decoder that
belongs to the file. A file that both take and a text that both read has to have the same tokens; what only one
of them refuses is counted, by reason. Makes a virtual environment and the helper as tokenizer_ids.py does. The
last line is a summary as JSON. Exit status 1: a difference.

Usage: tools/soak/random_tokenizers.py [--count N] [--seed N] [--texts N] [--program PATH] [--build FOLDER]
"""
import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["RUST_BACKTRACE"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parent))
from tokenizer_ids import build_helper, tokenizers  # noqa: E402  (starts this again by the Python that has them)

SPACES = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u0085", "\u200b"]
SIGNS = ["a", "b", "c", "ab", "bc", "abc", "A", "x", "1", "12", "2", "!", "!!", ",", "~", "_", "'s", "'S", "\u6f22",
         "\u2581", "\u2581\u2581", "\u2581a", "o\u0323", "\u1ecd", "\u0323", "e\u0301", "\u00e9", "\u0301", "\u0958", "\u212b",
         "\u1112\u1161\u11ab", "\U0001f600", "\u0e01", "\u200d", "<s>", "</s>", "<s", "word"]
PATTERNS = [r"\s+", r"\s", r"[a-c]", "[^a]", "a|bc", "(?<=a)b", "b(?=c)", r"a+", "x{2,}", "(?i:ab)", r"\p{L}+", r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+", r"\s+(?!\S)|\s+", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+",
            r"\p{M}", "\u2581", r"[\p{P}]", r"\S+"]
FOREIGN = [{"type": "Lowercase"}, {"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True}]
BYTES = [chr(b) for b in range(256) if 0x21 <= b <= 0x7e or (b >= 0xa1 and b != 0xad)]
BYTES += [chr(0x100 + i) for i in range(256 - len(BYTES))]


def some(rng, items, least, most):
    return [rng.choice(items) for _ in range(rng.randrange(least, most + 1))]


def pattern_of(rng):
    if rng.random() < 0.5:
        return {"Regex": rng.choice(PATTERNS)}
    return {"String": rng.choice(SIGNS + SPACES)}


def normalizer_of(rng):
    kind = rng.randrange(12)
    if kind < 3:
        return {"type": "NFC"}
    if kind < 5:
        return {"type": "Prepend", "prepend": rng.choice(["\u2581", "\u2581", " ", "x", "ab", "\u0323"])}
    if kind < 8:
        return {"type": "Replace", "pattern": {"String": " "}, "content": rng.choice(["\u2581", "\u2581", "~", ""])}
    if kind < 11 or rng.random() < 0.7:
        pattern, content = pattern_of(rng), rng.choice(SIGNS[:10] + ["", "", " "])
        # A sign for the space lies in no name of a byte, <0x..>, where decoding would find it.
        return {"type": "Replace", "pattern": pattern, "content": "~" if pattern == {"String": " "} else content}
    return rng.choice(FOREIGN)


def split_of(rng):
    if rng.random() < 0.2:
        return {"type": "Digits", "individual_digits": rng.random() < 0.5}
    behavior = rng.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    return {"type": "Split", "pattern": pattern_of(rng), "behavior": behavior, "invert": rng.random() < 0.3}


def sequence(name, steps):
    """One of the ways in which a file says these steps."""
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else {"type": "Sequence", name: steps}


def pre_tokenizers_of(rng, is_byte_level):
    steps = [split_of(rng) for _ in range(rng.choice([0, 0, 1, 1, 2]))]
    if rng.random() < (0.1 if is_byte_level else 0.45):
        steps.insert(0, {"type": "Metaspace", "replacement": rng.choice(["\u2581", "\u2581", "\u2581", "_"]),
                         "prepend_scheme": rng.choice(["first", "first", "always", "never"]),
                         "split": rng.random() < 0.6})
    if is_byte_level:
        steps.append({"type": "ByteLevel", "add_prefix_space": rng.random() < 0.3, "trim_offsets": True,
                      "use_regex": rng.random() < 0.5})
    return steps


def model_of(rng, is_byte_level):
    falls_back = rng.random() < (0.1 if is_byte_level else 0.4)
    names = BYTES[:] if is_byte_level else ["<unk>"] + sorted(set("".join(SIGNS + [" ", "\n"])))
    if falls_back and not is_byte_level:
        names += [f"<0x{byte:02X}>" for byte in range(256)]
    if not is_byte_level and rng.random() < 0.5:
        names = [name for name in names if len(name) > 1 or rng.random() < 0.9]
    if is_byte_level:
        start = [c for c in names if c in "abcx12!_'sS\u0120\u010a\u0109<>/word" or ord(c) > 0xe0]
    else:
        start = [c for c in names if len(c) == 1]
    merges = []
    for _ in range(rng.randrange(0, 60)):
        left, right = rng.choice(start), rng.choice(start)
        if left + right not in names:
            names.append(left + right)
        start.append(left + right)
        merges.append([left, right])
    rng.shuffle(merges)
    ids = list(range(len(names)))
    if rng.random() < 0.1:
        ids[-1] += rng.randrange(5)
    if " " not in "".join(left + right for left, right in merges) and rng.random() < 0.5:
        merges = [" ".join(pair) for pair in merges]
    return {"type": "BPE", "dropout": None, "unk_token": rng.choice([None, "<unk>"]) if not is_byte_level else None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": rng.random() < 0.5,
            "byte_fallback": falls_back, "ignore_merges": rng.random() < 0.3,
            "vocab": dict(zip(names, ids)), "merges": merges}


def added_of(rng, model):
    out, following = [], len(model["vocab"])
    contents = SPACES + ["a", "ab", "c", "1", "!", "_", "<s>", "</s>", "word", "a b", " a", "c ", "\u6f22", "\u2581", "\u2581a",
                         "o\u0323", "\u1ecd", "\n ", "<s> "] + [name for name in model["vocab"] if len(name) < 4][:300:7]
    for content in dict.fromkeys(some(rng, contents, 0, 7)):
        number = model["vocab"].get(content, following)
        following += number == following
        out.append({"id": number, "content": content, "special": rng.random() < 0.5,
                    **{flag: rng.random() < 0.35 for flag in ("single_word", "lstrip", "rstrip", "normalized")}})
    return out


def decoder_of(steps, normalizers, model, is_byte_level):
    """(What undoes the steps, whether a space that they put in front is taken off.)"""
    puts_space = any(step["type"] == "Prepend" or step.get("add_prefix_space") or
                     step.get("prepend_scheme", "never") != "never" for step in steps + normalizers)
    if is_byte_level:
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}, puts_space
    sign = next((step["replacement"] for step in steps if step["type"] == "Metaspace"), "")
    for step in [] if sign else normalizers:
        if step["type"] == "Replace" and step["pattern"] == {"String": " "}:
            sign = step["content"]
    parts = [{"type": "Replace", "pattern": {"String": sign}, "content": " "}] if sign else []
    parts += [{"type": "ByteFallback"}] if model["byte_fallback"] else []
    return {"type": "Sequence", "decoders": [*parts, {"type": "Fuse"}]}, puts_space


def tokenizer_of(rng):
    is_byte_level = rng.random() < 0.45
    normalizers = [normalizer_of(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    steps, model = pre_tokenizers_of(rng, is_byte_level), model_of(rng, is_byte_level)
    decoder, puts_space = decoder_of(steps, normalizers, model, is_byte_level)
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_of(rng, model),
            "normalizer": sequence("normalizers", normalizers), "pre_tokenizer": sequence("pretokenizers", steps),
            "post_processor": None, "decoder": decoder, "model": model}
    # Characters of the alphabet of bytes, which the library decodes to other bytes than were read.
    odd = {token["id"] for token in file["added_tokens"]
           if is_byte_level and re.search("[\u00a1-\u0143]", token["content"])}
    return file, puts_space, odd


def text_of(rng, file):
    names = [token["content"] for token in file["added_tokens"]] or SIGNS
    pool = rng.choice([SIGNS, SIGNS + SPACES, SPACES + names, names, SIGNS[:6] + SPACES[:4] + names])
    text = "".join(some(rng, pool, 0, 14)).encode()
    if rng.random() < 0.03:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.randbytes(rng.randrange(1, 4)) + text[at:]
    return text


class Helper:
    """The program, which answers to one tokenizer or text after the other."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def line(self, head, content):
        self.process.stdin.write(b"%s%d\n%s" % (head, len(content), content))
        self.process.stdin.flush()
        return self.process.stdout.readline().decode()

    def read(self, file):
        """What it refuses; empty: nothing."""
        answer = self.line(b"json ", json.dumps(file).encode())
        return answer[1:].strip() if answer.startswith("!") else ""

    def encode(self, text):
        """(tokens, decoded), or what it refuses."""
        answer = self.line(b"", text)
        if answer.startswith("!"):
            return answer[1:].strip()
        size = int(self.process.stdout.readline().split()[0])
        return [int(word) for word in answer.split()], self.process.stdout.read(size + 1)[:-1]


def theirs_of(function):
    """What the library gives; its message where it refuses or panics."""
    try:
        return function()
    except BaseException as error:  # its panics are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"


def reason(message):
    """A message without what differs from file to file."""
    message = re.sub(r'"(\\.|[^"\\])*"', '"…"', re.sub(r"^.*?it: ", "", message))
    return re.sub(r"(added_tokens)?\[?\d+\]?", "", message)[:90]


def compare(rng, helper, args, counts):
    file, puts_space, odd = tokenizer_of(rng)
    refused, library = helper.read(file), theirs_of(lambda: tokenizers.Tokenizer.from_str(json.dumps(file)))
    if refused or isinstance(library, str):
        side = "both" if refused and isinstance(library, str) else "ours" if refused else "theirs"
        counts[f"files refused, {side}: {reason(refused or library)}"] += 1
        return 0
    counts["files"] += 1
    faults = 0
    for _ in range(args.texts):
        text = text_of(rng, file)
        mine = helper.encode(text)
        theirs = theirs_of(lambda: library.encode(text.decode("utf-8", "replace"), add_special_tokens=False).ids)
        if isinstance(mine, str) or isinstance(theirs, str):
            side = "ours" if isinstance(mine, str) else "theirs"
            counts[f"texts refused, {side}: {reason(mine if side == 'ours' else theirs)}"] += 1
            continue
        counts["texts"] += 1
        back = library.decode(theirs, skip_special_tokens=False)
        back = back[1:] if puts_space and back.startswith(" ") else back
        same_text = back.encode() == mine[1] or "\ufffd" in back or odd & set(theirs)
        if mine[0] == theirs and same_text:
            continue
        faults += 1
        if args.shown > 0 and faults == 1:
            args.shown -= 1
            parts = {**file, "model": {**file["model"], "vocab": len(file["model"]["vocab"])}}
            print(f"{json.dumps(parts)}\n  {text!r}: ours {mine[0]} {mine[1]!r}, theirs {theirs} {back.encode()!r}", flush=True)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20000, help="tokenizers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=12, help="of each tokenizer")
    parser.add_argument("--shown", type=int, default=5, help="how many differences are printed")
    parser.add_argument("--program", type=Path, help="the helper; built when left out")
    parser.add_argument("--build", type=Path, default=Path(__file__).resolve().parents[2] / "build")
    args = parser.parse_args()
    helper, counts = Helper(args.program or build_helper(args.build)), collections.Counter()
    faults = 0
    with tempfile.TemporaryFile() as panics:  # which it writes to stderr itself
        os.dup2(panics.fileno(), 2)
        for index in range(args.count):
            faults += compare(random.Random(f"{args.seed}/{index}"), helper, args, counts)
    for what, count in sorted(counts.items()):
        print(f"{count:8} {what}")
    print(json.dumps({"battery": "random tokenizers", "runs": args.count, "files": counts["files"], "texts": counts["texts"],
                      "faults": faults, "tokenizers": tokenizers.__version__, "ok": faults == 0 and counts["texts"] > 0}))
    return 0 if faults == 0 and counts["texts"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
