// Tables of the memory that backward reads and leaves behind: the loads of a component in their
// order, and the gradients of each block read off the slope of active memory.
#include <algorithm>
#include <map>

#include "ir/op_def.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

bool is_backward(const Node& node) {
  const Phase phase = node.origin().phase;
  return phase == Phase::kBackward || phase == Phase::kRecompute;
}

bool is_under(const Node& node, std::string_view component) {
  return std::ranges::any_of(
      node.origins, [&](const Origin& origin) { return is_part_of(component, origin.path); });
}

constexpr std::int64_t kNotKnown = -1;

// A value from before backward, and the nodes of backward that read it.
struct Load {
  const Program& program;
  ValueId value;  // the base: what owns the bytes
  NodeId reader;  // the first
  std::int64_t order, reads = 1;
  std::int64_t full_count;  // elements of the residual stream; kNotKnown

  const Type& type() const { return program.type(value); }
  NodeId producer() const { return program.value(value).producer; }
  bool is_leaf() const { return producer() == kNoNode; }
  std::string maker() const {
    if (is_leaf()) return program.value(value).name;
    const Node& node = program.node(producer());
    return fmt::format("{} of {}", node.op->name, node.origin().path);
  }
};

// True if a value is from before backward; masks and tables are made where they are read instead.
bool comes_from_forward(const Program& program, ValueId value) {
  const NodeId producer = program.value(value).producer;
  if (producer == kNoNode) return true;
  const Node& node = program.node(producer);
  return node.origin().phase == Phase::kForward && node.op->kernel_class != KernelClass::kGenerator;
}

std::vector<Load> loads_of(const MemoryRun& run, std::string_view component) {
  const RunSpec& step = run.spec.step;
  // A module of a user's own does not say how wide its residual stream is.
  const bool is_known = step.model.captured == nullptr;
  const std::int64_t full =
      is_known ? step.shape.batch * step.shape.context * step.model.d_model : kNotKnown;
  std::vector<Load> out;
  std::map<ValueId, std::size_t> known;
  for (std::size_t i = 0; i < run.program.nodes.size(); ++i) {
    const Node& node = run.program.nodes[i];
    if (!run.buffer_plan.runs[i] || !is_backward(node) || !is_under(node, component)) continue;
    for (ValueId input : node.inputs) {
      const ValueId base = run.program.value(input).layout.base;
      if (!comes_from_forward(run.program, base)) continue;
      const auto [found, is_new] = known.try_emplace(base, out.size());
      if (is_new) {
        out.push_back({run.program, base, static_cast<NodeId>(i), std::ssize(out) + 1, 1, full});
      } else {
        ++out[found->second].reads;
      }
    }
  }
  return out;
}

Fields<Load> load_fields() {
  using L = const Load&;
  return {{int_column("order", "", "in which backward first reads them"), &Load::order},
          {text_column("made_by", "made by", "op and path, or the leaf"), &Load::maker},
          {col::kind("saved: kept by forward; leaf: a weight or an input, alive anyway"),
           [](L l) { return l.is_leaf() ? "leaf" : "saved"; }},
          {col::type, [](L l) { return l.type().str(); }},
          {col::bytes, [](L l) { return l.type().bytes(); }},
          {bool_column("full_size", "full size", "as large as the residual stream, or larger"),
           [](L l) {
             return l.full_count == kNotKnown ? Json() : Json(l.type().count() >= l.full_count);
           }},
          {col::read_by("the first reader"),
           [](L l) {
             const Node& node = l.program.node(l.reader);
             return fmt::format("{} of {}", node.op->name, node.origin().path);
           }},
          {int_column("reads", "", "operands of backward that are this value"), &Load::reads}};
}

std::string counted(const std::vector<Load>& loads) {
  std::int64_t saved = 0, full = 0, bytes = 0;
  for (const Load& load : loads) {
    if (load.is_leaf()) continue;
    ++saved;
    full += load.type().count() >= load.full_count ? 1 : 0;
    bytes += load.type().bytes();
  }
  const bool is_known = loads.empty() || loads.front().full_count != kNotKnown;
  return fmt::format("saved: {} values of {} bytes{}", saved, bytes,
                     is_known ? fmt::format(", {} of them full size", full) : "");
}

