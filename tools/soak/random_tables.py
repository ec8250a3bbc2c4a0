#!/usr/bin/env python3
"""Feeds the study's questions random tables and checks every printed figure and comparison.

Runs one test of the suite with a new seed each time; a round is a number of tables for each question.
Usage: random_tables.py [--tests build/tests/test_lab] [--count TABLES] [--seed S]
"""
import argparse
import json
import re
import subprocess
import sys

TEST = "ClaimsTest.NoTablesMakeAnAnswerSayWhatTheyDoNotHold"
TABLES_PER_ROUND = 100  # for each question; kTables of tests/lab/study/claims_test.cpp
SEEDS = 99999           # of gtest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", default="build/tests/test_lab")
    parser.add_argument("--count", type=int, default=1000, help="tables for each question")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rounds = -(-options.count // TABLES_PER_ROUND)
    # Rounds of one run have neighbouring seeds; those of another begin elsewhere.
    first = (options.seed - 1) * rounds % SEEDS + 1
    print(f"seeds {first} to {first + rounds - 1}, {TABLES_PER_ROUND} tables for each question at each")
    command = [options.tests, f"--gtest_filter={TEST}", "--gtest_shuffle", "--gtest_brief=1",
               f"--gtest_random_seed={first}", f"--gtest_repeat={rounds}"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    done = faults = 0
    for line in process.stdout:
        done += line.startswith("[==========]") and "ran" in line
        faults += re.search(r": Failure$", line) is not None
        if not re.match(r"\[|Running|Note:|Repeating|\s*$", line):
            sys.stdout.write(line)
    status = process.wait()
    print(json.dumps({"runs": done * TABLES_PER_ROUND, "faults": faults}))
    return 0 if status == 0 and done == rounds else 1


if __name__ == "__main__":
    sys.exit(main())
