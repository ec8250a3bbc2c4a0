#include "exec/step_ranges.h"

#include "analysis/origins.h"

namespace tracestep {

StepRanges::StepRanges(RangeSink& sink, const Program& program) : sink_(sink) {
  for (const Node& node : program.nodes) {
    const Origin origin = node.origins.empty() ? Origin{} : node.origins.front();
    places_.push_back({sink_.register_name(name_of(origin.phase)),
                       sink_.register_name(component_of(origin.path))});
  }
}

void StepRanges::enter(NodeId node) {
  const Place next = places_[static_cast<std::size_t>(node)];
  if (next.phase == open_.phase && next.component == open_.component) return;
  if (next.phase != open_.phase) {
    leave();
    sink_.push(next.phase);
  } else if (open_.component != kNone) {
    sink_.pop();
  }
  sink_.push(next.component);
  open_ = next;
}

void StepRanges::leave() {
  if (open_.component != kNone) sink_.pop();
  if (open_.phase != kNone) sink_.pop();
  open_ = {};
}

}  // namespace tracestep
