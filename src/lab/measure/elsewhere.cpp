#include "lab/measure/elsewhere.h"

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

}  // namespace tracestep
