#include "analysis/memory_map.h"

#include <algorithm>

#include <fmt/format.h>

#include "analysis/cost.h"
#include "base/indexed.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

// Walks a step as an executor does: results and workspace are allocated, the node runs, the
// workspace is freed, then every buffer without further readers. Calls `live_at(node, bytes,
// workspace)` at the fullest moment of each node.
template <class Live>
void walk(const Program& program, const BufferPlan& buffer_plan, const DeviceTraits& traits,
          Live&& live_at) {
  std::int64_t live = 0;
  for (const Buffer& b : buffer_plan.buffers) live += b.first == kNoNode ? b.bytes : 0;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!buffer_plan.runs[i]) continue;
    for (int b : buffer_plan.allocated_at[i]) live += buffer_plan.buffers[at(b)].bytes;
    const std::int64_t workspace = workspace_bytes(program, program.nodes[i], traits);
    live_at(static_cast<NodeId>(i), live + workspace, workspace);
    for (int b : buffer_plan.freed_after[i]) live -= buffer_plan.buffers[at(b)].bytes;
  }
}

bool uses(const BufferPlan& buffer_plan, const Node& node, int buffer) {
  return std::ranges::any_of(node.inputs,
                             [&](ValueId id) { return buffer_plan.buffer_of[at(id)] == buffer; });
}

std::string why_alive(const Program& program, const BufferPlan& buffer_plan, int index,
                      NodeId end) {
  const Buffer& buffer = buffer_plan.buffers[at(index)];
  const Value& owner = program.value(buffer.owner);
  if (owner.leaf != LeafKind::kNone) {
    if (buffer.host_bytes > 0) return fmt::format("{} in host memory", name_of(owner.leaf));
    return fmt::format("{}: there before and after the step", name_of(owner.leaf));
  }
  if (buffer.last >= end) {
    for (const Output& o : program.outputs) {
      if (program.value(o.value).layout.base == buffer.owner) return "result \"" + o.name + "\"";
    }
    return "kept until the end of the step";
  }
  const Node& reader = program.node(buffer.last);
  const std::string_view prefix = buffer.category == Category::kActivation
                                      ? "saved for backward: read by "
                                  : uses(buffer_plan, reader, index) ? "read by "
                                                                     : "needed until the end of ";
  return fmt::format("{}{} of {} ({})", prefix, reader.op->name,
                     reader.origin().path.empty() ? "the program" : reader.origin().path,
                     name_of(reader.origin().phase));
}

MappedBuffer describe(const Program& program, const BufferPlan& buffer_plan, int index,
                      NodeId end) {
  const Buffer& buffer = buffer_plan.buffers[at(index)];
  const Value& owner = program.value(buffer.owner);
  MappedBuffer out;
  out.bytes = buffer.bytes;
  out.host_bytes = buffer.host_bytes;
  out.category = buffer.category;
  out.first = buffer.first;
  out.last = buffer.last;
  out.reason = why_alive(program, buffer_plan, index, end);
  if (owner.leaf != LeafKind::kNone) {
    out.path = owner.name;
    out.op = std::string(name_of(owner.leaf));
  } else {
    const Node& node = program.node(owner.producer);
    out.path = node.origin().path;
    out.op = node.op->name;
    out.phase = node.origin().phase;
  }
  return out;
}

bool alive_at(const MappedBuffer& b, NodeId node) {
  if (b.host_bytes > 0) return false;
  return b.first == kNoNode || (b.first <= node && node <= b.last);
}

}  // namespace

MemoryMap map_memory(const Program& program, const DeviceTraits& traits) {
  const BufferPlan buffer_plan = plan_buffers(program);
  const auto end = static_cast<NodeId>(program.nodes.size());
  MemoryMap out;
  for (std::size_t i = 0; i < buffer_plan.buffers.size(); ++i) {
    const Buffer& b = buffer_plan.buffers[i];
    out.buffers.push_back(describe(program, buffer_plan, static_cast<int>(i), end));
    if (b.first == kNoNode) out.leaf_bytes += b.bytes;
  }
  out.peak_bytes = out.leaf_bytes;
  walk(program, buffer_plan, traits, [&](NodeId id, std::int64_t live, std::int64_t workspace) {
    const Node& node = program.node(id);
    if (workspace > 0) {
      out.buffers.push_back({.bytes = workspace,
                             .category = Category::kWorkspace,
                             .phase = node.origin().phase,
                             .first = id,
                             .last = id,
                             .path = node.origin().path,
                             .op = node.op->name,
                             .reason = "scratch of " + node.op->name});
    }
    std::int64_t& phase_peak = out.by_phase[static_cast<std::size_t>(node.origin().phase)];
    phase_peak = std::max(phase_peak, live);
    if (live > out.peak_bytes) {
      out.peak_bytes = live;
      out.peak_node = id;
    }
  });
  for (MappedBuffer& b : out.buffers) {
    b.at_peak = alive_at(b, out.peak_node);
    if (b.at_peak) out.by_category[static_cast<std::size_t>(b.category)] += b.bytes;
  }
  return out;
}

std::int64_t host_bytes(const Program& program) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    if (program.value(id).memory == Memory::kHost) out += program.type(id).bytes();
  }
  return out;
}

std::vector<std::int64_t> live_bytes_by_node(const Program& program, const BufferPlan& buffer_plan,
                                             const DeviceTraits& traits) {
  std::vector<std::int64_t> out(program.nodes.size(), 0);
  walk(program, buffer_plan, traits,
       [&](NodeId id, std::int64_t live, std::int64_t) { out[at(id)] = live; });
  return out;
}

std::int64_t predicted_peak_bytes(const Program& program, const BufferPlan& buffer_plan,
                                  const DeviceTraits& traits) {
  std::int64_t peak = 0;
  for (const Buffer& b : buffer_plan.buffers) peak += b.first == kNoNode ? b.bytes : 0;
  walk(program, buffer_plan, traits,
       [&](NodeId, std::int64_t live, std::int64_t) { peak = std::max(peak, live); });
  return peak;
}

}  // namespace tracestep
