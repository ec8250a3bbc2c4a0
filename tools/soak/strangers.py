#!/usr/bin/env python3
"""Connections of strangers to a rank 0 that waits for rank 1, and a rank 1 that knows the secret and
then sends what no rank sends.

Rank 0 must go on waiting, take the real rank 1 in the middle of it, and both must end with the table
of one process; its memory must not grow by more than 64 MiB. Whatever a rank 1 sends, rank 0 must end
within seconds, with a status of the program that is not 0, and one line that a terminal can show.
All of it is on the loopback address.
Usage: strangers.py [--program PATH] [--count CONNECTIONS] [--seed S]
"""
import concurrent.futures
import hashlib
import hmac
import os
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

from tiny_training import Battery

COMMAND = ["memory", "--predict", "--size", "tiny,small,medium,large", "--context",
           "32,64,96,128,256,512", "--batch", "2", "--mode", "forward,step", "--parallel", "dp=2",
           "--format", "csv"]
MAGIC = b"tracestep ranks\0"
GREETING_BYTES, PROOF_BYTES = 48, 32
ROUND, THREADS = 10000, 8  # connections of a round, and who makes them
HELD = 40  # silent and slow ones at a time, of each thread
CONNECTIONS_FOR_A_RANK, RANKS_AT_ONCE = 200, 4  # each of these is a run of its own
MOST_GROWTH_KIB = 64 * 1024
TIMEOUT_S, PATIENCE_S, ROUND_TIMEOUT_S = 2, 20, 300
DATA, FAILED, END, ALIVE = range(4)
NO_LINGER = struct.pack("ii", 1, 0)  # closed by a reset: no port is left waiting


def hello(secret, greeting, rank, count, role=2):
    nonce = os.urandom(32)
    text = MAGIC + struct.pack("<III", role, rank, count) + greeting[16:] + nonce
    return (MAGIC + struct.pack("<II", rank, count) + nonce +
            hmac.new(secret, text, hashlib.sha256).digest())


def message(kind, status, size, body=b""):
    return struct.pack("<IiQ", kind, status, size & (2**64 - 1)) + body


def read(connection, size):
    out = b""
    while len(out) < size:
        part = connection.recv(size - len(out))
        if not part:
            raise ConnectionError
        out += part
    return out


class Rank:
    """A process of a run of `count`."""

    def __init__(self, program, rank, count, port, secret, timeout_s, command=tuple(COMMAND)):
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(
            [program, *command], stdout=self.out, stderr=self.err,
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                 "TRACESTEP_COMM_SECRET": secret.hex(), "TRACESTEP_COMM_TIMEOUT": str(timeout_s)})

    def memory_kib(self, key):
        """VmRSS or VmHWM; 0 when the process has ended."""
        try:
            with open(f"/proc/{self.process.pid}/status") as status:
                return int(re.search(rf"{key}:\s*(\d+)", status.read()).group(1))
        except (OSError, AttributeError):
            return 0

    def finish(self, seconds):
        """(status, stdout, stderr); status None: it had to be killed."""
        try:
            status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            status = None
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read())
            file.close()
        return status, texts[0], texts[1]


class Meeting:
    """A port with a rank 0 that waits there, and its secret."""

    def __init__(self, program, count, timeout_s):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.secret, self.count, self.program = os.urandom(32), count, program
        self.timeout_s = timeout_s
        self.first = self.rank(0)
        self.overheard = []  # hellos of the right secret for other connections
        while self.first.process.poll() is None:
            try:
                self.connect().close()
                break
            except OSError:
                time.sleep(0.01)

    def rank(self, number):
        return Rank(self.program, number, self.count, self.port, self.secret, self.timeout_s)

    def connect(self, dice=random):
        out = socket.socket()
        out.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        out.settimeout(PATIENCE_S)
        # One address has fewer ports than there are connections.
        out.bind((f"127.{dice.randrange(1, 255)}.{dice.randrange(255)}.{dice.randrange(1, 255)}", 0))
        out.connect(("127.0.0.1", self.port))
        return out


# --- strangers ------------------------------------------------------------------------------------


def half(meeting, connection, dice):
    text = hello(meeting.secret, read(connection, GREETING_BYTES), 1, meeting.count)
    connection.sendall(text[:dice.randrange(1, len(text))])


def wrong(meeting, connection, dice):
    greeting = read(connection, GREETING_BYTES)
    secret = dice.choice((os.urandom(32), bytes(32)))
    text = bytearray(hello(secret, greeting, dice.choice((0, 1, 2, 2**32 - 1)), meeting.count))
    if dice.random() < 0.5:
        text = bytearray(hello(meeting.secret, greeting, 1, meeting.count, dice.choice((1, 2))))
        text[dice.randrange(16, len(text))] ^= 1 << dice.randrange(8)
    connection.sendall(text)


