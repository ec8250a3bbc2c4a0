// The file holds the state at its end and the events before; the state at the first event follows
// backwards. A block counts as allocated until its free is completed, as memory_viz draws it.
#include "lab/read/snapshot_file.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text_encoding.h"
#include "base/utf8.h"
#include "lab/read/byte_stream.h"
#include "lab/read/snapshot_replay.h"
#include "lab/report/pickle.h"
#include "lab/report/unpickle.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostSnapshotBytes = (std::uint64_t{1} << 31) - 1;
constexpr std::size_t kMostDrawn = 8;  // holders along a time line
constexpr std::size_t kMostMoments = 400;
constexpr std::size_t kMostSiteBytes = 300;
constexpr std::size_t kMostOutOfMemory = 100;  // events that are shown

// Parts of files' names that tell libraries, Python's own and others, from the user's program.
constexpr std::string_view kLibraries[] = {
    "??",           "<frozen ",     "site-packages/", "dist-packages/",
    "/lib/python3", "/torch/csrc/", "/aten/src/",     "/c10/"};
constexpr std::string_view kTorchParts[] = {"-packages/torch/", "CUDACachingAllocator"};
constexpr std::string_view kNativeEndings[] = {".cpp", ".cc",  ".c", ".h", ".hpp",
                                               ".cu",  ".cuh", ".S", ".o", ".so"};
// Parts of names of functions that record a stack, or only pass a request for memory on.
constexpr std::string_view kRecording[] = {"torch::unwind", "torch::CapturedTraceback",
                                           "gather_with_cpp", "CachingAllocator"};

bool has_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](auto part) { return text.find(part) != text.npos; });
}

bool is_native(std::string_view file) {
  return file.empty() || file == "??" ||
         std::ranges::any_of(kNativeEndings, [&](auto ending) { return file.ends_with(ending); });
}

// Says "BmmBackward0, in backward" of a function that autograd calls; empty for any other.
std::string gradient_of(std::string_view name) {
  const std::size_t end = name.find("::apply(");
  if (!name.starts_with("torch::autograd::") || end == name.npos) return {};
  const std::string_view node = name.substr(0, end);
  return fmt::format("{}, in backward", node.substr(node.rfind(':') + 1));
}

// How well a frame names a block's owner, from badly to well; the innermost of the best names it.
enum class Says : std::uint8_t { kNothing, kNative, kTorch, kLibrary, kGradient, kProgram };

struct Event {
  enum Kind : std::uint8_t { kAlloc, kFree, kReserve, kRelease, kOutOfMemory } kind;
  std::int64_t address, bytes, time_us;
  std::uint32_t site, category;
  std::int64_t stream;
};

constexpr std::pair<std::string_view, Event::Kind> kActions[] = {{"alloc", Event::kAlloc},
                                                                 {"free_completed", Event::kFree},
                                                                 {"free", Event::kFree},
                                                                 {"segment_alloc", Event::kReserve},
                                                                 {"segment_map", Event::kReserve},
                                                                 {"segment_free", Event::kRelease},
                                                                 {"segment_unmap", Event::kRelease},
                                                                 {"oom", Event::kOutOfMemory}};

// The live blocks and the segments at a moment of the recording, and the bytes of each.
class Memory {
 public:
  struct Block {
    std::int64_t bytes = 0;
    std::uint32_t site = 0, category = 0;
  };

  explicit Memory(std::string where) : where_(std::move(where)) {}

  void apply(const Event& event) { change(event, event.kind); }
  // Takes an event back. A block whose free is taken back has no site, as a free does not name it.
  void undo(const Event& event) {
    constexpr Event::Kind kOpposites[] = {Event::kFree, Event::kAlloc, Event::kRelease,
                                          Event::kReserve, Event::kOutOfMemory};
    Event undone = event;
    undone.site = undone.category = 0;
    change(undone, kOpposites[event.kind]);
  }
  void put(std::int64_t address, const Block& block) {
    drop(address);  // its free is not in the file
    live_[address] = block;
    allocated = sum(allocated, block.bytes);
  }
  void reserve(std::int64_t address, std::int64_t bytes) {
    reserved = sum(reserved, bytes);
    if (bytes > 0) segments_[address] = bytes;
  }
  // Sets the site of all live blocks that have none.
  void name_all(std::uint32_t site) {
    for (auto& [address, block] : live_) {
      if (block.site == 0) block.site = site;
    }
  }
  const std::unordered_map<std::int64_t, Block>& live() const { return live_; }
  SnapshotUnused unused(bool is_expandable) const;

