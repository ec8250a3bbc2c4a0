#include "lab/snapshots/snapshot.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/own_file.h"
#include "lab/report/pickle.h"

namespace tracestep {
namespace {

// Writes JSON text by the interface of PickleWriter.
class JsonText {
 public:
  void boolean(bool value) { put(value ? "true" : "false"); }
  void integer(std::int64_t value) { put(std::to_string(value)); }
  void text(std::string_view value) { put(Json(value).dump()); }
  void pair(std::int64_t a, std::int64_t b) { put(fmt::format("[{},{}]", a, b)); }
  void begin_list() { open('['); }
  void next_item() {}
  void end_list() { close(']'); }
  void begin_dict() { open('{'); }
  void end_dict() { close('}'); }
  // Writes the key of a member; the next call writes its value.
  void key(std::string_view name) {
    text(name);
    out_ += ':';
    is_first_ = true;
  }
  std::string finish() && { return std::move(out_ += '\n'); }

 private:
  void put(std::string_view value) {
    if (!is_first_) out_ += ',';
    is_first_ = false;
    out_ += value;
  }
  void open(char bracket) {
    put({&bracket, 1});
    is_first_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    is_first_ = false;
  }

  std::string out_;
  bool is_first_ = true;
};

class PickleText : public PickleWriter {
 public:
  void key(std::string_view name) { text(name); }
};

template <class Writer>
class Emitter {
 public:
  Emitter(const MemorySnapshot& snapshot, Writer& to)
      : snapshot_(snapshot), w_(to), memos_(snapshot.stacks.size()) {}

  void run() {
    w_.begin_dict();
    entry("schema", kSnapshotSchema);
    list("segments", snapshot_.segments, [&](const SnapshotSegment& s) { segment(s); });
    w_.key("device_traces");
    per_device([&] { each(std::vector<int>{}, [](int) {}); },
               [&] { each(snapshot_.events, [&](const SnapshotEvent& e) { event(e); }); });
    w_.key("allocator_settings");
    w_.begin_dict();
    for (const auto& [name, value] : snapshot_.settings) entry(name, value);
    w_.end_dict();
    list("external_annotations", snapshot_.annotations,
         [&](const SnapshotAnnotation& a) { annotation(a); });
    w_.key("trace_alloc_max_entries");
    per_device([&] { w_.integer(0); },
               [&] { w_.integer(static_cast<std::int64_t>(snapshot_.events.size())); });
    w_.key("trace_alloc_overflowed");
    per_device([&] { w_.boolean(false); }, [&] { w_.boolean(snapshot_.left_out > 0); });
    w_.end_dict();
  }

 private:
  void entry(std::string_view name, std::int64_t value) {
    w_.key(name);
    w_.integer(value);
  }
  void entry(std::string_view name, std::string_view value) {
    w_.key(name);
    w_.text(value);
  }

  template <class Items, class Write>
  void each(const Items& items, Write&& write) {
    w_.begin_list();
    for (const auto& item : items) {
      w_.next_item();
      write(item);
    }
    w_.end_list();
  }
  template <class Items, class Write>
  void list(std::string_view name, const Items& items, Write&& write) {
    w_.key(name);
    each(items, write);
  }
  // Writes a list of an entry per device: unused ones, and last that of the snapshot's device.
  template <class Unused, class Write>
  void per_device(Unused&& unused, Write&& write) {
    w_.begin_list();
    for (int i = 0; i < snapshot_.device; ++i) {
      w_.next_item();
      unused();
    }
    w_.next_item();
    write();
    w_.end_list();
  }

  void frames(int stack) {
    w_.key("frames");
    std::optional<int>& memo = memos_[static_cast<std::size_t>(stack)];
    if constexpr (requires { w_.remember(); }) {
      if (memo) return w_.fetch(*memo);
    }
    each(snapshot_.stacks[static_cast<std::size_t>(stack)], [&](const SnapshotFrame& f) {
      w_.begin_dict();
      entry("filename", f.file);
      entry("line", f.line);
      entry("name", f.name);
      w_.end_dict();
    });
    if constexpr (requires { w_.remember(); }) memo = w_.remember();
  }

  void segment(const SnapshotSegment& s) {
    std::int64_t active = 0, requested = 0;
    for (const SnapshotBlock& b : s.blocks) {
      active += b.is_active ? b.bytes : 0;
      requested += b.is_active ? b.requested_bytes : 0;
    }
    w_.begin_dict();
    entry("device", snapshot_.device);
    entry("address", s.address);
    entry("total_size", s.bytes);
    entry("allocated_size", active);
    entry("active_size", active);
    entry("requested_size", requested);
    entry("stream", std::int64_t{0});
    entry("segment_type", s.is_small ? "small" : "large");
    w_.key("segment_pool_id");
    w_.pair(0, 0);
    w_.key("is_expandable");
    w_.boolean(false);
    frames(0);
    list("blocks", s.blocks, [&](const SnapshotBlock& b) { block(b); });
    w_.end_dict();
  }