def of_another_size(meeting, connection, dice):
    greeting = read(connection, GREETING_BYTES)
    connection.sendall(hello(meeting.secret, greeting, dice.randrange(2**32),
                             meeting.count + dice.randrange(1, 2**31)))


def replayed(meeting, connection, dice):
    greeting = read(connection, GREETING_BYTES)
    if meeting.overheard:
        connection.sendall(dice.choice(meeting.overheard))
    if len(meeting.overheard) < 1000:
        meeting.overheard.append(hello(meeting.secret, greeting, 1, meeting.count))


def reflected(meeting, connection, dice):
    greeting = read(connection, GREETING_BYTES)
    connection.sendall(greeting + dice.choice((greeting, os.urandom(64))))


def noise(_, connection, dice):
    connection.sendall(os.urandom(dice.randrange(1, 4096)))


def of_another_protocol(_, connection, dice):
    connection.sendall(dice.choice((b"GET / HTTP/1.0\r\n\r\n", b"SSH-2.0-scan\r\n",
                                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                                    struct.pack("<i", 1) + message(FAILED, 0, 0),
                                    struct.pack("<i", 1) + message(FAILED, 3, 4, b"\x1b[2J"))))


def flood(_, connection, dice):
    for _ in range(dice.randrange(1, 256)):
        connection.sendall(MAGIC * 256)


def nothing(*_):
    pass


STRANGERS = [(half, 20), (wrong, 20), (of_another_size, 5), (replayed, 15), (reflected, 5),
             (noise, 10), (of_another_protocol, 10), (flood, 5), (nothing, 10)]


def pester(meeting, dice, tally):
    """Connects until it is told to stop; some connections stay, and say now and then another byte."""
    held = []
    kinds, weights = zip(*STRANGERS)
    while not tally["stop"]:
        try:
            connection = meeting.connect(dice)
        except OSError as why:
            if isinstance(why, ConnectionRefusedError):  # nobody listens any more
                tally["end"] = tally["end"] or time.monotonic()
            tally["refused"] += 1
            time.sleep(0.005)
            continue
        tally["made"] += 1
        try:
            kind = dice.choices(kinds, weights)[0]
            kind(meeting, connection, dice)
            for one in held:
                if dice.random() < 0.02:
                    one.send(os.urandom(1))
        except OSError:
            pass  # it was dropped
        if dice.random() < 0.2:
            held.append(connection)
        else:
            connection.close()
        if len(held) > HELD:
            held.pop(dice.randrange(len(held))).close()
    for one in held:
        one.close()


def check_waiting(battery, dice, expected, count):
    meeting = Meeting(battery.options.program, 2, ROUND_TIMEOUT_S)
    before = meeting.first.memory_kib("VmRSS")
    tally = {"made": 0, "refused": 0, "stop": False, "end": 0.0}
    threads = [threading.Thread(target=pester, args=(meeting, random.Random(dice.random()), tally))
               for _ in range(THREADS)]
    for one in threads:
        one.start()
    while tally["made"] < count and meeting.first.process.poll() is None:
        time.sleep(0.01)
    growth = meeting.first.memory_kib("VmHWM") - before
    battery.check(growth <= MOST_GROWTH_KIB, f"{growth} KiB more while waiting")
    battery.summary["most_growth_kib"] = max(battery.summary.get("most_growth_kib", 0), growth)
    begin = time.monotonic()
    other = meeting.rank(1)  # while they go on
    while not tally["end"] and time.monotonic() - begin < ROUND_TIMEOUT_S:
        time.sleep(0.01)
    seconds = round(time.monotonic() - begin, 1)
    battery.check(seconds < PATIENCE_S, f"rank 1 was let in after {seconds} s")
    battery.summary["slowest_entry_s"] = max(battery.summary.get("slowest_entry_s", 0), seconds)
    status, table, said = meeting.first.finish(ROUND_TIMEOUT_S)
    battery.check(status == 0, f"status {status} of rank 0: {said[-500:]}")
    battery.check(table == expected, f"another table: {table[-500:]}")
    status, table, said_too = other.finish(PATIENCE_S)
    battery.check(status == 0 and table == "", f"status {status} of rank 1: {said_too[-500:]}")
    battery.check(b"\x1b" not in said, "escape sequences on stderr")
    battery.check(said.count(b"\n") <= 12, f"{said.count(10)} lines on stderr")
    tally["stop"] = True
    for one in threads:
        one.join(timeout=PATIENCE_S)
    battery.add("runs", tally["made"])
    battery.add("refused", tally["refused"])


