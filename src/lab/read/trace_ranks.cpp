// Compares ranks of one job, each of which recorded itself with its own clock. A collective ends
// everywhere when the last rank has come. So the rank that is in it for the shortest time came
// last, and the others waited for it by as much as they were in it longer.
#include <algorithm>
#include <map>
#include <set>

#include "lab/measure/statistics.h"
#include "lab/read/trace_tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

struct RankRow {
  std::string file;
  std::int64_t rank = -1;
  double step_ms = 0, collective_ms = 0, waits_ms = 0;
  std::int64_t last = 0, of = 0;
};

// Returns the durations of a rank's collectives in order, by name; ranks have the names in common.
std::map<std::string, std::vector<std::int64_t>> collectives_of(const ReadTrace& trace) {
  std::map<std::string, std::vector<std::int64_t>> out;
  for (const auto& [name, ns] : trace.times.collectives) out[trace.facts.names[name]] = ns;
  return out;
}

}  // namespace

std::vector<Table> rank_tables(const std::vector<ReadTrace>& traces) {
  std::vector<RankRow> rows;
  std::vector<std::map<std::string, std::vector<std::int64_t>>> collectives;
  std::set<std::int64_t> ranks;
  for (const ReadTrace& trace : traces) {
    const auto exposed = static_cast<std::uint32_t>(WorkClass::kCollectives);
    double collective_ms = mean_of(trace.times.ms_of(PartLevel::kHidden));
    for (const Part* kind : trace.times.parts.of(PartLevel::kKind)) {
      if (kind->number == exposed) collective_ms += mean_of(kind->times.ms_of(trace.times.count()));
    }
    rows.push_back({.file = trace.facts.path.filename().string(),
                    .rank = trace.facts.rank,
                    .step_ms = trace.times.mean_step_ms(),
                    .collective_ms = collective_ms});
    ranks.insert(trace.facts.rank);
    collectives.push_back(collectives_of(trace));
  }
  if (traces.size() < 2 || ranks.size() != traces.size()) return {};
  for (const auto& [name, first] : collectives.front()) {
    std::size_t common = first.size();
    for (auto& of : collectives) {
      const auto found = of.find(name);
      common = std::min(common, found == of.end() ? 0 : found->second.size());
    }
    for (std::size_t i = 0; i < common; ++i) {
      std::size_t last = 0;
      for (std::size_t r = 1; r < rows.size(); ++r) {
        if (collectives[r][name][i] < collectives[last][name][i]) last = r;
      }
      ++rows[last].last;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        rows[r].waits_ms +=
            1e-6 * static_cast<double>(collectives[r][name][i] - collectives[last][name][i]) /
            static_cast<double>(traces[r].times.count());
        ++rows[r].of;
      }
    }
  }
  const Fields<RankRow> fields{
      {as_key(col::rank), &RankRow::rank},
      {as_key(col::file), &RankRow::file},
      {col::mean_ms, &RankRow::step_ms},
      {real_column("collective_ms", "collectives", "ms", -1, "per step, hidden ones too"),
       &RankRow::collective_ms},
      {real_column("waits_ms", "waits", "ms", -1,
                   "per step, in collectives, for the rank that came last"),
       &RankRow::waits_ms},
      {timed(real_column("last_percent", "comes last", "%", 1, "of the collectives of all ranks")),
       [](const RankRow& r) { return when(r.of > 0, percent_of(r.last, r.of)); }}};
  std::ranges::sort(rows, {}, &RankRow::rank);
  return {table_of("ranks", "Ranks, and who waits for whom", fields, rows)};
}

}  // namespace tracestep
