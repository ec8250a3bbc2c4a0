#include "exec/plan_guard.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/op_def.h"

namespace tracestep {
namespace {

constexpr std::byte kDead{0xFF};  // NaN in every floating dtype, -1 in the integer ones

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool share_bytes(const Plan::Place& a, const Plan::Place& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

PlanGuard::PlanGuard(const Program& program, const Plan& plan, Device& device, std::byte* arena)
    : program_(program), plan_(plan), device_(device), arena_(arena) {
  restart();
}

void PlanGuard::restart() {
  is_living_.assign(plan_.places.size(), false);
  image_.assign(at(plan_.arena_bytes), kDead);
  now_.resize(image_.size());
  if (!image_.empty()) device_.copy_in(arena_, image_.data(), plan_.arena_bytes);
}

void PlanGuard::before(const Launch& launch) {
  for (std::size_t i = 0; i < plan_.places.size(); ++i) {
    const Plan::Place& place = plan_.places[i];
    if (place.node != launch.node) continue;
    for (std::size_t j = 0; j < plan_.places.size(); ++j) {
      if (!is_living_[j] || !share_bytes(place, plan_.places[j])) continue;
      fail(launch.node, fmt::format("{} overlaps {}, which is still needed", describe(place),
                                    describe(plan_.places[j])));
    }
    is_living_[i] = true;
  }
}

void PlanGuard::after(const Launch& launch) {
  device_.synchronize();
  if (!now_.empty()) device_.copy_out(now_.data(), arena_, plan_.arena_bytes);
  const int workspace = plan_.workspace_of[at(launch.node)];
  take_over(workspace);
  for (const Slot& slot : launch.outputs) {
    if (slot.buffer >= 0) take_over(plan_.place_of_buffer[at(slot.buffer)]);
  }
  if (now_ != image_) fail_changed(launch.node);
  bury(workspace);
  for (int buffer : plan_.buffer_plan.freed_after[at(launch.node)]) {
    bury(plan_.place_of_buffer[at(buffer)]);
  }
}

void PlanGuard::take_over(int index) {
  if (index < 0) return;
  const Plan::Place& place = plan_.places[at(index)];
  std::copy_n(now_.begin() + place.offset, place.bytes, image_.begin() + place.offset);
}

void PlanGuard::bury(int index) {
  if (index < 0) return;
  const Plan::Place& place = plan_.places[at(index)];
  is_living_[at(index)] = false;
  std::fill_n(image_.begin() + place.offset, place.bytes, kDead);
  device_.copy_in(arena_ + place.offset, image_.data() + place.offset, place.bytes);
}

void PlanGuard::fail_changed(NodeId node) const {
  const auto first = std::ranges::mismatch(now_, image_).in1 - now_.begin();
  auto last = static_cast<std::ptrdiff_t>(now_.size()) - 1;
  while (now_[at(last)] == image_[at(last)]) --last;
  fail(node, "wrote " + describe(first, last));
}

std::string PlanGuard::describe(std::int64_t first, std::int64_t last) const {
  std::string places;
  for (std::size_t i = 0; i < plan_.places.size(); ++i) {
    const Plan::Place& place = plan_.places[i];
    if (!share_bytes({.bytes = last - first + 1, .offset = first}, place)) continue;
    if (!places.empty()) places += "; ";
    places += describe(place) + (is_living_[i] ? ", which is still needed" : ", which is dead");
  }
  return fmt::format("bytes {} to {} of the arena: {}", first, last,
                     places.empty() ? "no buffer's" : places);
}

std::string PlanGuard::describe(const Plan::Place& place) const {
  const auto of_node = [&](NodeId id) {
    const Node& node = program_.node(id);
    return fmt::format("node {} {} ({})", id, node.op->name, node.origin().path);
  };
  const std::string range = fmt::format("{} bytes at {}", place.bytes, place.offset);
  if (place.buffer < 0) return fmt::format("the workspace of {} ({})", of_node(place.node), range);
  const Value& owner = program_.value(plan_.buffer_plan.buffers[at(place.buffer)].owner);
  return fmt::format("result {} of {} ({})", owner.output_index, of_node(owner.producer), range);
}

void PlanGuard::fail(NodeId node, const std::string& what) const {
  const Node& n = program_.node(node);
  throw DeviceError(device_.name(), n.op->name,
                    fmt::format("node {} ({}): {}", node, n.origin().path, what));
}

}  // namespace tracestep
