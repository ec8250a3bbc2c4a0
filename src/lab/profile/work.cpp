#include "lab/profile/work.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/ranges.h>

#include "analysis/origins.h"
#include "base/error.h"
#include "base/suggest.h"
#include "lab/measure/recorded_times.h"
#include "lab/profile/lanes.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

constexpr double kMsPerNs = 1e-6;

using Key = std::tuple<std::string, std::string, std::string, std::string>;

class Collector {
 public:
  Collector(const Profile& profile, const Ceilings& ceilings)
      : profile_(profile),
        ceilings_(ceilings),
        counted_ms_(counted_ms(profile)),
        nodes_of_(nodes_of_kernels(profile)) {}

  StepWork run() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < profile_.steps.size(); ++i) {
      const std::size_t first = next;
      while (next < profile_.launches.size() &&
             profile_.launches[next].step == static_cast<std::int32_t>(i)) {
        ++next;
      }
      add_step(std::span(profile_.launches).subspan(first, next - first));
      out_.span_ms += static_cast<double>(profile_.steps[i].span_ns()) * kMsPerNs;
    }
    finish();
    return std::move(out_);
  }

 private:
  void add_step(std::span<const ProfiledLaunch> launches) {
    longest_.assign(profile_.program.nodes.size(), nullptr);
    for (const ProfiledLaunch& l : launches) {
      if (l.node < 0) continue;
      const ProfiledLaunch*& longest = longest_[static_cast<std::size_t>(l.node)];
      if (longest == nullptr || l.duration_ns() > longest->duration_ns()) longest = &l;
    }
    std::int64_t busy_until = launches.empty() ? 0 : launches.front().start_ns;
    for (const ProfiledLaunch& l : launches) {
      const std::int64_t gap = std::max<std::int64_t>(0, l.start_ns - busy_until);
      const std::int64_t overlap = std::max<std::int64_t>(0, busy_until - l.start_ns);
      out_.overlap_ms += static_cast<double>(std::min(overlap, l.duration_ns())) * kMsPerNs;
      busy_until = std::max(busy_until, l.end_ns);
      add_launch(l, static_cast<double>(gap) * kMsPerNs);
    }
  }

  void add_launch(const ProfiledLaunch& l, double gap_ms) {
    WorkSums sums;
    sums.ms = counted_ms_[static_cast<std::size_t>(&l - profile_.launches.data())];
    sums.gap_ms = gap_ms;
    out_.kernels_ms += sums.ms;
    out_.interrupted_ms += static_cast<double>(l.duration_ns()) * kMsPerNs - sums.ms;
    out_.gaps_ms += gap_ms;
    const std::string& name = profile_.names[static_cast<std::size_t>(l.name)];
    if (l.node < 0) {
      Work& row = row_of({std::string(kOutside), "", "", name});
      row.has_node = false;
      row.sums += sums;
      row.sums.launches += 1;
      return;
    }
    if (longest_[static_cast<std::size_t>(l.node)] == &l) {
      for (NodeId id : nodes_of_[static_cast<std::size_t>(l.node)]) add_cost(id, sums);
    }
    const std::vector<Part>& parts = parts_of(l.node);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [node, origin, share] = parts[i];
      Work& row = row_of(
          {component_of(origin->path), std::string(name_of(origin->phase)), node->op->name, name});
      row.kernel_class = node->op->kernel_class;
      row.is_modelled = row.is_modelled || parts.size() > 1;
      row.sums += part_of(sums, share);
      if (i == 0) row.sums.launches += 1;
    }
  }

  // The share of a kernel's time that counts for a node and its origin; all shares add up to 1.
  struct Part {
    const Node* node;
    const Origin* origin;
    double share;
  };

  const std::vector<Part>& parts_of(NodeId id) {
    const auto [found, is_new] = parts_.try_emplace(id);
    if (!is_new) return found->second;
    const std::vector<NodeId>& nodes = nodes_of_[static_cast<std::size_t>(id)];
    double all_bytes = 0;
    for (NodeId one : nodes) all_bytes += bytes_of(one);
    for (NodeId one : nodes) {
      const Node& node = profile_.program.node(one);
      const double of_batch =
          all_bytes > 0 ? bytes_of(one) / all_bytes : 1.0 / static_cast<double>(nodes.size());
      const std::vector<double> shares = origin_shares(profile_.program, node);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        found->second.push_back({&node, &node.origins[i], of_batch * shares[i]});
      }
    }
    return found->second;
  }

  double bytes_of(NodeId id) const {
    const Cost cost = cost_of(profile_.program, profile_.program.node(id));
    return static_cast<double>(cost.bytes_read + cost.bytes_written);
  }

  static WorkSums part_of(WorkSums sums, double share) {
    for (double* value : {&sums.ms, &sums.gap_ms, &sums.flops, &sums.bytes, &sums.roof_ms,
                          &sums.roof_by_bytes_ms}) {
      *value *= share;
    }
    return sums;
  }

  void add_cost(NodeId id, WorkSums& sums) const {
    const Node& node = profile_.program.node(id);
    const Cost cost = cost_of(profile_.program, node);
    const RoofTime roof = roof_time(profile_.program, node, ceilings_);
    sums.flops += static_cast<double>(cost.flops);
    sums.bytes += static_cast<double>(cost.bytes_read + cost.bytes_written);
    sums.roof_ms += roof.ms();
    sums.roof_by_bytes_ms += roof.is_by_bytes() ? roof.ms() : 0.0;
  }

  Work& row_of(const Key& key) {
    const auto [found, is_new] = rows_.try_emplace(key, out_.rows.size());
    if (is_new) {
      const auto& [component, phase, op, kernel] = key;
      out_.rows.push_back({.component = component, .phase = phase, .op = op, .kernel = kernel});
    }
    return out_.rows[found->second];
  }

  void finish() {
    const double part =
        profile_.steps.empty() ? 0.0 : 1.0 / static_cast<double>(profile_.steps.size());
    for (double* value :
         {&out_.span_ms, &out_.kernels_ms, &out_.gaps_ms, &out_.overlap_ms, &out_.interrupted_ms}) {
      *value *= part;
    }
    out_.busy_ms = out_.kernels_ms - out_.overlap_ms;
    for (Work& row : out_.rows) {
      WorkSums& s = row.sums;
      for (double* value :
           {&s.launches, &s.ms, &s.gap_ms, &s.flops, &s.bytes, &s.roof_ms, &s.roof_by_bytes_ms}) {
        *value *= part;
      }
    }
    std::ranges::stable_sort(out_.rows, std::greater{}, [](const Work& w) { return w.sums.ms; });
  }

  const Profile& profile_;
  const Ceilings& ceilings_;
  StepWork out_;
  const std::vector<double> counted_ms_;  // of all launches
  std::map<Key, std::size_t> rows_;
  const std::vector<std::vector<NodeId>> nodes_of_;  // of the kernels of a node
  std::vector<const ProfiledLaunch*> longest_;       // by node, of the step at hand
  std::map<NodeId, std::vector<Part>> parts_;
};

