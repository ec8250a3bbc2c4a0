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
#include "lab/read/json_stream.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostOfTraceName = 1000;  // bytes of a name that are kept
constexpr std::size_t kMostNames = 200'000;
// The bounds of stamps and of lengths that are read: their sums and differences fit into 64 bits.
constexpr std::int64_t kMostStampNs = std::int64_t{1} << 61;
constexpr std::int64_t kMostLengthNs = std::int64_t{1} << 45;
constexpr std::string_view kModulePrefix = "nn.Module: ";

constexpr std::pair<std::string_view, EventKind> kCategories[] = {
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
    {"mtia_runtime", EventKind::kCall},
    {"mtia_ccp_events", EventKind::kKernel},
    {"python_function", EventKind::kModule}};

std::optional<EventKind> kind_of(std::string_view category) {
  const auto is_same = [](char x, char lower) { return (x | 0x20) == (lower | 0x20); };
  for (const auto& [name, kind] : kCategories) {
    if (std::ranges::equal(category, name, is_same)) return kind;
  }
  return std::nullopt;
}

// The texts of those members of an event, and of its arguments, that are read.
struct RawEvent {
  std::string_view phase, category, name, start, duration, process, thread, args;
  std::string_view correlation, sequence, forward_thread, stream, device, shapes;
};
using RawMember = std::pair<std::string_view, std::string_view RawEvent::*>;
constexpr RawMember kEventMembers[] = {{"ph", &RawEvent::phase},     {"cat", &RawEvent::category},
                                       {"name", &RawEvent::name},    {"ts", &RawEvent::start},
                                       {"dur", &RawEvent::duration}, {"pid", &RawEvent::process},
                                       {"tid", &RawEvent::thread},   {"args", &RawEvent::args}};
constexpr RawMember kArgMembers[] = {
    {"correlation", &RawEvent::correlation}, {"Sequence number", &RawEvent::sequence},
    {"stream", &RawEvent::stream},           {"Fwd thread id", &RawEvent::forward_thread},
    {"device", &RawEvent::device},           {"Input Dims", &RawEvent::shapes},
    {"Input dims", &RawEvent::shapes}};

// Sets the members named in `wanted`; returns false where the text is no object to its end.
bool take_members(std::string_view text, std::span<const RawMember> wanted, RawEvent& out) {
  return for_each_json_member(text, [&](std::string_view key, std::string_view value) {
    for (const auto& [name, member] : wanted) {
      if (key == name) out.*member = value;
    }
  });
}

std::uint32_t number_or_none(std::string_view value) {
  const std::int64_t number = json_integer(value).value_or(-1);
  return number >= 0 && number < std::int64_t{kNoNumber} ? static_cast<std::uint32_t>(number)
                                                         : kNoNumber;
}

std::uint32_t small_number(std::string_view value) {
  const std::uint32_t number = number_or_none(value);
  return number <= UINT16_MAX ? number : 0;
}

