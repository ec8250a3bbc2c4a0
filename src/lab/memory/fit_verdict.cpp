#include "lab/memory/fit_verdict.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/memory/advice.h"

namespace tracestep {
namespace {

std::int64_t needed_bytes(const MemoryCell& cell) {
  return cell.accounted ? cell.accounted->bytes : cell.run.predicted_peak_bytes;
}

// "; with --attention flash it would: 69.80 GiB"; empty when nothing helps.
std::string smallest_remedy(const MemoryCell& cell, std::int64_t limit) {
  if (cell.accounted) return {};
  const std::vector<Remedy> found = remedies(cell, limit);
  if (found.empty()) return "; no smaller batch, context or precision that was tried fits either";
  return fmt::format("; with {} it fits: {}", found.front().command,
                     format_bytes(found.front().peak_bytes));
}

}  // namespace

bool runs_out(const MemoryCell& cell) {
  const std::int64_t limit = cell.limit_bytes;
  return cell.run.status == Status::kOutOfMemory ||
         (limit > 0 && cell.run.predicted_peak_bytes > limit);
}

std::string fit_verdict(std::span<const MemoryCell> cells, std::int64_t limit) {
  const auto fitting = std::ranges::count_if(cells, [limit](const MemoryCell& cell) {
    return cell.run.status == Status::kOk && needed_bytes(cell) <= limit;
  });
  const std::string limited = format_bytes(limit);
  if (cells.size() > 1)
    return fmt::format("{} of {} steps fit in {}", fitting, cells.size(), limited);
  const std::int64_t peak = needed_bytes(cells[0]);
  return fmt::format("{}: the peak is {}, {} {} the limit of {}{}",
                     fitting == 1 ? "It fits" : "It does not fit", format_bytes(peak),
                     format_bytes(std::abs(peak - limit)), peak > limit ? "above" : "below",
                     limited, fitting == 1 ? "" : smallest_remedy(cells[0], limit));
}

}  // namespace tracestep
