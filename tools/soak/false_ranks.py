#!/usr/bin/env python3
"""Ranks of which one knows the secret and misbehaves, at any moment of a run.

Two or three true processes; the last one reaches rank 0 through this program, which lets both prove who they
are and then changes what one of them says: bits, lengths, kinds, parts left out or said twice, noise, silence,
a connection that ends or is reset, one byte at a time, signs of life without end. Rules: every process ends
within seconds; with status 0 and the table of one process, or with a status of the program and, on one of
them, one line that names a rank and that a terminal can show; none grows by more than 64 MiB. The last line is
a summary as JSON. Exit status 1: a fault.

Usage: tools/soak/false_ranks.py [--program PATH] [--count RUNS] [--seed S]
"""
import concurrent.futures
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time

import strangers
from strangers import ALIVE, DATA, END, FAILED, MOST_GROWTH_KIB, Rank, message
from tiny_training import Battery

COMMAND = ["memory", "--predict", "--size", "tiny,small", "--context", "32,64,96", "--batch", "2", "--mode",
           "forward,step", "--parallel", "dp=2", "--format", "csv"]
TIMEOUT_S = 2
# After the limit: the next sign of life, and what others may know of a failure.
PATIENCE_S = TIMEOUT_S + 12
AT_ONCE = 4
HANDSHAKE = {"from first": (48, 32), "to first": (88,)}  # bytes said in this direction
STATUSES = (*range(1, 9), *range(129, 193))


def changed_length(dice, said):
    size = dice.choice((0, 1, 7, 9, 4096, 4097, 2**31, 2**32, 2**63, 2**64 - 1))
    return said[:8] + struct.pack("<Q", size) + said[16:]


def flipped(dice, said):
    out = bytearray(said)
    out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def another_kind(dice, said):
    return struct.pack("<I", dice.choice((DATA, FAILED, END, ALIVE, 4, 2**32 - 1))) + said[4:]


def noise(dice, said):
    return os.urandom(dice.randrange(1, 5000))


def cut(dice, said):
    return said[:dice.randrange(len(said))]


def twice(dice, said):
    return said * dice.choice((2, 3, 50))


def left_out(dice, said):
    return b""


def failed(dice, said):
    text = b"\x1b[2J\x07" + os.urandom(dice.randrange(100))
    return message(FAILED, dice.choice((0, 1, 3, 130, 255, -1)), len(text), text)


# Each changes the messages from some moment on: one, or all of them.
CHANGES = (changed_length, flipped, another_kind, noise, cut, twice, left_out, failed)
# The connection goes on so from then on.
AFTERWARDS = ("goes on", "goes on", "is silent", "ends", "is reset", "drips", "lives for ever")