// Backward of one block: its nodes, and the bytes that are alive before and after it.
struct Slope {
  std::string block;
  NodeId first = kNoNode, last = kNoNode;
  std::int64_t before = 0, after = 0, freed = 0, gradients = 0, weights = 0;

  std::int64_t deduced() const { return after - before + freed; }
};

// Finds the kernels of the block's backward. Its last one adds the gradient of the residual stream
// and that of the block's first norm; the sum has the path of the block before, because it is the
// gradient of that block's result, but counts here.
Slope stretch_of(const MemoryRun& run, std::string block) {
  Slope out{.block = std::move(block)};
  NodeId last_kernel = kNoNode;
  for (std::size_t i = 0; i < run.program.nodes.size(); ++i) {
    const Node& node = run.program.nodes[i];
    if (!run.buffer_plan.runs[i] || !is_backward(node)) continue;
    const auto id = static_cast<NodeId>(i);
    if (is_under(node, out.block)) {
      if (out.first == kNoNode && node.op->is_sum) continue;
      if (out.first == kNoNode) out.first = id;
      out.last = id;
    } else if (out.last == last_kernel && out.last != kNoNode && node.op->is_sum) {
      out.last = id;
    }
    last_kernel = id;
  }
  return out;
}

// Returns the blocks of the model, the last first.
std::vector<std::string> blocks_backwards(const Program& program) {
  std::vector<std::string> out;
  for (const Node& node : program.nodes) {
    if (node.origin().phase != Phase::kForward) continue;
    const std::string block(layer_of(node.origin().path));
    if (!block.empty() && std::ranges::find(out, block) == out.end()) out.push_back(block);
  }
  std::ranges::reverse(out);
  return out;
}

// True for a constant, which is made where it is read first, and may be read by several blocks.
bool is_constant(const Program& program, const MappedBuffer& b) {
  return b.first != kNoNode && program.node(b.first).op->kernel_class == KernelClass::kGenerator;
}

void measure(const MemoryRun& run, Slope& slope) {
  for (const MappedBuffer& b : run.map.buffers) {
    if (is_constant(run.program, b)) continue;
    const bool is_leaf = b.first == kNoNode;
    const bool before = is_leaf || (b.first < slope.first && b.last >= slope.first);
    const bool after = is_leaf || (b.first <= slope.last && b.last > slope.last);
    if (before) slope.before += b.bytes;
    if (after) slope.after += b.bytes;
    if (before && !after && b.category == Category::kActivation) slope.freed += b.bytes;
    if (after && !before && b.category == Category::kGradient) slope.gradients += b.bytes;
    if (b.category == Category::kParameter && is_part_of(slope.block, b.path)) {
      slope.weights += b.bytes;
    }
  }
}

Fields<Slope> slope_fields() {
  return {{col::block, &Slope::block},
          {col::before_bytes("alive when its backward begins, without constants"), &Slope::before},
          {bytes_column("after_bytes", "after", "alive when it is over"), &Slope::after},
          {bytes_column("freed_bytes", "freed", "saved values that it was the last to read"),
           &Slope::freed},
          {bytes_column("deduced_bytes", "gradients by the slope", "after - before + freed"),
           &Slope::deduced},
          {bytes_column("gradient_bytes", "by the program",
                        "gradients of weights that it makes and leaves"),
           &Slope::gradients},
          {col::weight_bytes("of the block"), &Slope::weights}};
}

}  // namespace

Table load_table(const MemoryCell& cell, const BufferFilter& filter) {
  const std::vector<Load> loads = loads_of(cell.run, filter.component);
  const std::string title = filter.component.empty()
                                ? "What backward reads"
                                : "What backward of " + filter.component + " reads";
  Table table = table_of("loads", title + ", in its order", load_fields(), loads);
  table.notes = {counted(loads)};
  return table;
}

Table gradient_slope_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  std::vector<Slope> slopes;
  for (const std::string& block : blocks_backwards(run.program)) {
    Slope slope = stretch_of(run, block);
    if (slope.first == kNoNode) continue;
    measure(run, slope);
    slopes.push_back(std::move(slope));
  }
  Table table = table_of("gradient_slope", "Gradients of each block, by the slope of backward",
                         slope_fields(), slopes);
  table.notes = {
      "the gradient of the residual stream enters and leaves a block at the same size, so what "
      "memory gains beyond the saved values that are freed is gradients of weights. Blocks in the "
      "order of backward"};
  return table;
}

}  // namespace tracestep
