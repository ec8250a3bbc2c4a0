// Reads a recording of a step that Python wrote; the file may be hostile.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "lab/pytorch/allocation_list.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20;
constexpr std::int64_t kMaxBlockBytes = std::int64_t{1} << 45, kMaxAllBytes = std::int64_t{1} << 52;
constexpr std::size_t kMaxNameBytes = 300;
constexpr std::int64_t kFormat = 1, kParts = 5;

class Reader {
 public:
  Reader(const Json& root, const std::string& where) : root_(root), where_(where) {}

  AllocationList read() {
    if (const std::int64_t format = root_.at("format").as_int(); format != kFormat) {
      fail_input(where_, "its format is {}; this program reads {}", format, kFormat);
    }
    out_.torch = root_.at("torch").as_string().substr(0, 40);
    out_.is_recorded = true;
    out_.names.clear();
    for (const Json& name : root_.at("names").items()) {
      out_.names.push_back(name.as_string().substr(0, kMaxNameBytes));
    }
    if (out_.names.empty() || !out_.names[0].empty()) fail_input(where_, "names[0] is not \"\"");
    const Json::Array& events = root_.at("events").items();
    for (; at_ < events.size(); ++at_) read_event(events[at_].items());
    for (const Json& step : root_.at("steps").items()) {
      const std::int64_t first = step.as_int();
      const bool is_behind = out_.steps.empty() || first >= std::ssize(out_.events) ||
                             static_cast<std::size_t>(first) >= out_.steps.back();
      if (first < 0 || first > std::ssize(out_.events) || !is_behind) {
        fail_input(where_, "a step begins at event {} of {}", first, out_.events.size());
      }
      out_.steps.push_back(static_cast<std::size_t>(first));
    }
    return std::move(out_);
  }

 private:
  void read_event(const Json::Array& row) {
    if (row.size() == 1) {
      const std::int64_t freed = row[0].as_int();
      if (freed >= 0 || freed < -kMaxAllBytes) fail_input(where_, "event {} frees {}", at_, freed);
      return read_death(-freed);
    }
    if (row.size() != 6) fail_input(where_, "event {} has {} numbers, not 1 or 6", at_, row.size());
    const std::int64_t number = row[0].as_int(), bytes = row[1].as_int();
    if (bytes != kLibraryWorkspace && (bytes < 1 || bytes > kMaxBlockBytes)) {
      fail_input(where_, "event {} allocates {} bytes", at_, bytes);
    }
    total_ += std::max<std::int64_t>(0, bytes);
    if (total_ > kMaxAllBytes) fail_input(where_, "event {}: more bytes than any step has", at_);
    if (!alive_.try_emplace(number, out_.blocks).second) {
      fail_input(where_, "event {}: block {} is there already", at_, number);
    }
    out_.events.push_back({.block = out_.blocks++,
                           .part = static_cast<PytorchPart>(below(row[5], kParts, "phase")),
                           .site = below(row[2], std::ssize(out_.names), "name"),
                           .module = below(row[3], std::ssize(out_.names), "name"),
                           .op = below(row[4], std::ssize(out_.names), "name"),
                           .bytes = bytes});
  }
  void read_death(std::int64_t number) {
    const auto found = alive_.find(number);
    if (found == alive_.end()) fail_input(where_, "event {}: there is no block {}", at_, number);
    out_.events.push_back({.block = found->second});
    alive_.erase(found);
  }
  std::uint32_t below(const Json& value, std::int64_t end, const char* what) {
    const std::int64_t number = value.as_int();
    if (number < 0 || number >= end) {
      fail_input(where_, "event {} names {} {}, of {}", at_, what, number, end);
    }
    return static_cast<std::uint32_t>(number);
  }

  const Json& root_;
  const std::string& where_;
  AllocationList out_;
  std::unordered_map<std::int64_t, std::uint32_t> alive_;
  std::int64_t total_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

AllocationList recorded_step_from(const std::string& text, const std::string& where) {
  try {
    const Json root = Json::parse(text, where);
    return Reader(root, where).read();
  } catch (const Error& error) {  // one about a value's type does not name the file
    throw Error(error.code(), where, error.message(), error.hint());
  }
}

AllocationList read_recorded_step(const std::filesystem::path& path) {
  return recorded_step_from(read_text_file(path, "recording", kMaxFileBytes), path.string());
}

}  // namespace tracestep
