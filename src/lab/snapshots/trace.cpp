#include "lab/snapshots/trace.h"

#include <map>
#include <unordered_set>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json_events.h"
#include "lab/report/unpickle.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;
constexpr std::size_t kSpareBytes = std::size_t{1} << 20;
constexpr std::size_t kMostOfName = 200;  // bytes of a frame's name or a category that are kept

[[noreturn]] void fail_kind(const std::string& where) {
  fail_input(where, "this is no memory snapshot: it has no 'segments' and 'device_traces'");
}

// --- what both forms tell -----------------------------------------------------------------------
// An event of the snapshot as the file has it, in a pickle or in JSON.
struct Event {
  enum class Kind { kOther, kAlloc, kFree } kind = Kind::kOther;
  std::int64_t address = 0, bytes = 0;
  TraceLabel label = {};

  void set_action(std::string_view name) {
    kind = name == "alloc"                              ? Kind::kAlloc
           : name == "free_completed" || name == "free" ? Kind::kFree
                                                        : Kind::kOther;
  }
};

struct Block {
  bool is_active = false;
  std::int64_t bytes = 0, requested = 0;

  void set_state(std::string_view name) { is_active = name == "active_allocated"; }
};

class TraceBuilder {
 public:
  // The most bytes that a builder stores for an event or a block, its node in the map of live
  // addresses included.
  static constexpr std::size_t kEventBytes = sizeof(AllocatorEvent) + 6 * sizeof(std::int64_t);
  static constexpr std::size_t kBlockBytes = 3 * sizeof(std::int64_t);

  explicit TraceBuilder(const std::string& where) : where_(where) {}

  bool has_events() const { return !out_.events.empty(); }
  bool knows(const TraceLabel& label) const { return numbers_.contains(label); }

  void add(const Event& e) {
    if (e.kind == Event::Kind::kOther) return;
    const bool is_alloc = e.kind == Event::Kind::kAlloc;
    out_.events.push_back({is_alloc, is_alloc ? number_of(e.label) : -1, e.address, e.bytes});
    if (is_alloc) {
      live_.insert(e.address);
    } else if (live_.erase(e.address) == 0) {
      out_.there_before.push_back(e.bytes);
    }
  }

  // Adds the next block of a segment, whose blocks lie side by side, in order of address.
  void add(const Block& b) {
    if (b.is_active) blocks_.push_back({offset_, b.requested > 0 ? b.requested : b.bytes});
    offset_ = sum(offset_, b.bytes);
  }
  void end_segment(std::int64_t address) {
    for (; placed_ < blocks_.size(); ++placed_) {
      blocks_[placed_].address = sum(blocks_[placed_].address, address);
    }
    offset_ = 0;
  }

  MemoryTrace finish() {
    // These blocks are active at the end, and no event made them.
    for (const PlacedBlock& block : blocks_) {
      if (!live_.contains(block.address)) out_.there_before.push_back(block.bytes);
    }
    if (out_.events.empty() && out_.there_before.empty()) {
      fail_input(where_, "the snapshot holds no events and no blocks");
    }
    return std::move(out_);
  }

 private:
  struct PlacedBlock {
    std::int64_t address, bytes;
  };

  std::int64_t sum(std::int64_t a, std::int64_t b) const {
    std::int64_t out = 0;
    if (__builtin_add_overflow(a, b, &out)) {
      fail_input(where_, "a block at {} + {} lies beyond 64 bits", a, b);
    }
    return out;
  }

  std::int32_t number_of(const TraceLabel& label) {
    if (label == TraceLabel()) return -1;
    const auto [found, is_new] =
        numbers_.emplace(label, static_cast<std::int32_t>(numbers_.size()));
    if (is_new) out_.labels.push_back(label);
    return found->second;
  }