# --- a rank that knows the secret -----------------------------------------------------------------


def said_by_rank(dice):
    """(bytes, whether rank 0 knows from them at once that something is wrong, the status it ends
    with, None for any)"""
    status = dice.choice((0, 1, 3, 8, 9, -1, 130, 251, 255, 256, 300, 2**31 - 1))
    own = 1 <= status <= 8 or 128 < status <= 192
    text = b"\x1b]0;owned\x07\x1b[2J" + os.urandom(dice.randrange(100))
    return dice.choice((
        (message(FAILED, status, len(text), text), True, status if own else 1),
        (message(FAILED, status, 0), True, status if own else 1),
        (message(dice.randrange(4, 2**32), 0, 0), True, 1),
        (message(DATA, 0, dice.choice((0, 1, 7, 9, 4096)), bytes(4096)), True, None),
        (message(DATA, 0, dice.randrange(4097, 2**64), b"x"), True, 1),
        (message(FAILED, 1, dice.randrange(4097, 2**64), b"x"), True, 1),
        (message(ALIVE, 0, dice.randrange(1, 2**64)), True, 1),
        (message(DATA, 0, 8, bytes(8)) * 10000, True, 1),
        (message(DATA, 0, 4096, bytes(4096)) * 2000, True, 1),
        (os.urandom(dice.randrange(16, 4096)), False, None),
        (message(ALIVE, 0, 0) * 10000, False, 1),
        (message(DATA, 0, 8, bytes(dice.randrange(8))), False, 1),
        (message(DATA, 0, 8)[:dice.randrange(1, 16)], False, 1),
        (message(END, 0, 0), False, 1),
        (b"", False, 1)))


def check_rank(battery, dice, quiet_kib):
    count = dice.choice((2, 3))  # of three, rank 0 waits for rank 1 while rank 2 speaks
    meeting = Meeting(battery.options.program, count, TIMEOUT_S)
    text, is_known, expected = said_by_rank(dice)
    connections, most = [], 0
    try:
        for rank in range(1, count):
            one = meeting.connect()
            one.sendall(hello(meeting.secret, read(one, GREETING_BYTES), rank, count))
            read(one, PROOF_BYTES)
            connections.append(one)
        step = dice.choice((1, 7, 64, 1 << 20)) if len(text) < 1000 else 1 << 20
        for i in range(0, len(text), step):
            connections[-1].sendall(text[i:i + step])
            most = max(most, meeting.first.memory_kib("VmHWM"))
        if dice.random() < 0.2:
            connections[-1].close()  # by a reset, which may overtake what was sent
            expected = None
    except OSError:
        pass  # rank 0 has ended
    begin = time.monotonic()
    while meeting.first.process.poll() is None and time.monotonic() - begin < PATIENCE_S:
        most = max(most, meeting.first.memory_kib("VmHWM"))
        time.sleep(0.005)
    status, table, said = meeting.first.finish(0.1)
    what = f"{text[:40]!r}, {len(text)} bytes, {count} ranks: "
    battery.check(status is not None, what + "rank 0 hangs")
    battery.check(status in ((expected,) if expected else (*range(1, 9), *range(129, 193))),
                  what + f"status {status}")
    battery.check(table == "", what + "a table")
    lines = [line for line in said.splitlines() if not line.startswith(b"warning: ")]
    battery.check(len(lines) == 1, what + f"{len(lines)} lines: {said[-500:]}")
    battery.check(b"\x1b" not in said and b"report it" not in said, what + str(said[-500:]))
    battery.check(most - quiet_kib <= MOST_GROWTH_KIB, what + f"{most} KiB")
    battery.add("known_at_once" if is_known else "known_in_time")
    battery.add("runs", count)
    for one in connections:
        one.close()


def main():
    battery = Battery("strangers", __doc__, 100000)
    dice = random.Random(battery.options.seed)
    alone = subprocess.run([battery.options.program, *COMMAND], capture_output=True, text=True,
                           check=True)
    left = battery.options.count
    while left > 0:
        check_waiting(battery, dice, alone.stdout, min(left, ROUND))
        left -= ROUND
    quiet = Meeting(battery.options.program, 2, TIMEOUT_S)
    quiet_kib = quiet.first.memory_kib("VmHWM")
    quiet.first.finish(0)
    seeds = [dice.random() for _ in range(-(-battery.options.count // CONNECTIONS_FOR_A_RANK))]
    with concurrent.futures.ThreadPoolExecutor(RANKS_AT_ONCE) as pool:
        list(pool.map(lambda seed: check_rank(battery, random.Random(seed), quiet_kib), seeds))
    battery.finish()


if __name__ == "__main__":
    main()
