#include "lab/predict/launch_sum.h"

#include <algorithm>

#include "analysis/origins.h"
#include "base/indexed.h"

namespace tracestep {

bool has_lanes(const Program& program) {
  return std::ranges::any_of(program.nodes, [](const Node& node) {
    return node.op->kernel_class == KernelClass::kCollective ||
           (has_lane(*node.op) && node.attrs.integer("lane") != 0);
  });
}

void PartSums::add(const Origin& origin, double us) {
  const auto [found, is_new] =
      index_.try_emplace({origin.phase, component_of(origin.path)}, parts_.size());
  if (is_new) parts_.push_back({origin.phase, found->first.second, 0.0});
  parts_[found->second].ms += us * 1e-3;
}

LaunchSum::LaunchSum(const Program& program, const std::optional<Link>& link,
                     const Between& between)
    : program_(program),
      link_(link),
      between_(between),
      us_(program.nodes.size(), 0.0),
      paces_{1.0, 1 / (1 + between.host_spread), 1 + between.host_spread} {
  if (has_lanes(program)) turns_ = turns_of(program, plan_buffers(program));
}

std::optional<double> LaunchSum::collective_us(NodeId id) const {
  const Node& node = program_.node(id);
  if (!link_ || node.op->kernel_class != KernelClass::kCollective) return std::nullopt;
  return link_->us(program_, node, turns_[at(id)].opens_batch);
}

void LaunchSum::add(NodeId id, double us) {
  const Node& node = program_.node(id);
  parts_.add(node.origin(), us);
  PredictedClass& of_class = classes_[{node.origin().phase, node.op->kernel_class}];
  of_class.ms += us * 1e-3;
  ++of_class.launches;
  us_[at(id)] = us;
  sum_us_ += us;
  ++launches_;
  // A step can wait for the host in its short kernels and for the device in its optimizer's.
  const double issue_us = between_.issue_us(node.op->kernel_class);
  issue_us_ += issue_us;
  for (std::size_t i = 0; i < std::size(queues_); ++i) {
    queues_[i].add(issue_us * paces_[i], between_.until_next_us(us));
  }
}

std::array<double, 3> LaunchSum::ended_us() const {
  std::array<double, 3> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = queues_[i].ended_us();
  return out;
}

StepTime LaunchSum::sum() {
  StepTime out;
  out.kernels_ms = sum_us_ * 1e-3;
  out.launches = launches_;
  out.parts = parts_.take();
  for (const auto& [key, sum] : classes_) {
    out.classes.push_back({key.first, key.second, sum.ms, sum.launches});
  }
  if (turns_.empty()) return out;
  const Timeline timeline = timeline_of(program_, turns_, us_);
  out.beside_ms = (sum_us_ - timeline.span) * 1e-3;
  out.collectives_ms = timeline.collectives * 1e-3;
  out.exposed_ms = timeline.exposed * 1e-3;
  return out;
}

}  // namespace tracestep
