// Events are sorted into what they are by their category, whose spelling differs between versions:
// "kernel" and "Kernel". Times are thousandths of a microsecond, kept whole.
#include "lab/read/trace_file.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "lab/read/object_stream.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostOfTraceName = 1000;  // bytes of a name that are kept
constexpr std::string_view kModulePrefix = "nn.Module: ";

enum class EventKind { kOther, kOp, kCall, kKernel, kCopy, kAnnotation, kPython };

struct CategoryKind {
  std::string_view category;
  EventKind kind;
};
constexpr CategoryKind kCategoryKinds[] = {
    {"cpu_op", EventKind::kOp},
    {"operator", EventKind::kOp},
    {"user_annotation", EventKind::kAnnotation},
    {"cuda_runtime", EventKind::kCall},
    {"cuda_driver", EventKind::kCall},
    {"runtime", EventKind::kCall},
    {"xpu_runtime", EventKind::kCall},
    {"kernel", EventKind::kKernel},
    {"gpu_memcpy", EventKind::kCopy},
    {"gpu_memset", EventKind::kCopy},
    {"memcpy", EventKind::kCopy},
    {"memset", EventKind::kCopy},
    {"python_function", EventKind::kPython},
};

bool is_same_word(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::ranges::equal(a, lower, [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

EventKind kind_of(std::string_view category) {
  for (const CategoryKind& known : kCategoryKinds) {
    if (is_same_word(category, known.category)) return known.kind;
  }
  return EventKind::kOther;
}

// The members of an event that say anything here, as their texts.
struct RawEvent {
  std::string_view phase, category, name, start, duration, process, thread, args;
};

struct RawArgs {
  std::string_view external, correlation, sequence, forward_thread, stream, device, collective,
      collective_name;
};

RawEvent raw_event(std::string_view text, bool& is_whole) {
  RawEvent out;
  is_whole = for_each_json_member(text, [&](std::string_view key, std::string_view value) {
    if (key == "ph") out.phase = value;
    if (key == "cat") out.category = value;
    if (key == "name") out.name = value;
    if (key == "ts") out.start = value;
    if (key == "dur") out.duration = value;
    if (key == "pid") out.process = value;
    if (key == "tid") out.thread = value;
    if (key == "args") out.args = value;
  });
  return out;
}

RawArgs raw_args(std::string_view text, bool& has_shapes) {
  RawArgs out;
  for_each_json_member(text, [&](std::string_view key, std::string_view value) {
    if (key == "External id" || key == "external id") out.external = value;
    if (key == "correlation") out.correlation = value;
    if (key == "Sequence number") out.sequence = value;
    if (key == "Fwd thread id") out.forward_thread = value;
    if (key == "stream") out.stream = value;
    if (key == "device") out.device = value;
    if (key == "Seq") out.collective = value;
    if (key == "Collective name") out.collective_name = value;
    if (key == "Input Dims" || key == "Input dims") has_shapes = true;
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

class RecordingBuilder {
 public:
  void add_event(std::string_view text) {
    ++out_.events;
    bool is_whole = false;
    const RawEvent raw = raw_event(text, is_whole);
    if (!is_whole) {
      ++out_.unreadable;
      return;
    }
    if (unquoted(raw.phase) != "X") return;
    const EventKind kind = kind_of(unquoted(raw.category));
    if (kind == EventKind::kOther) return;
    const auto start = json_thousandths(raw.start), length = json_thousandths(raw.duration);
    std::int64_t end = 0;
    if (!start || !length || *length < 0 || __builtin_add_overflow(*start, *length, &end)) {
      ++out_.unreadable;
      return;
    }
    std::string_view name = json_text(raw.name, store_);
    if (kind == EventKind::kPython) {
      out_.has_stacks = true;
      if (!name.starts_with(kModulePrefix)) return;
      name.remove_prefix(kModulePrefix.size());
    }
    widen(*start, end);
    keep(kind, raw, name, *start, end);
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

  TraceRecording finish(const std::filesystem::path& path, bool is_cut) {
    out_.path = path;
    out_.is_cut = is_cut;
    const auto by_place = [](const HostSlice& a, const HostSlice& b) {
      return std::tie(a.thread, a.start_ns, b.end_ns) < std::tie(b.thread, b.start_ns, a.end_ns);
    };
    // Stable: of two that begin and end together, the outer one stands first in the file.
    std::ranges::stable_sort(out_.ops, by_place);
    std::ranges::stable_sort(out_.calls, by_place);
    std::ranges::stable_sort(out_.modules, by_place);
    std::ranges::stable_sort(out_.annotations, by_place);
    std::ranges::sort(out_.kernels, {}, [](const DeviceSlice& k) {
      return std::tuple(k.start_ns, k.end_ns, k.device, k.stream);
    });
    return std::move(out_);
  }

  bool is_empty() const {
    return out_.ops.empty() && out_.kernels.empty() && out_.calls.empty() &&
           out_.annotations.empty();
  }

 private:
  void widen(std::int64_t start, std::int64_t end) {
    const bool is_first = is_empty() && out_.modules.empty();
    out_.first_ns = is_first ? start : std::min(out_.first_ns, start);
    out_.last_ns = is_first ? end : std::max(out_.last_ns, end);
  }

  void keep(EventKind kind, const RawEvent& raw, std::string_view name, std::int64_t start,
            std::int64_t end) {
    const RawArgs args = raw_args(raw.args, out_.has_shapes);
    const std::uint32_t number = out_.names.number_of(shown(name));
    if (kind == EventKind::kKernel || kind == EventKind::kCopy) {
      out_.kernels.push_back({.start_ns = start,
                              .end_ns = end,
                              .name = number,
                              .correlation = number_or_none(args.correlation),
                              .external = number_or_none(args.external),
                              .device = small_number(args.device),
                              .stream = small_number(args.stream),
                              .is_copy = kind == EventKind::kCopy,
                              .collective = number_or_none(args.collective)});
      return;
    }
    const HostSlice slice{start, end, number, thread_of(raw)};
    if (kind == EventKind::kOp) {
      HostOp op{slice, number_or_none(args.external), number_or_none(args.sequence), false};
      op.is_gradient = json_integer(args.forward_thread).value_or(0) > 0;
      out_.ops.push_back(op);
    } else if (kind == EventKind::kCall) {
      out_.calls.push_back({slice, number_or_none(args.correlation)});
    } else {
      (kind == EventKind::kPython ? out_.modules : out_.annotations).push_back(slice);
    }
  }

  // Names come from outside: what a terminal or a page cannot show is made visible.
  std::string_view shown(std::string_view name) {
    name = name.substr(0, kMostOfTraceName);
    const bool is_plain = std::ranges::all_of(name, [](char c) { return c >= 0x20 && c < 0x7f; });
    if (is_plain) return name;
    return escaped_ = escaped(name);
  }

  std::uint32_t thread_of(const RawEvent& raw) {
    thread_key_.assign(unquoted(raw.process)).append("/").append(unquoted(raw.thread));
    if (last_thread_ < out_.threads.size() && out_.threads[last_thread_] == thread_key_) {
      return last_thread_;
    }
    const auto [found, is_new] =
        threads_.emplace(thread_key_, static_cast<std::uint32_t>(out_.threads.size()));
    if (is_new) out_.threads.push_back(thread_key_);
    return last_thread_ = found->second;
  }

  TraceRecording out_;
  std::map<std::string, std::uint32_t> threads_;
  std::uint32_t last_thread_ = 0;
  std::string store_, escaped_, thread_key_;
};

}  // namespace

TraceRecording read_recording(const std::filesystem::path& path) {
  ByteStream bytes(path);
  const std::string where = path.filename().string();
  RecordingBuilder builder;
  const ObjectStreamEnd end = read_objects(
      bytes, "traceEvents",
      {.member = [&](std::string_view key,
                     std::string_view value) { builder.add_member(key, value, where); },
       .item = [&](std::string_view item) { builder.add_event(item); }});
  if (builder.is_empty()) {
    throw Error(ErrorCode::kInput, where, "it has no ops, kernels or ranges of torch.profiler",
                "a trace by export_chrome_trace() or a memory snapshot is read");
  }
  return builder.finish(path, end.is_cut);
}

}  // namespace tracestep