class Between:
    """A port for the last rank, and what becomes of its words to rank 0, or of those to it."""

    def __init__(self, to_port, dice):
        self.dice, self.to_port = dice, to_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.port = self.listener.getsockname()[1]
        self.way = dice.choice(tuple(HANDSHAKE))
        self.change, self.afterwards = dice.choice(CHANGES), dice.choice(AFTERWARDS)
        if self.way == "from first" and self.afterwards == "lives for ever":
            self.afterwards = "is silent"  # others wait for a first process that lives (docs/parallel.md)
        self.every, self.moment = dice.random() < 0.3, dice.choice((0, 0, 1, 1, 2, 2, 3, 5, 8))
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.meet, daemon=True)
        self.thread.start()

    def __str__(self):
        often = "each" if self.every else "one"
        return f"{self.way}, {often} from {self.moment}: {self.change.__name__}, then it {self.afterwards}"

    def meet(self):
        try:
            other, _ = self.listener.accept()
            first = self.connect()
        except OSError:
            return
        pairs = {"to first": (other, first), "from first": (first, other)}
        threads = [threading.Thread(target=self.pass_on, args=(way, *pair), daemon=True)
                   for way, pair in pairs.items()]
        for thread in threads:
            thread.start()
        self.ends.wait()
        for one in (other, first, self.listener):
            one.close()

    def connect(self):
        while not self.ends.is_set():
            try:
                return socket.create_connection(("127.0.0.1", self.to_port), timeout=PATIENCE_S)
            except ConnectionRefusedError:  # rank 0 does not listen yet
                time.sleep(0.01)
        raise ConnectionError

    def pass_on(self, way, source, to):
        try:
            for size in HANDSHAKE[way]:
                to.sendall(strangers.read(source, size))
            said = 0
            while True:
                header = strangers.read(source, 16)
                whole = header + strangers.read(source, struct.unpack("<Q", header[8:])[0])
                is_changed = way == self.way and said >= self.moment
                if not is_changed:
                    to.sendall(whole)
                elif said == self.moment or self.every:
                    to.sendall(self.change(self.dice, whole))
                elif self.afterwards == "goes on":
                    to.sendall(whole)
                if is_changed and self.afterwards != "goes on":
                    return self.end(source, to)
                said += 1
        except OSError:
            if way == self.way and self.afterwards == "lives for ever":
                return self.end(source, to)
            try:
                to.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def end(self, source, to):
        if self.afterwards == "ends":
            to.shutdown(socket.SHUT_WR)
        if self.afterwards == "is reset":
            to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, strangers.NO_LINGER)
            to.close()
        text = {"drips": bytes(16), "lives for ever": message(ALIVE, 0, 0)}.get(self.afterwards)
        while text and not self.ends.wait(0.3):  # a whole message takes longer than the limit
            to.sendall(text[:1] if self.afterwards == "drips" else text)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(ranks):
    """(what Rank.finish() gives of each, the most KiB that one of them had)"""
    begin, most = time.monotonic(), 0
    while time.monotonic() - begin < PATIENCE_S and any(r.process.poll() is None for r in ranks):
        most = max(most, *(rank.memory_kib("VmHWM") for rank in ranks))
        time.sleep(0.01)
    return [rank.finish(0) for rank in ranks], most


def start(program, count, port, port_of_last):
    secret = os.urandom(32)
    return [Rank(program, rank, count, port_of_last if rank == count - 1 else port, secret, TIMEOUT_S,
                 COMMAND) for rank in range(count)]


def check_run(battery, dice, expected, most_kib):
    count, port = dice.choice((2, 2, 3)), free_port()
    between = Between(port, dice)
    ends, most = run(start(battery.options.program, count, port, between.port))
    between.ends.set()
    what = f"{count} ranks, {between}: "
    statuses = [status for status, _, _ in ends]
    battery.check(None not in statuses, what + f"a process hangs: {statuses}")
    battery.check(all(status in (None, 0, *STATUSES) for status in statuses), what + f"{statuses}")
    battery.check(ends[0][0] != 0 or ends[0][1] == expected, what + "another table")
    battery.check(all(table == "" for _, table, _ in ends[1:]), what + "a table of another rank")
    lines = [[line for line in said.splitlines() if not line.startswith(b"warning: ")]
             for _, _, said in ends]
    names_one = any(re.search(rb"rank \d|processes", line) for own in lines for line in own)
    battery.check(not any(statuses) or names_one,
                  what + f"{statuses}, and no line names a rank: {lines}")
    for (status, _, said), own in zip(ends, lines):
        battery.check(len(own) <= 1 and (status != 0 or not own), what + f"status {status}: {own}")
        battery.check(b"\x1b" not in said and b"report it" not in said, what + str(said[-500:]))
    battery.check(most <= most_kib + MOST_GROWTH_KIB, what + f"{most} KiB")
    battery.add("runs")
    battery.add("ended_by_an_error" if any(statuses) else "ended_well")


def main():
    battery = Battery("false_ranks", __doc__, 1000)
    dice = random.Random(battery.options.seed)
    alone = subprocess.run([battery.options.program, *COMMAND], capture_output=True, text=True,
                           check=True)
    port = free_port()
    honest, most_kib = run(start(battery.options.program, 2, port, port))
    battery.check(honest[0][1] == alone.stdout, "another table of honest ranks")
    seeds = [dice.random() for _ in range(battery.options.count)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda seed: check_run(battery, random.Random(seed), alone.stdout, most_kib),
                      seeds))
    battery.finish()


if __name__ == "__main__":
    main()