// Returns the name in the model's paths for a common name of a part, as "mlp"; other names stay.
std::string in_paths(const std::string& name) {
  if (name == "attention") return std::string(scope::kAttention);
  if (name == "feed-forward" || name == "mlp") return std::string(scope::kFeedForward);
  if (name == "embedding") return std::string(scope::kEmbedding);
  return name;
}

bool is_part(std::string_view component, std::string_view name) {
  return component.starts_with(name) &&
         (component.size() == name.size() || component[name.size()] == '.');
}

}  // namespace

WorkSums& WorkSums::operator+=(const WorkSums& other) {
  launches += other.launches;
  ms += other.ms;
  gap_ms += other.gap_ms;
  flops += other.flops;
  bytes += other.bytes;
  roof_ms += other.roof_ms;
  roof_by_bytes_ms += other.roof_by_bytes_ms;
  return *this;
}

WorkSums StepWork::total() const {
  WorkSums out;
  for (const Work& row : rows) out += row.sums;
  return out;
}

std::vector<double> counted_ms(const Profile& profile) {
  std::vector<RecordedLaunch> launches;
  for (const ProfiledLaunch& l : profile.launches) {
    launches.push_back({l.step, l.node, l.name, static_cast<double>(l.duration_ns()) * kMsPerNs});
  }
  return undisturbed_ms(launches);
}

StepWork work_of(const Profile& profile, const Ceilings& ceilings) {
  return Collector(profile, ceilings).run();
}

bool is_product(const Work& work) {
  return work.has_node &&
         (work.kernel_class == KernelClass::kGemm || work.kernel_class == KernelClass::kAttention);
}

ComponentFilter::ComponentFilter(const About& where, const std::vector<std::string>& names,
                                 const Program& program) {
  std::set<std::string> known;
  for (const Node& node : program.nodes) {
    for (const Origin& origin : node.origins) {
      std::string name = component_of(origin.path);
      known.insert(name);
      for (std::size_t dot; (dot = name.rfind('.')) != std::string::npos;) {
        name.resize(dot);
        known.insert(name);
      }
    }
  }
  for (const std::string& given : names) {
    const std::string name = in_paths(given);
    if (!known.contains(name)) {
      const std::vector<std::string> all(known.begin(), known.end());
      throw Error(
          ErrorCode::kUsage, where,
          fmt::format("the model has no component \"{}\"{}", given, did_you_mean(given, all)),
          fmt::format("one of {}", fmt::join(all, ", ")));
    }
    names_.push_back(name);
  }
}

bool ComponentFilter::has(std::string_view component) const {
  return names_.empty() || std::ranges::any_of(names_, [&](const std::string& name) {
           return is_part(component, name);
         });
}

}  // namespace tracestep