  void block(const SnapshotBlock& b) {
    w_.begin_dict();
    entry("address", b.address);
    entry("size", b.bytes);
    entry("requested_size", b.requested_bytes);
    entry("state", b.is_active ? "active_allocated" : "inactive");
    frames(b.stack);
    w_.end_dict();
  }

  void event(const SnapshotEvent& e) {
    w_.begin_dict();
    entry("action", e.action);
    entry(e.action == "oom" ? "device_free" : "addr", e.address);
    entry("size", e.bytes);
    entry("stream", std::int64_t{0});
    entry("time_us", e.time_us);
    if (!e.category.empty()) entry("category", e.category);
    frames(e.stack);
    w_.end_dict();
  }

  void annotation(const SnapshotAnnotation& a) {
    w_.begin_dict();
    entry("device", snapshot_.device);
    entry("time_us", a.time_us);
    entry("name", a.name);
    entry("stage", a.is_start ? "START" : "END");
    w_.end_dict();
  }

  const MemorySnapshot& snapshot_;
  Writer& w_;
  std::vector<std::optional<int>> memos_;  // by stack: where the reader finds it again
};

template <class Writer>
std::string emitted(const MemorySnapshot& snapshot) {
  Writer writer;
  Emitter<Writer>(snapshot, writer).run();
  return std::move(writer).finish();
}

// Replays the events backwards from the segments and blocks at the end, and checks each of them.
class Replay {
 public:
  explicit Replay(const MemorySnapshot& snapshot) : snapshot_(snapshot) {}

  std::string run() {
    for (const SnapshotSegment& s : snapshot_.segments) {
      if (!tiles(s)) return fmt::format("blocks do not tile the segment at {:#x}", s.address);
      segments_[s.address] = s.bytes;
      for (const SnapshotBlock& b : s.blocks) {
        if (b.is_active) live_[b.address] = b.requested_bytes;
      }
    }
    for (auto e = snapshot_.events.rbegin(); e != snapshot_.events.rend(); ++e) {
      if (std::string broken = undo(*e); !broken.empty()) {
        return fmt::format("{} at {:#x}: {}", e->action, e->address, broken);
      }
    }
    return pending_.empty() ? "" : "a free that was completed was never requested";
  }

 private:
  static bool tiles(const SnapshotSegment& s) {
    std::int64_t at = s.address;
    for (const SnapshotBlock& b : s.blocks) {
      if (b.address != at || b.bytes <= 0 || b.requested_bytes > b.bytes) return false;
      at += b.bytes;
    }
    return at == s.address + s.bytes;
  }

  bool is_inside(const SnapshotEvent& e) const {
    auto segment = segments_.upper_bound(e.address);
    if (segment == segments_.begin()) return false;
    --segment;
    return e.address + e.bytes <= segment->first + segment->second;
  }

  std::string undo(const SnapshotEvent& e) {
    if (e.action == "segment_alloc") {
      const auto found = segments_.find(e.address);
      if (found == segments_.end() || found->second != e.bytes) return "no such segment afterwards";
      segments_.erase(found);
    } else if (e.action == "segment_free") {
      if (!segments_.emplace(e.address, e.bytes).second) return "the segment is still there";
    } else if (e.action == "oom" || e.action == "snapshot") {
      return "";
    } else if (!is_inside(e)) {
      return "outside all segments";
    } else if (e.action == "alloc") {
      const auto found = live_.find(e.address);
      if (found == live_.end()) return "freed by nobody and not active at the end";
      if (found->second != e.bytes) return "another size than its block";
      live_.erase(found);
    } else if (e.action == "free_completed") {
      if (live_.contains(e.address)) return "still active afterwards";
      pending_[e.address] = e.bytes;
    } else if (e.action == "free_requested") {
      const auto found = pending_.find(e.address);
      if (found == pending_.end() || found->second != e.bytes) return "not completed";
      pending_.erase(found);
      live_[e.address] = e.bytes;
    } else {
      return "an unknown action";
    }
    return "";
  }

  const MemorySnapshot& snapshot_;
  std::map<std::int64_t, std::int64_t> segments_, live_, pending_;
};

}  // namespace

std::string pickle_of(const MemorySnapshot& snapshot) {
  return emitted<PickleText>(snapshot);
}

std::string json_of(const MemorySnapshot& snapshot) {
  return emitted<JsonText>(snapshot);
}

std::string broken_rule(const MemorySnapshot& snapshot) {
  return Replay(snapshot).run();
}

}  // namespace tracestep
