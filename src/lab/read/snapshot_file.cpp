// The file holds the state at its end and the events before; the state at the first event follows
// backwards. A block counts as allocated until its free is completed, as memory_viz draws it.
#include "lab/read/snapshot_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json_events.h"
#include "base/utf8.h"
#include "lab/report/pickle.h"
#include "lab/report/unpickle.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostSnapshotBytes = (std::uint64_t{1} << 31) - 1;
constexpr std::size_t kMostMoments = 400;
constexpr std::size_t kMostSiteBytes = 300;
constexpr std::size_t kMostOutOfMemory = 100;  // events that are shown

// Frames of the machinery between a program's line and its allocation.
constexpr std::string_view kInnerFiles[] = {"??",
                                            "<frozen ",
                                            "CUDACachingAllocator",
                                            "site-packages/torch/",
                                            "dist-packages/torch/",
                                            "/torch/csrc/",
                                            "/aten/src/",
                                            "/c10/"};

constexpr std::string_view kNativeEndings[] = {".cpp", ".cc", ".c",   ".h",
                                               ".hpp", ".cu", ".cuh", ".S"};

bool is_inner(std::string_view file) {
  if (file.empty()) return true;
  return std::ranges::any_of(
             kInnerFiles,
             [&](std::string_view part) { return file.find(part) != std::string_view::npos; }) ||
         std::ranges::any_of(kNativeEndings,
                             [&](std::string_view ending) { return file.ends_with(ending); });
}

