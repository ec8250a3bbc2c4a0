// Events are sorted into what they are by their category, whose spelling differs between versions:
// "kernel" and "Kernel". Times are thousandths of a microsecond, kept whole.
#include "lab/read/trace_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "lab/read/object_stream.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostOfTraceName = 1000;  // bytes of a name that are kept
constexpr std::size_t kMostNames = 200'000;
// Differences and sums of what lies within these have room in 64 bits.
constexpr std::int64_t kMostStampNs = std::int64_t{1} << 61;
constexpr std::int64_t kMostLengthNs = std::int64_t{1} << 45;
constexpr std::string_view kModulePrefix = "nn.Module: ";

struct CategoryKind {
  std::string_view category;
  EventKind kind;
};
constexpr CategoryKind kCategoryKinds[] = {
    {"cpu_op", EventKind::kOp},
    {"operator", EventKind::kOp},
    {"user_annotation", EventKind::kRange},
    {"cuda_runtime", EventKind::kCall},
    {"cuda_driver", EventKind::kCall},
    {"runtime", EventKind::kCall},
    {"xpu_runtime", EventKind::kCall},
    {"kernel", EventKind::kKernel},
    {"gpu_memcpy", EventKind::kCopy},
    {"gpu_memset", EventKind::kCopy},
    {"memcpy", EventKind::kCopy},
    {"memset", EventKind::kCopy},
    {"python_function", EventKind::kModule},
};

