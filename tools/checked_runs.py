"""Runs of a program with a time limit, and what came out of them; for tools/test_gpu and
tools/rank_checks.py."""
import json
import os
import selectors
import signal
import subprocess
import time


class Result:
    def __init__(self, name, status, seconds=0.0, output=""):
        self.name, self.status, self.seconds, self.output = name, status, seconds, output

    def as_json(self):
        kept = {"output": self.output} if self.status != "passed" and self.output else {}
        return {"name": self.name, "status": self.status, "seconds": round(self.seconds, 3), **kept}


def tail(text, lines=40):
    return "\n".join((text or "").splitlines()[-lines:])


def start(command, extra=None, folder=None):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", start_new_session=True, cwd=folder,
                            env={**os.environ, **(extra or {})})


def finish(child, seconds):
    """(exit status or None when it took too long, output of both streams)."""
    try:
        output = child.communicate(timeout=max(1.0, seconds))[0]
        return child.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # with what it started itself: a checker's program
        return None, child.communicate()[0]


def run(command, seconds, extra=None, folder=None):
    return finish(start(command, extra, folder), seconds)


def run_in_steps(command, begins, step_seconds, left, extra=None):
    """Runs a command whose output tells where its steps begin: `begins(line)` of the line with which one does.
    Each step has `step_seconds` of its own, the start of the program as well; `left()` seconds are there for all.
    Returns (exit status, None when it was cut; output; why it was cut, empty when it was not)."""
    child, output, cut = start(command, extra), [], ""
    begun, rest = time.monotonic(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout.buffer, selectors.EVENT_READ)
        while True:
            spent, all_left = time.monotonic() - begun, left()
            if spent >= step_seconds:
                cut = f"cut by the clock: it had run for {spent:.0f} s, and {step_seconds:g} s are its own"
            elif all_left <= 0:
                cut = f"cut by the clock after {spent:.0f} s: no time was left for all"
            if cut:
                os.killpg(child.pid, signal.SIGKILL)
                break
            if not selector.select(max(0.01, min(step_seconds - spent, all_left, 1.0))):
                continue
            some = os.read(child.stdout.fileno(), 1 << 16)
            if not some:
                break
            *lines, rest = (rest + some).split(b"\n")
            for line in [line.decode(errors="replace") for line in lines]:
                output.append(line)
                if begins(line):
                    begun = time.monotonic()
    status, more = finish(child, min(step_seconds, left()))
    text = "\n".join([*output, rest.decode(errors="replace") + more])
    return (None if cut else status), text, cut


def peaks_agree(output, ranks=1):
    """Problems in a JSON result of bench: rows that are not ok, or bytes not as predicted, on one of `ranks` as well."""
    rows = json.loads(output[output.index("{"):output.rindex("}") + 1])["rows"]
    problems = [] if rows else ["no rows"]
    for row in rows:
        name = f"{row['mode']} {row['precision']} {row['ops']} {row['executor']}"
        if row["status"] != "ok":
            problems.append(f"{name}: {row['status']}")
        elif row["peak_bytes"] != row["predicted_peak_bytes"]:
            problems.append(f"{name}: peak {row['peak_bytes']}, predicted "
                            f"{row['predicted_peak_bytes']}")
        elif ranks > 1 and row["ranks_as_predicted"] != ranks:
            problems.append(f"{name}: bytes of {row['ranks_as_predicted']} of {ranks} ranks are as predicted")
    return problems
