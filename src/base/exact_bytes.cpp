#include "base/units.h"

#include <utility>

#include <fmt/format.h>

namespace tracestep {

std::string exact_bytes(std::int64_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}) {
    if (bytes % (std::int64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  }
  return fmt::format("{}B", bytes);
}

}  // namespace tracestep
