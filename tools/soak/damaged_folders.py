#!/usr/bin/env python3
"""Damages folders of checkpoints at random and lets training continue from them.

Files are changed, cut, removed or replaced by links that lead outside, checkpoints and `latest` as
well. Training must go on from the newest checkpoint that is whole, say what it passes over and end
with the weights of an uninterrupted run, or refuse. Nothing outside the folder may change.
Usage: damaged_folders.py [--program PATH] [--count N] [--seed S]
"""
import json
import os
import pathlib
import random
import re
import shutil
import tempfile

from tiny_training import Battery, Training, resumed_from

SAVED, STEPS = (4, 6), 8
FILES = ("model.safetensors", "state.safetensors", "meta.json")


def step_name(step):
    return f"step-{step:08}"


def change_byte(numbers, path, _outside):
    content = bytearray(path.read_bytes())
    if content:
        content[numbers.randrange(len(content))] ^= numbers.randrange(1, 256)
        path.write_bytes(content)


def cut(numbers, path, _outside):
    os.truncate(path, numbers.randrange(path.stat().st_size + 1))


def grow(numbers, path, _outside):
    with path.open("ab") as file:
        file.write(numbers.randbytes(numbers.randrange(1, 100)))


def remove(_numbers, path, _outside):
    path.unlink()


def replace_by_folder(_numbers, path, _outside):
    path.unlink()
    path.mkdir()


def replace_by_link(numbers, path, outside):
    path.unlink()
    path.symlink_to(numbers.choice([outside / "victim", outside / "folder", outside / path.name]))


def damage_file(numbers, folder, outside):
    path = numbers.choice([folder / step_name(step) / name for step in SAVED for name in FILES] +
                          [folder / "latest"])
    kinds = [change_byte, cut, grow, remove, replace_by_link]
    if path.name != "latest":  # a folder as `latest` is refused, and would hide all else
        kinds.append(replace_by_folder)
    if path.is_file() and not path.is_symlink() and not path.parent.is_symlink():
        numbers.choice(kinds)(numbers, path, outside)


def damage_checkpoint(numbers, folder, outside):
    path = folder / step_name(numbers.choice(SAVED))
    if path.is_symlink() or not path.exists():
        return
    shutil.rmtree(path)
    if numbers.random() < 0.7:
        path.symlink_to(numbers.choice([outside / "folder", outside / "whole" / path.name]))


def plant_leftover(numbers, folder, outside):
    prefix = numbers.choice([".tmp-", ".old-"])
    path = folder / (prefix + step_name(numbers.choice([*SAVED, 5, 7, 8])))
    if not path.is_symlink() and not path.exists():
        path.symlink_to(numbers.choice([outside / "victim", outside / "folder"]))


def is_whole(path, pristine):
    """Whether all that a checkpoint means is still there."""
    files = [path / name for name in FILES]
    if path.is_symlink() or any(file.is_symlink() or not file.is_file() for file in files):
        return False
    if any((path / name).read_bytes() != (pristine / name).read_bytes() for name in FILES[:2]):
        return False
    try:
        return json.loads(files[2].read_bytes()) == json.loads((pristine / FILES[2]).read_bytes())
    except ValueError:
        return False


def latest_of(folder):
    """The step that `latest` names, None when it names none, 0 when there is no such thing."""
    latest = folder / "latest"
    if latest.is_symlink():
        return None
    if not latest.exists():
        return 0
    match = re.fullmatch(rb"step-(\d{8,})\n?", latest.read_bytes())
    return int(match[1]) if match else None


def expectation(folder, pristine):
    """The steps to be said as damaged, the one to go on from (None: refused), and whether
    something is to be said about `latest`."""
    latest = latest_of(folder)
    there = [step for step in SAVED if os.path.lexists(folder / step_name(step))]
    order = sorted(there, reverse=True)
    if latest:
        order.sort(key=lambda step: step > latest)  # stable
    is_odd = latest is None or (latest > 0 and latest not in there)
    damaged = []
    for step in order:
        if is_whole(folder / step_name(step), pristine / step_name(step)):
            return damaged, step, is_odd
        damaged.append(step)
    return damaged, None if damaged or is_odd else 0, is_odd


def tree(folder):
    return {str(path): os.readlink(path) if path.is_symlink() else
            path.read_bytes() if path.is_file() else "" for path in folder.rglob("*")}


def check_run(battery, training, expected, folder, pristine):
    damaged, start, says_latest = expectation(folder, pristine)
    done = training.run(STEPS, "--checkpoint", folder.name, "--resume", "--save", "w")
    if start is None:
        battery.add("refused")
        battery.check(done.returncode == 3, f"status {done.returncode} without a whole checkpoint")
    else:
        battery.check(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    for step in damaged:
        battery.add("passed_over")
        battery.check(f"{step_name(step)} is " in done.stderr, f"{step} was passed over in silence")
    battery.check(not says_latest or "latest" in done.stderr, "nothing was said about latest")
    if done.returncode != 0:
        return
    battery.check(resumed_from(done) == start, f"went on from {resumed_from(done)}, not {start}")
    battery.check((training.folder / "w").read_bytes() == expected, "other weights")
    again = training.run(STEPS, "--checkpoint", folder.name, "--resume")
    battery.check(again.returncode == 0 and resumed_from(again) == STEPS,
                  f"what it wrote itself cannot be resumed: {again.stderr}")


def main():
    battery = Battery("damaged_folders", __doc__, 100)
    numbers = random.Random(battery.options.seed)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        training = Training(battery.options.program, root, battery.options.seed)
        expected = training.weights_of(STEPS)
        training.run(SAVED[-1], "--checkpoint", "pristine", "--checkpoint-every", "2")
        pristine, outside, folder = root / "pristine", root / "outside", root / "c"
        (outside / "folder").mkdir(parents=True)
        for path in ("victim", "folder/file"):
            (outside / path).write_text("precious")
        shutil.copytree(pristine, outside / "whole")
        for file in FILES:
            shutil.copy(pristine / step_name(SAVED[-1]) / file, outside / file)
        before = tree(outside)
        while battery.summary["runs"] < battery.options.count:
            battery.add("runs")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(pristine, folder)
            for _ in range(numbers.randrange(1, 4)):
                numbers.choice([damage_file] * 4 + [damage_checkpoint, plant_leftover])(
                    numbers, folder, outside)
            check_run(battery, training, expected, folder, pristine)
            battery.check(tree(outside) == before, "something outside the folder changed")
    battery.finish()


if __name__ == "__main__":
    main()