bool is_same_word(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::ranges::equal(a, lower, [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

std::optional<EventKind> kind_of(std::string_view category) {
  for (const CategoryKind& known : kCategoryKinds) {
    if (is_same_word(category, known.category)) return known.kind;
  }
  return std::nullopt;
}

// The members of an event that say anything here, as their texts.
struct RawEvent {
  std::string_view phase, category, name, start, duration, process, thread, args;
};
constexpr std::pair<std::string_view, std::string_view RawEvent::*> kEventMembers[] = {
    {"ph", &RawEvent::phase},   {"cat", &RawEvent::category}, {"name", &RawEvent::name},
    {"ts", &RawEvent::start},   {"dur", &RawEvent::duration}, {"pid", &RawEvent::process},
    {"tid", &RawEvent::thread}, {"args", &RawEvent::args},
};

struct RawArgs {
  std::string_view correlation, sequence, forward_thread, stream, device, shapes;
};
constexpr std::pair<std::string_view, std::string_view RawArgs::*> kArgMembers[] = {
    {"correlation", &RawArgs::correlation}, {"Sequence number", &RawArgs::sequence},
    {"stream", &RawArgs::stream},           {"Fwd thread id", &RawArgs::forward_thread},
    {"device", &RawArgs::device},           {"Input Dims", &RawArgs::shapes},
    {"Input dims", &RawArgs::shapes},
};

// The members named in `wanted`; `is_whole` says whether the text is an object to its end.
template <class Raw, std::size_t kCount>
Raw members_of(std::string_view text,
               const std::pair<std::string_view, std::string_view Raw::*> (&wanted)[kCount],
               bool& is_whole) {
  Raw out;
  is_whole = for_each_json_member(text, [&](std::string_view key, std::string_view value) {
    for (const auto& [name, member] : wanted) {
      if (key.size() == name.size() && key == name) out.*member = value;
    }
  });
  return out;
}

std::string_view unquoted(std::string_view value) {
  if (value.size() > 1 && value.front() == '"') return value.substr(1, value.size() - 2);
  return value;
}

std::uint32_t number_or_none(std::string_view value) {
  const auto number = json_integer(value);
  const bool fits = number && *number >= 0 && *number < std::int64_t{kNoNumber};
  return fits ? static_cast<std::uint32_t>(*number) : kNoNumber;
}

std::uint16_t small_number(std::string_view value) {
  const auto number = json_integer(value);
  return number && *number >= 0 && *number <= UINT16_MAX ? static_cast<std::uint16_t>(*number) : 0;
}

// The name with files in place of their paths, which tell of the machine of the recording.
std::string_view without_paths(std::string_view name, std::string& store) {
  const auto begins_path = [&](std::size_t i) {
    return name[i] == '/' &&
           (i == 0 || std::string_view(" (\"'=[,").find(name[i - 1]) != std::string_view::npos);
  };
  bool has_path = false;
  for (std::size_t i = 0; i < name.size() && !has_path; ++i) has_path = begins_path(i);
  if (!has_path) return name;
  store.clear();
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (begins_path(i)) {
      const std::size_t end = std::min(name.find_first_of(" )\"',]", i), name.size());
      i = name.rfind('/', end - 1);
    } else {
      store += name[i];
    }
  }
  return store;
}

class TraceReader {
 public:
  explicit TraceReader(EventOrder& events) : events_(events) {}

  void add_event(std::string_view text) {
    ++out_.events;
    bool is_whole = false;
    const RawEvent raw = members_of(text, kEventMembers, is_whole);
    if (!is_whole) {
      ++out_.unreadable;
      return;
    }
    if (unquoted(raw.phase) != "X") return;
    const std::optional<EventKind> kind = kind_of(unquoted(raw.category));
    if (!kind) return;
    std::string_view name = raw.name;
    if (kind == EventKind::kModule) {
      if (!unquoted(name).starts_with(kModulePrefix)) return;
    }
    const auto start = json_thousandths(raw.start), length = json_thousandths(raw.duration);
    const bool is_time = start && length && std::abs(*start) < kMostStampNs && *length >= 0 &&
                         *length < kMostLengthNs;
    if (!is_time) {
      ++out_.unreadable;
      return;
    }
    name = json_text(name, store_);
    if (kind == EventKind::kModule) name.remove_prefix(kModulePrefix.size());
    keep(*kind, raw, name, *start, *start + *length);
  }

  void add_member(std::string_view key, std::string_view value, const std::string& where) {
    if (key == "record_shapes") out_.has_shapes |= value != "0";
    if (key == "distributedInfo") {
      for_each_json_member(value, [&](std::string_view name, std::string_view of) {
        if (name == "rank") out_.rank = json_integer(of).value_or(-1);
        if (name == "world_size") out_.ranks = json_integer(of).value_or(0);
      });
    }
    if (key != "deviceProperties" || value.front() != '[') return;
    const Json devices = Json::parse(value, where);
    for (const Json& device : devices.items()) {
      const Json* name = device.is_object() ? device.find("name") : nullptr;
      out_.gpus.push_back(name != nullptr && name->is_string() ? escaped(name->as_string()) : "");
    }
  }

  TraceFacts finish(const std::filesystem::path& path, bool is_cut) {
    out_.path = path;
    out_.is_cut = is_cut;
    out_.threads = static_cast<std::uint32_t>(threads_.size());
    std::ranges::sort(out_.profiled, {}, &TimeSpan::start_ns);
    std::ranges::sort(out_.optimized, {}, &TimeSpan::start_ns);
    return std::move(out_);
  }

  bool is_empty() const { return std::int64_t{kept_} == out_.count(EventKind::kModule); }

 private:
  void keep(EventKind kind, const RawEvent& raw, std::string_view name, std::int64_t start,
            std::int64_t end) {
    out_.first_ns = kept_ == 0 ? start : std::min(out_.first_ns, start);
    out_.last_ns = kept_ == 0 ? end : std::max(out_.last_ns, end);
    ++out_.counts[static_cast<std::size_t>(kind)];
    if (kind == EventKind::kRange) {
      if (name.starts_with(kProfilerStep)) out_.profiled.push_back({start, end});
      if (name.starts_with(kOptimizerStep)) out_.optimized.push_back({start, end});
    }
    bool is_whole = false;
    const RawArgs args = members_of(raw.args, kArgMembers, is_whole);
    out_.has_shapes |= !args.shapes.empty();
    TraceEvent event{
        .start_ns = start,
        .end_ns = end,
        .name = number_of(name),
        .link = number_or_none(kind == EventKind::kOp ? args.sequence : args.correlation),
        .order = kept_++,
        .kind = kind};
    if (event.is_of_device()) {
      event.thread = std::uint32_t{small_number(args.device)} << 16 | small_number(args.stream);
    } else {
      event.thread = thread_of(raw);
      event.is_gradient = json_integer(args.forward_thread).value_or(0) > 0;
    }
    events_.add(event);
  }

  std::uint32_t number_of(std::string_view name) {
    const bool has_room = out_.names.size() < kMostNames;
    return out_.names.number_of(has_room ? shown(name) : "(names beyond the first 200,000)");
  }

  // Names come from outside: what a terminal or a page cannot show is made visible.
  std::string_view shown(std::string_view name) {
    name = without_paths(name.substr(0, kMostOfTraceName), path_store_);
    const bool is_plain = std::ranges::all_of(name, [](char c) { return c >= 0x20 && c < 0x7f; });
    if (is_plain) return name;
    return escaped_ = escaped(name);
  }

  std::uint32_t thread_of(const RawEvent& raw) {
    thread_key_.assign(unquoted(raw.process)).append("/").append(unquoted(raw.thread));
    if (thread_key_ == last_key_) return last_thread_;
    last_key_ = thread_key_;
    const auto next = static_cast<std::uint32_t>(threads_.size());
    return last_thread_ = threads_.try_emplace(thread_key_, next).first->second;
  }

  EventOrder& events_;
  TraceFacts out_;
  std::uint32_t kept_ = 0;
  std::map<std::string, std::uint32_t> threads_;
  std::uint32_t last_thread_ = 0;
  std::string store_, escaped_, path_store_, thread_key_, last_key_;
};

}  // namespace

TraceFacts read_trace_events(const std::filesystem::path& path, EventOrder& events) {
  ByteStream bytes(path);
  const std::string where = path.filename().string();
  TraceReader reader(events);
  const ObjectStreamEnd end =
      read_objects(bytes, "traceEvents",
                   {.member = [&](std::string_view key,
                                  std::string_view value) { reader.add_member(key, value, where); },
                    .item = [&](std::string_view item) { reader.add_event(item); }});
  if (reader.is_empty()) {
    throw Error(ErrorCode::kInput, where, "it has no ops, kernels or ranges of torch.profiler",
                "a trace by export_chrome_trace() or a memory snapshot is read");
  }
  return reader.finish(path, end.is_cut);
}

}  // namespace tracestep