struct Alloc {
  std::int64_t bytes = 0;
  std::uint32_t site = 0, category = 0;
};

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, std::string where)
      : where_(std::move(where)), pickle_(bytes, where_), looks_left_(4 * bytes.size() + 4096) {
    number_of("");
  }

  SnapshotFacts read() {
    const PickleValue root = pickle_.root();
    const auto segments = find(root, root.is_list() ? "" : "segments");
    const auto traces = find(root, "device_traces");
    if (!root.is_list() && (!segments || !segments->is_list())) {
      fail_input(where_, "this is no memory snapshot: it has no 'segments'");
    }
    choose_device(traces);
    read_segments(root.is_list() ? root : *segments);
    if (traces && chosen_ < traces->size()) read_events((*traces)[chosen_]);
    if (const auto lost = find(root, "trace_alloc_overflowed"); lost && chosen_ < lost->size()) {
      out_.lost_events = (*lost)[chosen_].as_int() != 0;
    }
    replay();
    out_.file = where_;
    out_.device = static_cast<std::int64_t>(chosen_);
    return std::move(out_);
  }

 private:
  struct Event {
    enum Kind : std::uint8_t { kAlloc, kFree, kReserve, kRelease, kOutOfMemory } kind;
    std::int64_t address, bytes, time_us;
    std::uint32_t site, category;
  };

  // A pickle may name one object many times: all walking ends with what its size allows.
  void look(std::size_t values) {
    if (values > looks_left_) fail_input(where_, "its values name each other too often");
    looks_left_ -= values;
  }
  std::optional<PickleValue> find(const PickleValue& in, std::string_view key) {
    look(in.size() + 1);
    return in.find(key);
  }
  std::int64_t number(const PickleValue& in, std::string_view key) {
    const auto found = find(in, key);
    return found ? found->as_int() : 0;
  }
  std::string_view text(const PickleValue& in, std::string_view key) {
    const auto found = find(in, key);
    return found ? found->as_text() : std::string_view();
  }
  std::uint32_t number_of(std::string_view name) {
    const auto [found, is_new] = numbers_.try_emplace(escaped(name.substr(0, kMostSiteBytes)),
                                                      static_cast<std::uint32_t>(names_.size()));
    if (is_new) names_.push_back(found->first);
    return found->second;
  }

  void choose_device(const std::optional<PickleValue>& traces) {
    std::size_t most = 0;
    for (std::size_t i = 0; traces && traces->is_list() && i < traces->size(); ++i) {
      look(1);
      if ((*traces)[i].size() > most) {
        most = (*traces)[i].size();
        chosen_ = i;
      }
    }
    has_events_ = most > 0;
  }

  // The innermost line of the user's own program; where there is none, the innermost with a name.
  std::uint32_t site_of(const PickleValue& of) {
    const auto frames = find(of, "frames");
    if (!frames || !frames->is_list() || frames->size() == 0) return 0;
    if (const auto known = sites_.find(frames->id()); known != sites_.end()) return known->second;
    std::string inner, outer;
    for (std::size_t i = 0; i < frames->size() && outer.empty(); ++i) {
      const PickleValue frame = (*frames)[i];
      const std::string_view file = text(frame, "filename"), name = text(frame, "name");
      const std::string site = file.empty()
                                   ? std::string(name)
                                   : fmt::format("{}:{} {}", file.substr(file.rfind('/') + 1),
                                                 number(frame, "line"), name);
      if (!is_inner(file))
        outer = site;
      else if (inner.empty() && !name.empty())
        inner = site;
    }
    return sites_[frames->id()] = number_of(outer.empty() ? inner : outer);
  }

  std::int64_t checked_sum(std::int64_t a, std::int64_t b) const {
    std::int64_t out = 0;
    if (__builtin_add_overflow(a, b, &out)) {
      fail_input(where_, "bytes at {} + {} lie beyond 64 bits", a, b);
    }
    return out;
  }

  void read_segments(const PickleValue& segments) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
      look(1);
      const PickleValue segment = segments[i];
      if (!find(segment, "total_size")) fail_input(where_, "segment {} has no total_size", i);
      // Without events the device that holds the most is shown; files of one device are the rule.
      const auto device =
          static_cast<std::size_t>(std::max<std::int64_t>(0, number(segment, "device")));
      if (has_events_ && device != chosen_) continue;
      read_segment(segment);
    }
  }

  void read_segment(const PickleValue& segment) {
    ++out_.segments;
    const std::int64_t bytes = number(segment, "total_size"), begin = number(segment, "address");
    reserved_end_ = checked_sum(reserved_end_, bytes);
    reserve(begin, bytes);
    out_.is_expandable |= number(segment, "is_expandable") != 0;
    const auto blocks = find(segment, "blocks");
    std::int64_t at = begin;
    for (std::size_t i = 0; blocks && blocks->is_list() && i < blocks->size(); ++i) {
      look(1);
      const PickleValue block = (*blocks)[i];
      const std::int64_t size = number(block, "size");
      if (text(block, "state") != "inactive") live_[at] = {size, site_of(block), 0};
      at = checked_sum(at, size);
    }
  }

  // --- segments, by address

  void reserve(std::int64_t address, std::int64_t bytes) {
    if (bytes > 0) segments_[address] = bytes;
  }
  void release(std::int64_t address) { segments_.erase(address); }

  // Finds the gaps between live blocks. Segments of the driver are apart, even where they touch;
  // parts of an expandable one are not.
  SnapshotUnused unused() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> live;
    for (const auto& [address, block] : live_) live.push_back({address, rounded(block.bytes)});
    std::ranges::sort(live);
    SnapshotUnused out;
    auto next = live.begin();
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      std::int64_t at = segment->first, end = checked_sum(at, segment->second);
      for (++segment; out_.is_expandable && segment != segments_.end() && segment->first == end;
           ++segment) {
        end = checked_sum(end, segment->second);
      }
      const auto free = [&](std::int64_t bytes, bool is_whole) {
        if (bytes <= 0) return;
        out.bytes = checked_sum(out.bytes, bytes);
        ++out.pieces;
        out.largest_bytes = std::max(out.largest_bytes, bytes);
        if (is_whole) out.releasable_bytes = checked_sum(out.releasable_bytes, bytes);
      };
      bool is_whole = true;
      while (next != live.end() && next->first < at) ++next;
      for (; next != live.end() && next->first < end; ++next) {
        is_whole = false;
        free(next->first - at, false);
        at = std::max(at, std::min(end, checked_sum(next->first, next->second)));
      }
      free(end - at, is_whole);
    }
    return out;
  }

  static std::int64_t rounded(std::int64_t bytes) {
    constexpr std::int64_t kUnit = 512;  // of the allocator
    return bytes > INT64_MAX - kUnit ? bytes : (bytes + kUnit - 1) / kUnit * kUnit;
  }

  void read_events(const PickleValue& events) {
    for (std::size_t i = 0; events.is_list() && i < events.size(); ++i) {
      look(1);
      const PickleValue event = events[i];
      const std::string_view action = text(event, "action");
      std::optional<Event::Kind> kind;
      if (action == "alloc") kind = Event::kAlloc;
      if (action == "free_completed" || action == "free") kind = Event::kFree;
      if (action == "segment_alloc" || action == "segment_map") kind = Event::kReserve;
      if (action == "segment_free" || action == "segment_unmap") kind = Event::kRelease;
      if (action == "oom") kind = Event::kOutOfMemory;
      if (!kind) continue;
      const bool is_oom = kind == Event::kOutOfMemory;
      events_.push_back({*kind, number(event, is_oom ? "device_free" : "addr"),
                         number(event, "size"), number(event, "time_us"),
                         is_oom || kind == Event::kAlloc ? site_of(event) : 0,
                         number_of(text(event, "category"))});
    }
    out_.events = static_cast<std::int64_t>(events_.size());
  }

  // Backwards to the state at the first event, then forwards.
  void replay() {
    out_.unused_at_end = unused();
    std::int64_t reserved = reserved_end_;
    for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
      if (event->kind == Event::kReserve) {
        reserved = checked_sum(reserved, -event->bytes);
        release(event->address);
      }
      if (event->kind == Event::kRelease) {
        reserved = checked_sum(reserved, event->bytes);
        reserve(event->address, event->bytes);
      }
      if (event->kind == Event::kAlloc) live_.erase(event->address);
      if (event->kind == Event::kFree) live_[event->address] = {event->bytes, 0, 0};
    }
    std::int64_t allocated = 0;
    for (const auto& [address, block] : live_) allocated = checked_sum(allocated, block.bytes);
    const auto live_at_start = live_;
    const auto segments_at_start = segments_;
    std::size_t peak = 0;  // events before it
    out_.peak_bytes = allocated;
    out_.reserved_at_peak_bytes = out_.most_reserved_bytes = reserved;
    const std::size_t stride = events_.size() / kMostMoments + 1;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      apply(events_[i], allocated, reserved);
      if (allocated > out_.peak_bytes) {
        out_.peak_bytes = allocated;
        out_.reserved_at_peak_bytes = reserved;
        peak = i + 1;
      }
      out_.most_reserved_bytes = std::max(out_.most_reserved_bytes, reserved);
      if (i % stride == 0 || i + 1 == events_.size()) {
        out_.moments.push_back(
            {static_cast<std::int64_t>(i), events_[i].time_us, allocated, reserved});
      }
      const bool is_out = events_[i].kind == Event::kOutOfMemory;
      if (is_out && out_.out_of_memory.size() < kMostOutOfMemory) {
        out_.out_of_memory.push_back({events_[i].bytes, events_[i].address, allocated, reserved,
                                      unused(), names_[events_[i].site]});
      }
    }
    out_.allocated_at_end_bytes = allocated;
    out_.reserved_at_end_bytes = reserved_end_;
    out_.peak_event = static_cast<std::int64_t>(peak);
    live_ = live_at_start;
    segments_ = segments_at_start;
    for (std::size_t i = 0; i < peak; ++i) {
      std::int64_t unused_a = 0, unused_r = 0;
      apply(events_[i], unused_a, unused_r);
    }
    out_.unused_at_peak = unused();
    add_holders();
  }

  void apply(const Event& event, std::int64_t& allocated, std::int64_t& reserved) {
    if (event.kind == Event::kReserve) {
      reserved = checked_sum(reserved, event.bytes);
      reserve(event.address, event.bytes);
    }
    if (event.kind == Event::kRelease) {
      reserved = checked_sum(reserved, -event.bytes);
      release(event.address);
    }
    if (event.kind == Event::kAlloc) {
      const auto [found, is_new] = live_.try_emplace(event.address);
      if (!is_new) allocated -= found->second.bytes;  // its free is not in the file
      found->second = {event.bytes, event.site, event.category};
      allocated = checked_sum(allocated, event.bytes);
    }
    if (event.kind == Event::kFree) {
      const auto found = live_.find(event.address);
      if (found == live_.end()) return;
      allocated -= found->second.bytes;
      live_.erase(found);
    }
  }

  void add_holders() {
    std::map<std::pair<std::uint32_t, std::uint32_t>, SnapshotHolder> by_site;
    for (const auto& [address, block] : live_) {
      SnapshotHolder& holder = by_site[{block.site, block.category}];
      holder.bytes += block.bytes;
      ++holder.blocks;
    }
    for (auto& [key, holder] : by_site) {
      holder.site = names_[key.first];
      holder.category = names_[key.second];
      out_.holders.push_back(std::move(holder));
    }
    std::ranges::stable_sort(out_.holders, [](const SnapshotHolder& a, const SnapshotHolder& b) {
      return a.bytes > b.bytes;
    });
  }

  std::string where_;
  Pickle pickle_;
  std::size_t looks_left_;
  std::size_t chosen_ = 0;
  bool has_events_ = false;
  SnapshotFacts out_;
  std::int64_t reserved_end_ = 0;
  std::vector<Event> events_;
  std::unordered_map<std::int64_t, Alloc> live_;   // by address
  std::map<std::int64_t, std::int64_t> segments_;  // their bytes, by address
  std::unordered_map<std::uint32_t, std::uint32_t> sites_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> names_;
};

