#include "lab/measure/elsewhere.h"

#include <algorithm>
#include <cmath>

#include "lab/measure/noise.h"

namespace tracestep {

using Row = Evidence::Row;

std::vector<Row> timed_elsewhere(const Evidence& e, const Row& row) {
  std::vector<Row> out;
  for (const char* table : {"cells", "scaling", "ways", "ladder", "steps", "clocks"}) {
    if (row.table() == table) continue;
    for (const Row& other : e.same_cell(row, table)) {
      const bool denies_its_key =
          row.has("size") && other.has("size") && row.text("size") != other.text("size");
      if (denies_its_key) continue;
      const bool has_time =
          other.has("samples_ms") || other.has("median_ms") || other.has("plain_wall_ms");
      if (has_time && other.text_or("status", "ok") == "ok") out.push_back(other);
    }
  }
  return out;
}

Quantity time_of(const Row& row) {
  if (row.has("samples_ms")) return median_in(row, "samples_ms");
  if (row.has("plain_wall_ms")) return row.get("plain_wall_ms");
  return plus_minus(row.get("median_ms"), row.get("std_ms"));
}

Quantity median_anywhere(const Evidence& e, const Row& row) {
  const Quantity here = median_in(row, "samples_ms");
  std::optional<Quantity> farthest;
  for (const Row& other : timed_elsewhere(e, row)) {
    const Quantity off = time_of(other) - here;
    if (!farthest || std::abs(off.value) > std::abs(farthest->value)) farthest = off;
  }
  return farthest ? plus_minus(here, *farthest) : here;
}

Text at_other_times(const Evidence& e, const Row& row, const Text& name) {
  std::vector<Text> list;
  for (const Row& other : timed_elsewhere(e, row)) list.push_back(duration(time_of(other)));
  if (list.empty()) return {};
  return " " + say("{} {} took {}.", {at_times(list.size()), name, join(list, ", ")});
}

Text at_times(std::size_t count) {
  return count == 1 ? "At another time in this study" : "At other times in this study";
}

}  // namespace tracestep
