#include "exec/plan_guard.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/integers.h"
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
    : program_(program),
      plan_(plan),
      device_(device),
      arena_(arena),
      watched_(watched_ranges()),
      image_(at(plan.arena_bytes)),
      now_(at(plan.arena_bytes)) {
  restart();
}

std::vector<PlanGuard::Range> PlanGuard::watched_ranges() const {
  std::vector<bool> of_workspace(at(ceil_div(plan_.arena_bytes, kArenaAlignment)), false);
  std::vector<bool> of_buffer = of_workspace;
  for (const Plan::Place& p : plan_.places) {
    std::vector<bool>& units = p.buffer < 0 ? of_workspace : of_buffer;
    const auto begin = units.begin() + p.offset / kArenaAlignment;
    std::fill(begin, units.begin() + ceil_div(p.offset + p.bytes, kArenaAlignment), true);
  }
  std::vector<Range> out;
  for (std::size_t i = 0; i < of_buffer.size(); ++i) {
    if (of_workspace[i] && !of_buffer[i]) continue;
    const std::int64_t first = static_cast<std::int64_t>(i) * kArenaAlignment;
    if (out.empty() || out.back().first + out.back().bytes != first) out.push_back({first, 0});
    out.back().bytes += std::min(kArenaAlignment, plan_.arena_bytes - first);
  }
  return out;
}

void PlanGuard::restart() {
  is_living_.assign(plan_.places.size(), false);
  for (const Range& range : watched_) fill_dead(range);
}

void PlanGuard::fill_dead(Range range) {
  std::fill_n(image_.begin() + range.first, range.bytes, kDead);
  device_.copy_in(arena_ + range.first, image_.data() + range.first, range.bytes);
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
  for (const Range& range : watched_) {
    device_.copy_out(now_.data() + range.first, arena_ + range.first, range.bytes);
  }
  const int workspace = plan_.workspace_of[at(launch.node)];
  take_over(workspace);
  for (const Slot& slot : launch.outputs) {
    if (slot.buffer >= 0) take_over(plan_.place_of_buffer[at(slot.buffer)]);
  }
  for (const Range& range : watched_) check_unchanged(launch.node, range);
  bury(workspace);
  for (int buffer : plan_.buffer_plan.freed_after[at(launch.node)]) {
    bury(plan_.place_of_buffer[at(buffer)]);
  }
}

std::vector<PlanGuard::Range> PlanGuard::watched_part_of(int index) const {
  std::vector<Range> out;
  if (index < 0) return out;
  const Plan::Place& place = plan_.places[at(index)];
  for (const Range& range : watched_) {
    const std::int64_t first = std::max(range.first, place.offset);
    const std::int64_t end = std::min(range.first + range.bytes, place.offset + place.bytes);
    if (first < end) out.push_back({first, end - first});
  }
  return out;
}

void PlanGuard::take_over(int index) {
  for (const Range& part : watched_part_of(index)) {
    std::copy_n(now_.begin() + part.first, part.bytes, image_.begin() + part.first);
  }
}

void PlanGuard::bury(int index) {
  for (const Range& part : watched_part_of(index)) fill_dead(part);
  if (index >= 0) is_living_[at(index)] = false;
}

void PlanGuard::check_unchanged(NodeId node, Range range) const {
  const auto is_right = [&](std::int64_t i) { return now_[at(i)] == image_[at(i)]; };
  std::int64_t first = range.first, last = range.first + range.bytes - 1;
  if (std::memcmp(now_.data() + first, image_.data() + first, at(range.bytes)) == 0) return;
  while (is_right(first)) ++first;
  while (is_right(last)) --last;
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