  const std::string& where_;
  MemoryTrace out_;
  std::map<TraceLabel, std::int32_t> numbers_;
  std::unordered_set<std::int64_t> live_;
  std::vector<PlacedBlock> blocks_;  // blocks from placed_ on, relative to their segment
  std::size_t placed_ = 0;
  std::int64_t offset_ = 0;
};

// --- pickle -------------------------------------------------------------------------------------

// Reads a snapshot in a pickle. As a pickle may name one object many times, the walk may take only
// the time and memory that a file of this size takes which names each object once.
class PickleWalk {
 public:
  PickleWalk(std::string_view bytes, const std::string& where)
      : pickle_(bytes, where),
        where_(where),
        builder_(where),
        looks_left_(2 * bytes.size()),
        memory_left_(3 * bytes.size() + kSpareBytes) {}

  MemoryTrace read() {
    const auto traces = find(pickle_.root(), "device_traces");
    const auto segments = find(pickle_.root(), "segments");
    if (!traces || !segments) fail_kind(where_);
    for_each(*traces, [&](const PickleValue& device) {
      if (!builder_.has_events())
        for_each(device, [&](const PickleValue& event) { read_event(event); });
    });
    for_each(*segments, [&](const PickleValue& segment) { read_segment(segment); });
    return builder_.finish();
  }

 private:
  std::optional<PickleValue> find(const PickleValue& in, std::string_view key) {
    look(in.size());
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
  template <class F>
  void for_each(const PickleValue& list, F&& f) {
    for (std::size_t i = 0; list.is_list() && i < list.size(); ++i) {
      look(1);
      f(list[i]);
    }
  }
  void look(std::size_t values) { spend(looks_left_, values); }
  // Counts the bytes that the builder keeps of a value; values that it drops count as well.
  void keep(std::size_t bytes) { spend(memory_left_, bytes); }
  void spend(std::size_t& left, std::size_t amount) {
    if (amount > left) fail_input(where_, "its values name each other too often");
    left -= amount;
  }

  void read_event(const PickleValue& event) {
    Event out;
    out.set_action(text(event, "action"));
    out.address = number(event, "addr");
    out.bytes = number(event, "size");
    keep(TraceBuilder::kEventBytes);
    if (out.kind == Event::Kind::kAlloc) read_label(event, out.label);
    builder_.add(out);
  }

  // Reads a label, and counts a new one's bytes twice: the builder keeps it in a list and in a map.
  void read_label(const PickleValue& event, TraceLabel& out) {
    out.category = text(event, "category").substr(0, kMostOfName);
    const auto frames = find(event, "frames");
    if (frames && frames->is_list()) {
      if (frames->size() > 0) out.scope = text((*frames)[0], "name").substr(0, kMostOfName);
      if (frames->size() > 1) out.op = text((*frames)[1], "name").substr(0, kMostOfName);
    }
    if (!builder_.knows(out)) {
      keep(2 * (sizeof(TraceLabel) + out.category.size() + out.scope.size() + out.op.size()));
    }
  }

  void read_segment(const PickleValue& segment) {
    if (const auto blocks = find(segment, "blocks")) {
      for_each(*blocks, [&](const PickleValue& block) {
        Block out;
        out.set_state(text(block, "state"));
        out.bytes = number(block, "size");
        out.requested = number(block, "requested_size");
        keep(TraceBuilder::kBlockBytes);
        builder_.add(out);
      });
    }
    builder_.end_segment(number(segment, "address"));
  }

  Pickle pickle_;
  const std::string& where_;
  TraceBuilder builder_;
  std::size_t looks_left_, memory_left_;
};

// --- JSON ---------------------------------------------------------------------------------------
// Builds the trace from the calls of parse_json(), without storing the document.
class TraceEvents : public JsonEvents {
 public:
  explicit TraceEvents(const std::string& where) : where_(where), builder_(where) {}

  MemoryTrace finish() {
    if (!has_traces_ || !has_segments_) fail_kind(where_);
    return builder_.finish();
  }

