#include "lab/profile/lanes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lab/profile/intervals.h"
#include "lab/profile/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr double kMsPerNs = 1e-6;

using Launches = std::vector<ProfiledLaunch>;

// Returns the launches, each of which ends after the time that counts for it (counted_ms()).
Launches counted_launches(const Profile& p) {
  Launches out = p.launches;
  const std::vector<double> ms = counted_ms(p);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].end_ns = out[i].start_ns + std::llround(ms[i] / kMsPerNs);
  }
  return out;
}

// Returns the moments at which any of the launches runs for which `is_in` holds.
template <class IsIn>
Intervals moments_of(const Launches& launches, IsIn&& is_in) {
  Intervals out;
  for (const ProfiledLaunch& l : launches) {
    if (is_in(l)) out.push_back({l.start_ns, l.end_ns});
  }
  return united(std::move(out));
}

double per_step_ms(const Profile& p, std::int64_t ns) {
  return static_cast<double>(ns) * kMsPerNs / static_cast<double>(p.steps.size());
}

std::string phase_of(const Profile& p, const ProfiledLaunch& l) {
  return l.node < 0 ? std::string(kOutside)
                    : std::string(name_of(p.program.node(l.node).origin().phase));
}

// True for a kernel that communicates; those that only copy a rank's own part wait for nobody.
bool is_collective(const Profile& p, const ProfiledLaunch& l) {
  if (l.node < 0) return false;
  const OpDef& op = *p.program.node(l.node).op;
  return op.kernel_class == KernelClass::kCollective && has_lane(op);
}

bool is_traced(const Profile& p) {
  return std::ranges::any_of(p.launches, [](const ProfiledLaunch& l) { return l.activity >= 0; });
}

}  // namespace

int lane_of(const Profile& profile, const ProfiledLaunch& launch) {
  const bool is_known = launch.node >= 0 && !profile.turns.empty();
  return is_known ? profile.turns[static_cast<std::size_t>(launch.node)].lane : 0;
}

std::vector<std::vector<NodeId>> nodes_of_kernels(const Profile& profile) {
  std::vector<std::vector<NodeId>> out(profile.program.nodes.size());
  std::vector<NodeId> batch;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    const bool runs = launches(profile.program, profile.program.node(node));
    if (profile.turns.empty() || !runs) {
      out[i] = {node};
      continue;
    }
    const Turn& turn = profile.turns[i];
    if (turn.opens_batch) batch.clear();
    batch.push_back(node);
    out[i] = turn.closes_batch ? batch : std::vector{node};
  }
  return out;
}

std::vector<LaneTime> lane_times(const Profile& p) {
  std::set<int> lanes;
  std::map<std::pair<int, std::string>, double> launches;
  for (const ProfiledLaunch& l : p.launches) {
    lanes.insert(lane_of(p, l));
    launches[{lane_of(p, l), phase_of(p, l)}] += 1;
  }
  std::vector<LaneTime> out;
  if (lanes.size() < 2 || !is_traced(p)) return out;
  const Launches counted = counted_launches(p);
  for (const auto& [key, count] : launches) {
    const int lane = key.first;
    const std::string& phase = key.second;
    const Intervals own = moments_of(counted, [&](const ProfiledLaunch& l) {
      return lane_of(p, l) == lane && phase_of(p, l) == phase;
    });
    const Intervals others =
        moments_of(counted, [&](const ProfiledLaunch& l) { return lane_of(p, l) != lane; });
    out.push_back({.lane = lane,
                   .phase = phase,
                   .launches = count / static_cast<double>(p.steps.size()),
                   .ms = per_step_ms(p, length_ns(own)),
                   .hidden_ms = per_step_ms(p, common_ns(own, others))});
  }
  return out;
}

std::optional<Communication> communication_of(const Profile& p) {
  const auto is_one = [&](const ProfiledLaunch& l) { return is_collective(p, l); };
  if (std::ranges::none_of(p.launches, is_one)) return std::nullopt;
  const Launches counted = counted_launches(p);
  const Intervals own = moments_of(counted, is_one);
  const Intervals others = moments_of(counted, [&](const ProfiledLaunch& l) { return !is_one(l); });
  const double ms = per_step_ms(p, length_ns(own));
  if (is_traced(p)) return Communication{ms, ms - per_step_ms(p, common_ns(own, others))};
  return Communication{ms, std::max(0.0, p.plain.span_ms - per_step_ms(p, length_ns(others)))};
}

std::vector<double> busy_ms_by_step(const Profile& p) {
  std::vector<double> out;
  for (std::int32_t step = 0; step < static_cast<std::int32_t>(p.steps.size()); ++step) {
    const Intervals moments =
        moments_of(p.launches, [&](const ProfiledLaunch& l) { return l.step == step; });
    out.push_back(static_cast<double>(length_ns(moments)) * kMsPerNs);
  }
  return out;
}

Table lane_table(const ProfiledCell& cell) {
  const auto ms = [](const char* name, const char* title, const char* text, auto get) {
    return Field<LaneTime>{real_column(name, title, "ms", 4, text), get};
  };
  const Fields<LaneTime> fields = {
      {int_column("lane", "", "0: the step's own order; 1 and 2: what runs beside it"),
       &LaneTime::lane},
      {col::phase, &LaneTime::phase},
      {as_following(real_column("launches", "", "", 0, "in one step")), &LaneTime::launches},
      ms("ms", "busy", "in which its kernels run", &LaneTime::ms),
      ms("hidden_ms", "hidden", "of it: kernels of the other lane run too", &LaneTime::hidden_ms),
      ms("exposed_ms", "exposed", "of it: none does", &LaneTime::exposed_ms)};
  return table_of("lanes", "What runs beside what", fields, lane_times(cell.profile));
}

}  // namespace tracestep
