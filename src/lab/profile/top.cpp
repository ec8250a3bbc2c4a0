// Tables of the kernels of one step that take the most time, as a profiler's list shows them, by
// part of the model and op.
#include <algorithm>
#include <map>

#include "lab/measure/statistics.h"
#include "lab/profile/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostRows = 8;

// An op in a part of the model, its phases and kernels added up.
struct Spot {
  std::string part, op;
  WorkSums sums;
};

std::vector<Spot> spots_of(const ProfiledCell& cell, const ComponentFilter& filter) {
  std::map<std::pair<std::string, std::string>, WorkSums> sums;
  for (const Work& w : cell.work.rows) {
    if (filter.has(w.component)) sums[{w.component, w.has_node ? w.op : w.kernel}] += w.sums;
  }
  std::vector<Spot> out;
  for (auto& [name, sum] : sums) out.push_back({name.first, name.second, sum});
  std::ranges::stable_sort(out, std::greater{}, [](const Spot& p) { return p.sums.ms; });
  return out;
}

Fields<Spot> spot_fields(double kernels_ms) {
  using P = const Spot&;
  return {{col::part("model path, layers added up"), &Spot::part},
          {col::op("what it computes"), &Spot::op},
          {as_following(real_column("launches", "calls", "", 0, "of kernels, in one step")),
           [](P p) { return p.sums.launches; }},
          {col::ms("of all its kernels in one step"), [](P p) { return p.sums.ms; }},
          {timed(with_digits(1, col::share_percent("of the time of all kernels"))),
           [kernels_ms](P p) { return percent_of(p.sums.ms, kernels_ms); }}};
}

}  // namespace

Table top_table(const ProfiledCell& cell, const ComponentFilter& filter) {
  std::vector<Spot> spots = spots_of(cell, filter);
  const std::size_t count = spots.size();
  WorkSums rest;
  for (std::size_t i = kMostRows; i < count; ++i) rest += spots[i].sums;
  spots.resize(std::min(count, kMostRows));
  Table out = table_of("top", "Where the kernels of one step take the most time",
                       spot_fields(cell.work.kernels_ms), spots);
  if (count > kMostRows) {
    out.notes.push_back(fmt::format("{} more take {:.3f} ms, {:.1f} %: the table matrix has them",
                                    count - kMostRows, rest.ms,
                                    percent_of(rest.ms, cell.work.kernels_ms)));
  }
  return out;
}

}  // namespace tracestep