// Turns events of JSON into the values of a pickle.
class Pickler : public JsonEvents {
 public:
  void null() override { next().none(); }
  void boolean(bool value) override { next().boolean(value); }
  void integer(std::int64_t value) override { next().integer(value); }
  void real(double value) override { next().real(value); }
  void text(std::string& value) override { next().text(value); }
  void key(std::string& name) override { out_.text(name); }
  void begin_object() override {
    next().begin_dict();
    is_list_.push_back(false);
  }
  void begin_array() override {
    next().begin_list();
    is_list_.push_back(true);
  }
  void end_object() override {
    is_list_.pop_back();
    out_.end_dict();
  }
  void end_array() override {
    is_list_.pop_back();
    out_.end_list();
  }
  std::string finish() { return std::move(out_).finish(); }

 private:
  PickleWriter& next() {
    if (!is_list_.empty() && is_list_.back()) out_.next_item();
    return out_;
  }

  PickleWriter out_;
  std::vector<bool> is_list_;
};

std::string pickled(std::string_view json, const std::string& where) {
  Pickler out;
  parse_json(json, where, out);
  return out.finish();
}

}  // namespace

std::string SnapshotOutOfMemory::remedy() const {
  if (unused.largest_bytes >= asked_bytes) {
    return "nothing was missing: a piece of that size lay in another pool or on another stream";
  }
  if (unused.bytes >= asked_bytes) {
    return "expandable segments, which join the pieces that lie unused";
  }
  if (device_free_bytes >= asked_bytes) {
    return "a higher limit of the process: the device itself had room";
  }
  const std::int64_t missing = asked_bytes - std::max(unused.bytes, std::int64_t{0});
  if (device_free_bytes >= missing) {
    return "expandable segments: with what the device had free, the pieces are enough";
  }
  return "less at once: the pieces and what the device had free are not enough";
}

SnapshotFacts read_snapshot_facts(const std::filesystem::path& path) {
  const std::string where = path.filename().string();
  std::string bytes = read_text_file(path, where, kMostSnapshotBytes);
  if (bytes.starts_with('{')) bytes = pickled(bytes, where);
  return SnapshotReader(bytes, where).read();
}

}  // namespace tracestep