  std::int64_t sum(std::int64_t a, std::int64_t b) const {
    std::int64_t out = 0;
    if (__builtin_add_overflow(a, b, &out)) {
      fail_input(where_, "bytes at {} + {} lie beyond 64 bits", a, b);
    }
    return out;
  }

  std::int64_t allocated = 0, reserved = 0;

 private:
  void drop(std::int64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    allocated = sum(allocated, -found->second.bytes);
    live_.erase(found);
  }
  void change(const Event& event, Event::Kind kind) {
    if (kind == Event::kAlloc) put(event.address, {event.bytes, event.site, event.category});
    if (kind == Event::kFree) drop(event.address);
    if (kind == Event::kReserve) reserve(event.address, event.bytes);
    if (kind == Event::kRelease) {
      reserved = sum(reserved, -event.bytes);
      segments_.erase(event.address);
    }
  }

  std::string where_;
  std::unordered_map<std::int64_t, Block> live_;   // by address
  std::map<std::int64_t, std::int64_t> segments_;  // their bytes, by address
};

// Finds the gaps between live blocks. Segments of the driver are apart, even where they touch;
// parts of an expandable one are not.
SnapshotUnused Memory::unused(bool is_expandable) const {
  constexpr std::int64_t kUnit = 512;  // of the allocator
  std::vector<std::pair<std::int64_t, std::int64_t>> live;
  for (const auto& [address, block] : live_) {
    live.push_back({address, sum(block.bytes, kUnit - 1) / kUnit * kUnit});
  }
  std::ranges::sort(live);
  SnapshotUnused out;
  auto next = live.begin();
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    std::int64_t at = segment->first, end = sum(at, segment->second);
    for (++segment; is_expandable && segment != segments_.end() && segment->first == end;
         ++segment) {
      end = sum(end, segment->second);
    }
    bool is_whole = true;
    const auto free = [&](std::int64_t bytes) {
      if (bytes <= 0) return;
      out.bytes = sum(out.bytes, bytes);
      ++out.pieces;
      out.largest_bytes = std::max(out.largest_bytes, bytes);
      if (is_whole) out.releasable_bytes = sum(out.releasable_bytes, bytes);
    };
    while (next != live.end() && next->first < at) ++next;
    for (; next != live.end() && next->first < end; ++next) {
      is_whole = false;
      free(next->first - at);
      at = std::max(at, std::min(end, sum(next->first, next->second)));
    }
    free(end - at);
  }
  return out;
}

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, std::string where)
      : where_(std::move(where)),
        pickle_(bytes, where_),
        looks_left_(4 * bytes.size() + 4096),
        end_(where_) {
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
  // Counts values read, and fails beyond what the size allows: a pickle may name one many times.
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
  std::int64_t bytes(const PickleValue& in, std::string_view key) {
    return std::max<std::int64_t>(0, number(in, key));
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

  // The site of a stack: the innermost line of the user's own program; where there is none, the
  // function whose gradient it is, a line of a library, the innermost function with a name.
  std::uint32_t site_of(const PickleValue& of) {
    const auto frames = find(of, "frames");
    if (!frames || !frames->is_list() || frames->size() == 0) return 0;
    if (const auto known = sites_.find(frames->id()); known != sites_.end()) return known->second;
    std::string site;
    Says best = Says::kNothing;
    for (std::size_t i = 0; i < frames->size() && best != Says::kProgram; ++i) {
      const PickleValue frame = (*frames)[i];
      const std::string_view file = text(frame, "filename"), name = text(frame, "name");
      std::string gradient = gradient_of(name);
      Says says = Says::kProgram;
      if (!gradient.empty()) {
        says = Says::kGradient;
      } else if (is_native(file)) {
        says = name.empty() || has_any(name, kRecording) ? Says::kNothing : Says::kNative;
      } else if (has_any(file, kLibraries)) {
        says = has_any(file, kTorchParts) ? Says::kTorch : Says::kLibrary;
      }
      if (says <= best) continue;
      best = says;
      site = says == Says::kGradient ? std::move(gradient)
             : file.empty()          ? std::string(name)
                                     : fmt::format("{}:{} {}", file.substr(file.rfind('/') + 1),
                                                   number(frame, "line"), name);
    }
    return sites_[frames->id()] = number_of(site);
  }

  void read_segments(const PickleValue& segments) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
      look(1);
      const PickleValue segment = segments[i];
      if (!find(segment, "total_size")) fail_input(where_, "segment {} has no total_size", i);
      // Without events, the device with the most bytes is shown; usually a file has only one
      // device.
      const auto device =
          static_cast<std::size_t>(std::max<std::int64_t>(0, number(segment, "device")));
      if (has_events_ && device != chosen_) continue;
      read_segment(segment);
    }
  }

  void read_segment(const PickleValue& segment) {
    ++out_.segments;
    std::int64_t at = number(segment, "address");
    end_.reserve(at, bytes(segment, "total_size"));
    out_.is_expandable |= number(segment, "is_expandable") != 0;
    const auto blocks = find(segment, "blocks");
    for (std::size_t i = 0; blocks && blocks->is_list() && i < blocks->size(); ++i) {
      look(1);
      const PickleValue block = (*blocks)[i];
      const std::int64_t size = bytes(block, "size");
      // Events speak of the bytes asked for, so that what has no event is counted by them as well.
      const std::int64_t asked = bytes(block, "requested_size");
      const bool is_said = asked > 0 && asked <= size;
      if (text(block, "state") != "inactive") {
        end_.put(at, {is_said ? asked : size, site_of(block)});
      }
      at = end_.sum(at, size);
    }
  }

  void read_events(const PickleValue& events) {
    for (std::size_t i = 0; events.is_list() && i < events.size(); ++i) {
      look(1);
      const PickleValue event = events[i];
      const auto* known = std::ranges::find(kActions, text(event, "action"),
                                            &std::pair<std::string_view, Event::Kind>::first);
      if (known == std::end(kActions)) continue;
      const bool is_oom = known->second == Event::kOutOfMemory;
      events_.push_back({known->second, number(event, is_oom ? "device_free" : "addr"),
                         bytes(event, "size"), number(event, "time_us"),
                         is_oom || known->second == Event::kAlloc ? site_of(event) : 0,
                         number_of(text(event, "category")), number(event, "stream")});
    }
    out_.events = static_cast<std::int64_t>(events_.size());
  }

  // Replays the events: back to the state before the first, forwards to the end, again to the peak.
  void replay() {
    Memory start = end_;
    for (auto event = events_.rbegin(); event != events_.rend(); ++event) start.undo(*event);
    if (!events_.empty()) start.name_all(number_of("before the recording"));
    list_events(start);
    Memory now = start;
    out_.peak_bytes = now.allocated;
    out_.reserved_at_peak_bytes = out_.most_reserved_bytes = now.reserved;
    const std::size_t stride = events_.size() / kMostMoments + 1;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      now.apply(event);
      if (now.allocated > out_.peak_bytes) {
        out_.peak_bytes = now.allocated;
        out_.reserved_at_peak_bytes = now.reserved;
        out_.peak_event = static_cast<std::int64_t>(i + 1);
      }
      out_.most_reserved_bytes = std::max(out_.most_reserved_bytes, now.reserved);
      out_.lacks_segments |= now.allocated > now.reserved;
      // The fullest moment of each stretch is kept, so that no peak is lost.
      if (i % stride == 0) out_.moments.push_back({.allocated_bytes = -1});
      if (now.allocated > out_.moments.back().allocated_bytes) {
        out_.moments.back() = {static_cast<std::int64_t>(i), event.time_us, now.allocated,
                               now.reserved};
      }
      const bool is_out = event.kind == Event::kOutOfMemory;
      if (is_out && out_.out_of_memory.size() < kMostOutOfMemory) {
        out_.out_of_memory.push_back({event.bytes, event.address, now.allocated, now.reserved,
                                      now.unused(out_.is_expandable), names_[event.site]});
      }
    }
    out_.allocated_at_end_bytes = now.allocated;
    out_.reserved_at_end_bytes = end_.reserved;
    out_.unused_at_end = end_.unused(out_.is_expandable);
    now = start;
    for (const Event& event : std::span(events_).first(static_cast<std::size_t>(out_.peak_event)))
      now.apply(event);
    out_.unused_at_peak = now.unused(out_.is_expandable);
    add_holders(now);
    add_held(std::move(start));
  }

  // Replays the events again, and adds to each moment the bytes of the peak's largest holders.
  void add_held(Memory now) {
    auto moment = out_.moments.begin();
    for (std::size_t i = 0; i < events_.size(); ++i) {
      now.apply(events_[i]);
      if (moment == out_.moments.end() || moment->event != static_cast<std::int64_t>(i)) continue;
      moment->held.resize(largest_.size());
      for (const auto& [address, block] : now.live()) {
        const auto place = std::ranges::find(largest_, Owner(block.site, block.category));
        if (place != largest_.end()) {
          moment->held[static_cast<std::size_t>(place - largest_.begin())] += block.bytes;
        }
      }
      ++moment;
    }
  }

  void list_events(const Memory& start) {
    AddressedList list;
    std::map<std::int64_t, std::int64_t> first;
    for (const auto& [address, block] : start.live()) first[address] = block.bytes;
    for (const auto& [address, size] : first) list.birth(address, size, 0);
    for (const Event& event : events_) {
      if (event.kind == Event::kAlloc) list.birth(event.address, event.bytes, event.stream);
      if (event.kind == Event::kFree) list.death(event.address);
    }
    out_.list = std::move(list).take();
  }

  void add_holders(const Memory& peak) {
    std::map<Owner, SnapshotHolder> by_owner;
    for (const auto& [address, block] : peak.live()) {
      SnapshotHolder& holder = by_owner[{block.site, block.category}];
      holder.bytes += block.bytes;
      ++holder.blocks;
      ++out_.sizes_at_peak[block.bytes];
    }
    std::vector<std::pair<Owner, SnapshotHolder>> holders(by_owner.begin(), by_owner.end());
    std::ranges::stable_sort(holders, std::greater<>(),
                             [](const auto& holder) { return holder.second.bytes; });
    for (auto& [owner, holder] : holders) {
      if (largest_.size() < kMostDrawn) largest_.push_back(owner);
      holder.site = names_[owner.first];
      holder.category = names_[owner.second];
      out_.holders.push_back(std::move(holder));
    }
  }

  std::string where_;
  Pickle pickle_;
  std::size_t looks_left_;
  std::size_t chosen_ = 0;
  bool has_events_ = false;
  using Owner = std::pair<std::uint32_t, std::uint32_t>;  // a block's site and category

  SnapshotFacts out_;
  Memory end_;
  std::vector<Owner> largest_;  // of the peak
  std::vector<Event> events_;
  std::unordered_map<std::uint32_t, std::uint32_t> sites_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> names_;
};

