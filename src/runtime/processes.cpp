#include "runtime/processes.h"

#include <algorithm>

#include "runtime/rank_error.h"

namespace tracestep {

void check_same(Processes& processes, std::string_view what, std::uint64_t value) {
  const std::vector<std::uint64_t> values = processes.exchange(value);
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    if (values[rank] == values[0]) continue;
    throw RankError(static_cast<std::int64_t>(rank),
                    fmt::format("{} differs from that of rank 0", what),
                    "start all ranks with the same program, options and files");
  }
}

bool holds_in_any(Processes* processes, bool own) {
  if (processes == nullptr) return own;
  return std::ranges::count(processes->exchange(own ? 1 : 0), 1u) > 0;
}

bool holds_in_all(Processes* processes, bool own) {
  return !holds_in_any(processes, !own);
}

}  // namespace tracestep
