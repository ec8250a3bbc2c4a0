"""Runs of a program with a time limit, and what came out of them; for tools/test_gpu and
tools/rank_checks.py."""
import json
import os
import signal
import subprocess


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


def peaks_agree(output):
    """Problems in a JSON result of bench: rows that are not ok, or peaks not as predicted."""
    rows = json.loads(output[output.index("{"):output.rindex("}") + 1])["rows"]
    problems = [] if rows else ["no rows"]
    for row in rows:
        name = f"{row['mode']} {row['precision']} {row['ops']} {row['executor']}"
        if row["status"] != "ok":
            problems.append(f"{name}: {row['status']}")
        elif row["peak_bytes"] != row["predicted_peak_bytes"]:
            problems.append(f"{name}: peak {row['peak_bytes']}, predicted "
                            f"{row['predicted_peak_bytes']}")
    return problems
