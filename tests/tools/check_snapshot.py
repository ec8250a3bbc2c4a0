#!/usr/bin/env python3
"""Checks a memory snapshot and its JSON twin as a stranger would read them.

The pickle may use only the opcodes listed, names no class, and holds what the JSON holds. Then the
rules that the viewer takes for granted are replayed, forwards, from nothing.
Usage: check_snapshot.py FILE.pickle FILE.json
"""
import io
import json
import pickle
import pickletools
import sys

OPCODES = {"PROTO", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT1", "BININT2", "BININT", "LONG1",
           "BINFLOAT", "BINUNICODE", "EMPTY_LIST", "MARK", "APPENDS", "EMPTY_DICT", "SETITEMS",
           "TUPLE2", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"}
STATES = {"active_allocated", "active_pending_free", "inactive"}


class Refusing(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"the file asks for {module}.{name}")

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("the file asks for a persistent object")


def plain(value):
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def check_pickle(data):
    used = {op.name for op, _, _ in pickletools.genops(data)}
    assert used <= OPCODES, f"opcodes {sorted(used - OPCODES)}"
    assert data[:2] == b"\x80\x02", "protocol"
    return Refusing(io.BytesIO(data)).load()


def check_tiles(segment):
    at = segment["address"]
    for block in segment["blocks"]:
        assert block["state"] in STATES, block
        assert block["address"] == at and block["size"] > 0, f"gap at {at:#x}"
        assert block["requested_size"] <= block["size"], block
        at += block["size"]
    assert at == segment["address"] + segment["total_size"], "blocks end elsewhere"
    active = [b for b in segment["blocks"] if b["state"] == "active_allocated"]
    assert segment["allocated_size"] == sum(b["size"] for b in active)
    assert segment["requested_size"] == sum(b["requested_size"] for b in active)


def check_frames(frames):
    for frame in frames:
        assert isinstance(frame["filename"], str) and isinstance(frame["name"], str)
        assert isinstance(frame["line"], int)


def replay(events, segments):
    """Forwards: what is live and reserved at the end, and whether every event made sense."""
    live, reserved, peak, total = {}, {}, 0, 0
    previous = None
    for event in events:
        action, size = event["action"], event["size"]
        check_frames(event["frames"])
        if action == "segment_alloc":
            reserved[event["addr"]] = size
        elif action == "segment_free":
            assert reserved.pop(event["addr"]) == size
        elif action == "alloc":
            address = event["addr"]
            assert address not in live
            assert any(s <= address and address + size <= s + n for s, n in reserved.items())
            assert event["category"] and event["frames"], "an allocation without an owner"
            live[address] = size
            total += size
            peak = max(peak, total)
        elif action == "free_requested":
            assert live[event["addr"]] == size
        elif action == "free_completed":
            assert previous["action"] == "free_requested" and previous["addr"] == event["addr"]
            assert live.pop(event["addr"]) == size
            total -= size
        else:
            assert action in ("oom", "snapshot"), action
        previous = event
    active = {b["address"]: b["requested_size"] for s in segments for b in s["blocks"]
              if b["state"] == "active_allocated"}
    assert active == live, "live blocks and active blocks differ"
    assert reserved == {s["address"]: s["total_size"] for s in segments}, "segments differ"
    return peak


def main():
    with open(sys.argv[1], "rb") as file:
        snapshot = check_pickle(file.read())
    with open(sys.argv[2], encoding="utf-8") as file:
        twin = json.load(file)
    assert plain(snapshot) == twin, "the twins differ"
    for segment in snapshot["segments"]:
        check_tiles(segment)
        assert segment["segment_pool_id"] == (0, 0)
        assert segment["segment_type"] in ("large", "small")
    peak = 0
    for device, events in enumerate(snapshot["device_traces"]):
        own = [s for s in snapshot["segments"] if s["device"] == device]
        peak = max(peak, replay(events, own))
        categories = {e.get("category") for e in events} - {None}
        assert not categories or "unknown" in categories, "the viewer needs one `unknown`"
        alloc_categories = {e["category"] for e in events if e["action"] == "alloc"}
        assert "unknown" not in alloc_categories
    ids = [id(e) for events in snapshot["device_traces"] for e in events]
    assert len(ids) == len(set(ids)), "an event in two places"
    print(peak)


if __name__ == "__main__":
    main()