// Cuts each path in a name to its file's name, as folders tell about the machine of the recording.
std::string_view without_paths(std::string_view name, std::string& store) {
  const auto begins_path = [&](std::size_t i) {
    return name[i] == '/' &&
           (i == 0 || std::string_view(" (\"'=[,").find(name[i - 1]) != std::string_view::npos);
  };
  std::size_t i = 0;
  while (i < name.size() && !begins_path(i)) ++i;
  if (i == name.size()) return name;
  store = name.substr(0, i);
  for (; i < name.size(); ++i) {
    if (begins_path(i)) {
      i = name.rfind('/', std::min(name.find_first_of(" )\"',]", i), name.size()) - 1);
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
    RawEvent raw;
    if (!take_members(text, kEventMembers, raw)) return void(++out_.unreadable);
    const std::optional<EventKind> kind = kind_of(unquoted(raw.category));
    if (!kind || unquoted(raw.phase) != "X") return;
    if (kind == EventKind::kModule && !unquoted(raw.name).starts_with(kModulePrefix)) return;
    const auto start = json_thousandths(raw.start), length = json_thousandths(raw.duration);
    const bool is_time = start && length && *start > -kMostStampNs && *start < kMostStampNs &&
                         *length >= 0 && *length < kMostLengthNs;
    if (!is_time) return void(++out_.unreadable);
    take_members(raw.args, kArgMembers, raw);
    keep(*kind, raw, *start, *start + *length);
  }

  void add_member(std::string_view key, std::string_view value) {
    if (key == "record_shapes") out_.has_shapes |= value != "0";
    if (key == "distributedInfo") {
      for_each_json_member(value, [&](std::string_view name, std::string_view of) {
        if (name == "rank") out_.rank = json_integer(of).value_or(-1);
      });
    }
    if (key != "deviceProperties" || value.front() != '[') return;
    const Json devices = Json::parse(value, "deviceProperties");
    for (const Json& device : devices.items()) {
      const Json* name = device.is_object() ? device.find("name") : nullptr;
      out_.gpus.push_back(name != nullptr && name->is_string() ? escaped(name->as_string()) : "");
    }
  }

  TraceFacts finish(const std::filesystem::path& path, bool is_cut) {
    out_.path = path;
    if (kept_ == out_.count(EventKind::kModule)) {
      throw Error(ErrorCode::kInput, path.filename(),
                  "it has no ops, kernels or ranges of torch.profiler",
                  "a trace by export_chrome_trace() or a memory snapshot is read");
    }
    out_.is_cut = is_cut;
    out_.threads = static_cast<std::uint32_t>(threads_.size());
    std::ranges::sort(out_.profiled, {}, &TimeSpan::start_ns);
    std::ranges::sort(out_.optimized, {}, &TimeSpan::start_ns);
    return std::move(out_);
  }

 private:
  void keep(EventKind kind, const RawEvent& raw, std::int64_t start, std::int64_t end) {
    std::string_view name = unquoted(raw.name);
    if (name.find('\\') != std::string_view::npos) name = store_ = unescaped(raw.name);
    if (kind == EventKind::kModule) name.remove_prefix(kModulePrefix.size());
    out_.first_ns = kept_ == 0 ? start : std::min(out_.first_ns, start);
    out_.last_ns = kept_ == 0 ? end : std::max(out_.last_ns, end);
    ++out_.counts[static_cast<std::size_t>(kind)];
    if (kind == EventKind::kRange) {
      if (name.starts_with(kProfilerStep)) out_.profiled.push_back({start, end});
      if (name.starts_with(kOptimizerStep)) out_.optimized.push_back({start, end});
    }
    out_.has_shapes |= !raw.shapes.empty();
    TraceEvent event{
        .start_ns = start,
        .end_ns = end,
        .name = number_of(name),
        .link = number_or_none(kind == EventKind::kOp ? raw.sequence : raw.correlation),
        .order = kept_++,
        .kind = kind};
    if (event.is_of_device()) {
      event.thread = small_number(raw.device) << 16 | small_number(raw.stream);
    } else {
      event.thread = thread_of(raw);
      event.is_gradient = json_integer(raw.forward_thread).value_or(0) > 0;
    }
    events_.add(event);
  }

  std::uint32_t number_of(std::string_view name) {
    name = name.substr(0, kMostOfTraceName);
    if (raw_.size() >= kMostNames && raw_.find(name) == kNoNumber) {
      return shown_number_of("(names beyond the first 200,000)");
    }
    const std::uint32_t raw = raw_.number_of(name);
    if (raw == shown_.size()) shown_.push_back(shown_number_of(name));
    return shown_[raw];
  }

  // Returns the number of a name of the file, without paths and with unprintable bytes escaped.
  std::uint32_t shown_number_of(std::string_view name) {
    name = without_paths(name, path_store_);
    const bool is_plain = std::ranges::all_of(name, [](char c) { return c >= 0x20 && c < 0x7f; });
    return is_plain ? out_.names.number_of(name) : out_.names.number_of(escaped(name));
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
  Names raw_;                         // as they stand in the file
  std::vector<std::uint32_t> shown_;  // the number of each in TraceFacts::names
  std::map<std::string, std::uint32_t> threads_;
  std::uint32_t last_thread_ = 0;
  std::string store_, path_store_, thread_key_, last_key_;
};

}  // namespace

TraceFacts read_trace_events(const std::filesystem::path& path, EventOrder& events) {
  ByteStream bytes(path);
  TraceReader reader(events);
  const bool is_whole =
      read_json(bytes, "traceEvents",
                {.member = [&](std::string_view key,
                               std::string_view value) { reader.add_member(key, value); },
                 .item = [&](std::string_view item) { reader.add_event(item); }});
  return reader.finish(path, !is_whole);
}

}  // namespace tracestep
