// Lists one cell of the attention benchmark buffer by buffer, from its program.
#include "analysis/memory_map.h"
#include "ir/op_def.h"
#include "lab/attention/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

// A row of the table, a buffer; bytes are empty for a moment at which the buffer is not alive.
struct Line {
  std::string buffer;
  std::string phase = {}, category = {};
  std::string shape = {};   // "B·T·T·4"
  std::string worked = {};  // "8 · 256 · 256 · 4"
  std::optional<std::int64_t> held_bytes = {}, peak_bytes = {};
};

Fields<Line> line_fields() {
  using L = const Line&;
  return {
      {text_column("buffer", "", "op and path, or the leaf"), &Line::buffer},
      {col::phase, [](L l) { return or_null(l.phase); }},
      {col::category, [](L l) { return or_null(l.category); }},
      {col::shape("in letters, times bytes of an element"), [](L l) { return or_null(l.shape); }},
      {text_column("worked", "in numbers"), [](L l) { return or_null(l.worked); }},
      {col::held_bytes, [](L l) { return or_null(l.held_bytes); }},
      {col::peak_bytes.titled("at the peak"), [](L l) { return or_null(l.peak_bytes); }}};
}

// Names an axis by its letter. Where width and context are equal, the last axis counts as D.
std::string letter_of(const AttentionSpec& spec, const Shape& shape, int axis) {
  const std::int64_t size = shape[axis], context = spec.run.shape.context;
  const int rank = shape.rank();
  if (axis == 0 && size == spec.run.shape.batch && rank > 2) return "B";
  if (axis == 1 && rank == 4 && size == spec.heads) return "H";
  if (axis == rank - 2 && size == context) return "T";
  if (size == spec.width) return "D";
  return size == context ? "T" : std::to_string(size);
}

void describe(const AttentionSpec& spec, const Type& type, Line& out) {
  for (int axis = 0; axis < type.shape.rank(); ++axis) {
    out.shape += letter_of(spec, type.shape, axis) + "·";
    out.worked += fmt::format("{} · ", type.shape[axis]);
  }
  out.shape += std::to_string(size_of(type.dtype));
  out.worked += std::to_string(size_of(type.dtype));
}

std::string name_of(const Program& program, const Buffer& buffer) {
  if (buffer.first == kNoNode) return program.value(buffer.owner).name;
  const Node& node = program.node(program.value(buffer.owner).producer);
  return fmt::format("{} of {}", node.op->name, node.origin().path);
}

}  // namespace

Table attention_account_table(const AttentionResult& result, const DeviceFactory& make_device) {
  const std::unique_ptr<Device> device = make_device(result.spec.run);
  const PartsProgram p = attention_program(result.spec, *device);
  const MemoryMap map = map_memory(p.program, device->traits());
  Line sum{.buffer = "sum, predicted", .held_bytes = 0, .peak_bytes = 0};
  std::vector<Line> lines;
  for (const Buffer& b : plan_buffers(p.program).buffers) {
    const bool is_leaf = b.first == kNoNode;
    const bool is_held = is_leaf || (b.first < p.forward_end && b.last >= p.forward_end);
    const bool at_peak = is_leaf || (b.first <= map.peak_node && b.last >= map.peak_node);
    if ((!is_held && !at_peak) || b.bytes == 0) continue;
    Line line{.buffer = name_of(p.program, b), .category = std::string(name_of(b.category))};
    if (!is_leaf) line.phase = name_of(p.program.node(b.first).origin().phase);
    describe(result.spec, p.program.type(b.owner), line);
    if (is_held) *sum.held_bytes += line.held_bytes.emplace(b.bytes);
    if (at_peak) *sum.peak_bytes += line.peak_bytes.emplace(b.bytes);
    lines.push_back(std::move(line));
  }
  if (const std::int64_t workspace = map.peak_bytes - *sum.peak_bytes; workspace > 0) {
    lines.push_back({.buffer = fmt::format("scratch of {}", p.program.node(map.peak_node).op->name),
                     .category = std::string(name_of(Category::kWorkspace)),
                     .peak_bytes = workspace});
    *sum.peak_bytes += workspace;
  }
  lines.push_back(std::move(sum));
  const bool is_measured = result.status == Status::kOk;
  if (is_measured) {
    lines.push_back({.buffer = "measured",
                     .held_bytes = result.before_backward_bytes,
                     .peak_bytes = result.peak_bytes});
  }
  const AttentionSpec& spec = result.spec;
  Table table =
      table_of("attention_account",
               fmt::format("One cell buffer by buffer: batch {}, heads {}, context {}, width {}{}",
                           spec.run.shape.batch, spec.heads, spec.run.shape.context, spec.width,
                           is_measured ? "" : ", which did not fit"),
               line_fields(), lines);
  table.notes = {
      fmt::format("the peak is while {} of {} runs; one tensor of T² is {:.0f} · T² = {:.0f} bytes",
                  p.program.node(map.peak_node).op->name,
                  p.program.node(map.peak_node).origin().path, square_bytes(spec),
                  square_bytes(spec) * static_cast<double>(spec.run.shape.context) *
                      static_cast<double>(spec.run.shape.context))};
  if (has_arena(spec.run.executor)) {
    table.notes.emplace_back(
        "compiled steps hold one arena instead, from before to after the step");
  }
  return table;
}

}  // namespace tracestep
