#include "lab/predict/kernel_work.h"

#include <algorithm>
#include <fstream>
#include <map>

namespace tracestep {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

// Bytes by level; instruction caches are left out.
std::map<int, std::int64_t> levels(const std::filesystem::path& folder) {
  std::map<int, std::int64_t> out;
  for (int index = 0; index < 8; ++index) {
    const std::filesystem::path cache = folder / fmt::format("index{}", index);
    int level = 0;
    std::int64_t kib = 0;
    std::string type;
    std::ifstream(cache / "level") >> level;
    std::ifstream(cache / "size") >> kib;  // "1024K"
    std::ifstream(cache / "type") >> type;
    if (level > 0 && kib > 0 && type != "Instruction") out[level] = kib * kKiB;
  }
  return out;
}

}  // namespace

CacheSizes cache_sizes(const DeviceTraits& traits, const std::filesystem::path& root) {
  if (!traits.shares_kernels_among_threads()) return {.shared_bytes = 32 * kMiB};
  std::map<int, std::int64_t> found = levels(root / "sys/devices/system/cpu/cpu0/cache");
  const std::int64_t second = found.contains(2) ? found[2] : kMiB;
  const std::int64_t third = found.contains(3) ? found[3] : 8 * kMiB;
  return {second * std::max(1, traits.threads), third};
}

}  // namespace tracestep
