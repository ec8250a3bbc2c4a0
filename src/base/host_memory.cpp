#include "base/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tracestep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;  // less than version 1 writes for it

// The names of a control group's files, which differ between versions 1 and 2. `cached`: the rows
// of memory.stat that count memory which the system takes back when it is short of it.
struct GroupFiles {
  const char* limit;
  const char* used;
  std::vector<std::string_view> cached;
};
const GroupFiles kFirst{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
const GroupFiles kSecond{
    "memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}};

// The least limit of the control groups seen so far, and the least rest of a limit, in bytes.
struct Least {
  std::int64_t limit = kUnlimited, left = kUnlimited;
};

// Returns the number that a file begins with; nullopt if it begins with none, as with "max".
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  std::int64_t out = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  return result.ec == std::errc() ? std::optional(out) : std::nullopt;
}

// Returns the sum of the numbers in rows "NAME NUMBER" with one of these names.
std::int64_t sum_of_rows(const fs::path& path, const std::vector<std::string_view>& names) {
  std::ifstream file(path);
  std::int64_t out = 0, number = 0;
  for (std::string name; file >> name >> number;) {
    if (std::ranges::find(names, name) != names.end()) out += number;
  }
  return out;
}

void add_group(const fs::path& folder, const GroupFiles& files, Least& out) {
  const std::int64_t limit = number_in(folder / files.limit).value_or(kUnlimited);
  if (limit >= kUnlimited) return;
  const std::int64_t used = number_in(folder / files.used).value_or(0) -
                            sum_of_rows(folder / "memory.stat", files.cached);
  out.limit = std::min(out.limit, limit);
  out.left = std::min(out.left, std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used)));
}

// Lowers `out` to the limits of the control groups in `folder` and in each folder along `path`.
void add_groups(fs::path folder, const fs::path& path, const GroupFiles& files, Least& out) {
  add_group(folder, files, out);
  for (const fs::path& part : path.relative_path()) add_group(folder /= part, files, out);
}

Least least_of_groups(const fs::path& root) {
  std::string group, memory_group;  // of version 2, of version 1
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:PATH
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) group = line.substr(second + 1);
    if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      memory_group = line.substr(second + 1);
    }
  }
  Least out;
  add_groups(root / "sys/fs/cgroup", group, kSecond, out);
  add_groups(root / "sys/fs/cgroup/memory", memory_group, kFirst, out);
  return out;
}

std::int64_t available_of_kernel(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {  // NAME: NUMBER kB
    std::istringstream words(line);
    std::string name;
    std::int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

std::optional<std::int64_t> if_limited(std::int64_t bytes) {
  return bytes < kUnlimited ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> memory_limit_of_groups(const fs::path& root) {
  return if_limited(least_of_groups(root).limit);
}

std::optional<std::int64_t> available_memory(const fs::path& root) {
  return if_limited(std::min(available_of_kernel(root), least_of_groups(root).left));
}

}  // namespace tracestep