  void null() override {}
  void boolean(bool) override {}
  void real(double) override {}
  void integer(std::int64_t v) override {
    switch (places_.empty() ? Place::kOther : places_.back()) {
      case Place::kEvent:
        if (key_ == "addr") event_.address = v;
        if (key_ == "size") event_.bytes = v;
        return;
      case Place::kSegment:
        if (key_ == "address") address_ = v;
        return;
      case Place::kBlock:
        if (key_ == "size") block_.bytes = v;
        if (key_ == "requested_size") block_.requested = v;
        return;
      default: return;
    }
  }
  void text(std::string& v) override {
    if (is_in(Place::kEvent) && key_ == "action") event_.set_action(v);
    if (is_in(Place::kEvent) && key_ == "category")
      event_.label.category = v.substr(0, kMostOfName);
    if (is_in(Place::kFrame) && key_ == "name" && frame_ < 2) {
      (frame_ == 0 ? event_.label.scope : event_.label.op) = v.substr(0, kMostOfName);
    }
    if (is_in(Place::kBlock) && key_ == "state") block_.set_state(v);
  }
  void key(std::string& name) override { key_ = std::move(name); }

  void begin_object() override {
    const Place place = places_.empty()           ? Place::kRoot
                        : is_in(Place::kDevice)   ? Place::kEvent
                        : is_in(Place::kSegments) ? Place::kSegment
                        : is_in(Place::kBlocks)   ? Place::kBlock
                        : is_in(Place::kFrames)   ? Place::kFrame
                                                  : Place::kOther;
    if (place == Place::kEvent) event_ = {};
    if (place == Place::kSegment) address_ = 0;
    if (place == Place::kBlock) block_ = {};
    places_.push_back(place);
  }
  void end_object() override {
    if (is_in(Place::kEvent) && !is_later_device_) builder_.add(event_);
    if (is_in(Place::kFrame)) ++frame_;
    if (is_in(Place::kBlock)) builder_.add(block_);
    if (is_in(Place::kSegment)) builder_.end_segment(address_);
    places_.pop_back();
  }

  void begin_array() override {
    Place place = Place::kOther;
    if (is_in(Place::kRoot) && key_ == "device_traces") {
      place = Place::kDevices;
      has_traces_ = true;
    } else if (is_in(Place::kRoot) && key_ == "segments") {
      place = Place::kSegments;
      has_segments_ = true;
    } else if (is_in(Place::kDevices)) {
      place = Place::kDevice;
      is_later_device_ = builder_.has_events();
    } else if (is_in(Place::kSegment) && key_ == "blocks") {
      place = Place::kBlocks;
    } else if (is_in(Place::kEvent) && key_ == "frames") {
      place = Place::kFrames;
      frame_ = 0;
    }
    places_.push_back(place);
  }
  void end_array() override { places_.pop_back(); }

 private:
  enum class Place {
    kRoot,
    kDevices,
    kDevice,
    kEvent,
    kFrames,
    kFrame,
    kSegments,
    kSegment,
    kBlocks,
    kBlock,
    kOther
  };

  bool is_in(Place place) const { return !places_.empty() && places_.back() == place; }

  const std::string& where_;
  TraceBuilder builder_;
  std::vector<Place> places_;  // of every open object and array
  std::string key_;
  Event event_;
  Block block_;
  std::int64_t address_ = 0;
  int frame_ = 0;  // of the event, innermost first
  bool is_later_device_ = false, has_traces_ = false, has_segments_ = false;
};

}  // namespace

MemoryTrace read_trace(std::string_view bytes, const std::string& where) {
  if (!bytes.starts_with('{')) return PickleWalk(bytes, where).read();
  TraceEvents events(where);
  parse_json(bytes, where, events);
  return events.finish();
}

MemoryTrace read_trace_file(const std::filesystem::path& path) {
  return read_trace(read_text_file(path, "fingerprint"_field, kMaxFileBytes), path.string());
}

}  // namespace tracestep
