// Parses PYTORCH_CUDA_ALLOC_CONF: keys and values with colons, commas between them, and one list in
// brackets.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/units.h"
#include "lab/pytorch/caching_allocator.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMegabyte = std::int64_t{1} << 20;
constexpr std::string_view kIgnored[] = {"backend",
                                         "release_lock_on_cudamalloc",
                                         "pinned_use_cuda_host_register",
                                         "pinned_num_register_threads",
                                         "pinned_use_background_threads",
                                         "graph_capture_record_stream_reuse",
                                         "pinned_reserve_segment_size_mb"};
constexpr std::string_view kKnown[] = {"expandable_segments",          "max_split_size_mb",
                                       "garbage_collection_threshold", "roundup_power2_divisions",
                                       "max_non_split_rounding_mb",    "large_segment_size_mb"};

// Reads divisions from sizes in MiB on, "[256:1,512:2,>:8]"; the first also count below its size.
void read_divisions(const About& where, std::string_view text, AllocatorSettings& out) {
  auto& divisions = out.roundup_power2_divisions;
  const auto count = [&](std::string_view value) {
    const std::int64_t found = parse_int(where, value, 0, std::int64_t{1} << 30);
    if (found > 0 && !std::has_single_bit(static_cast<std::uint64_t>(found))) {
      fail_usage(where, "{} divisions are no power of 2", found);
    }
    return found;
  };
  if (!text.starts_with('[')) return divisions.fill(count(text));
  text = text.substr(1, text.size() - 2);
  std::size_t last = 0;
  bool is_first = true;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::size_t colon = one.find(':');
    if (colon == one.npos) fail_usage(where, "{:?} is no size and its divisions", one);
    const std::int64_t value = count(one.substr(colon + 1));
    if (one.substr(0, colon) == ">") {
      std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(last) + 1, divisions.end(), value);
      continue;
    }
    const std::int64_t mib = parse_int(where, one.substr(0, colon), 1, std::int64_t{1} << 40);
    if (!std::has_single_bit(static_cast<std::uint64_t>(mib))) {
      fail_usage(where, "{} MiB are no power of 2", mib);
    }
    const auto power =
        static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(mib)) - 1);
    const std::size_t at = std::min(power, divisions.size() - 1);
    if (is_first) std::fill_n(divisions.begin(), at, value);
    is_first = false;
    divisions[at] = value;
    last = at;
  }
}

// Sets a key. False: there is no such key.
bool set(const About& where, std::string_view key, std::string_view value, AllocatorSettings& out) {
  const auto mib = [&](std::int64_t least) {
    return kMegabyte * parse_int(where, value, least, std::int64_t{1} << 24);
  };
  if (key == "expandable_segments") {
    if (value != "True" && value != "False") {
      fail_usage(where, "expandable_segments is True or False, not {:?}", value);
    }
    out.expandable_segments = value == "True";
  } else if (key == "max_split_size_mb") {
    out.max_split_bytes = mib(21);
  } else if (key == "max_non_split_rounding_mb") {
    out.non_split_rounding_bytes = mib(21);
  } else if (key == "large_segment_size_mb") {
    out.large_segment_bytes = mib(2);
  } else if (key == "garbage_collection_threshold") {
    out.gc_threshold = parse_real(where, value, 0.0, 1.0);
  } else if (key == "roundup_power2_divisions") {
    read_divisions(where, value, out);
  } else {
    return std::ranges::find(kIgnored, key) != std::end(kIgnored);
  }
  return true;
}

}  // namespace

AllocatorSettings parse_allocator_settings(const About& where, std::string_view text) {
  AllocatorSettings out;
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    if (colon == text.npos) fail_usage(where, "{:?} is no key with a value", text);
    const std::string_view key = text.substr(0, colon), rest = text.substr(colon + 1);
    std::size_t end = rest.find(',');
    if (rest.starts_with('[')) {
      end = rest.find(']');
      if (end == rest.npos) fail_usage(where, "the list of {} has no end", key);
      ++end;
    }
    const std::string_view value = rest.substr(0, end);
    if (!set(where, key, value, out)) {
      throw Error(ErrorCode::kUsage, where, fmt::format("the allocator has no setting {:?}", key),
                  fmt::format("it has {}", fmt::join(kKnown, ", ")));
    }
    const std::size_t used = colon + 1 + value.size();
    if (used < text.size() && text[used] != ',')
      fail_usage(where, "a comma is missing after {}", key);
    text.remove_prefix(std::min(text.size(), used + 1));
  }
  return out;
}

}  // namespace tracestep
