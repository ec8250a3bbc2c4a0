#!/usr/bin/env python3
"""Damages folders of published models at random and lets `export` read and write them.

The folder has a config.json, shards and their index. Bytes of the config, the index and the shards' headers are
changed, added and taken out, files are cut, and removed. Each run writes a whole folder, or ends with
one error and leaves nothing.
Usage: damaged_models.py [--program PATH] [--count N] [--seed S]
"""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile

from tiny_training import ROOT, Battery

FAMILIES = ("phi3", "gpt2", "pythia", "gemma3")
SHARDS, HEADER = 3, 3000
PIECES = b'{}[]",:0123456789./\\'


def write_shards(family, folder):
    """The weights of a fixture in several files."""
    fixture = (ROOT / f"tests/golden/families/{family}.safetensors").read_bytes()
    size, = struct.unpack("<Q", fixture[:8])
    header = json.loads(fixture[8:8 + size])
    names = [name for name in header if name.startswith("weights.")]
    shards = [f"model-{i + 1:05}-of-{SHARDS:05}.safetensors" for i in range(SHARDS)]
    folder.mkdir()
    shutil.copy(ROOT / f"tests/golden/families/{family}.json", folder / "config.json")
    for i, shard in enumerate(shards):
        entries, data = {}, b""
        for name in names[i::SHARDS]:
            begin, end = (8 + size + x for x in header[name]["data_offsets"])
            entries[name[len("weights."):]] = header[name] | {"data_offsets": [len(data), len(data) + end - begin]}
            data += fixture[begin:end]
        text = json.dumps(entries).encode()
        (folder / shard).write_bytes(struct.pack("<Q", len(text)) + text + data)
    places = {name[len("weights."):]: shards[i % SHARDS] for i, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def damage(numbers, path):
    content = bytearray(path.read_bytes())
    place = numbers.randrange(min(len(content), HEADER))
    kind = numbers.randrange(5)
    if kind == 0:
        content[place] = numbers.randrange(256)
    elif kind == 1:
        del content[numbers.randrange(len(content)):]
    elif kind == 2:
        del content[place:place + numbers.randrange(1, 20)]
    elif kind == 3:
        content[place:place] = bytes(numbers.choices(PIECES, k=numbers.randrange(1, 6)))
    else:
        path.unlink()
        return
    path.write_bytes(content)


def main():
    battery = Battery("damaged_models", __doc__, 2000)
    program = str(pathlib.Path(battery.options.program).resolve())
    numbers = random.Random(battery.options.seed)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for family in FAMILIES:
            write_shards(family, root / family)
        while battery.summary["runs"] < battery.options.count:
            battery.add("runs")
            shutil.copytree(root / numbers.choice(FAMILIES), root / "model")
            damage(numbers, numbers.choice(sorted((root / "model").iterdir())))
            done = subprocess.run([program, "export", "model", "out"], cwd=root, capture_output=True, text=True,
                                  errors="backslashreplace", check=False, timeout=300)
            left = set(os.listdir(root)) - {*FAMILIES, "model"}
            battery.add("refused" if done.returncode else "written")
            battery.check(left == (set() if done.returncode else {"out"}), f"there is {left}: {done.stderr}")
            # 3: an input that is malformed; 8: a number that is not finite.
            battery.check(done.returncode in (0, 3, 8), f"status {done.returncode}: {done.stderr}")
            battery.check(done.returncode == 0 or done.stderr.count("tracestep: ") == 1, done.stderr)
            shutil.rmtree(root / "model")
            shutil.rmtree(root / "out", ignore_errors=True)
    battery.finish()


if __name__ == "__main__":
    main()