// Writes a snapshot, given as JSON, as the pickle that it would be.
void pickle(const Json& value, PickleWriter& out) {
  if (value.is_object()) {
    out.begin_dict();
    for (const auto& [name, of] : value.members()) {
      out.text(name);
      pickle(of, out);
    }
    return out.end_dict();
  }
  if (value.is_array()) {
    out.begin_list();
    for (const Json& item : value.items()) {
      out.next_item();
      pickle(item, out);
    }
    return out.end_list();
  }
  if (value.is_string()) return out.text(value.as_string());
  if (value.is_int()) return out.integer(value.as_int());
  if (value.is_bool()) return out.boolean(value.as_bool());
  return value.is_number() ? out.real(value.as_double()) : out.none();
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
  ByteStream file(path);
  std::string bytes;
  bytes.reserve(std::filesystem::file_size(path));
  std::string part(std::size_t{1} << 17, '\0');
  for (std::size_t count = file.read(part); count > 0; count = file.read(part)) {
    bytes.append(part, 0, count);
    if (bytes.size() > kMostSnapshotBytes) fail_input(file.name(), "it has more than 2 GiB");
  }
  if (!bytes.starts_with('\x80')) {
    PickleWriter out;
    pickle(Json::parse(bytes.substr(size_of(byte_order_mark_of(bytes))), file.name()), out);
    bytes = std::move(out).finish();
  }
  return SnapshotReader(bytes, file.name()).read();
}

}  // namespace tracestep
