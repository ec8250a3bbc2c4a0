#include "analysis/assembly.h"

#include "analysis/view_strides.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

Layout place_of(const Program& program, const Node& assembly, int input) {
  std::vector<Type> inputs;
  for (ValueId id : assembly.inputs) inputs.push_back(program.type(id));
  const std::vector<Type> outputs{program.type(assembly.outputs[0])};
  Layout out = assembly.op->part({*assembly.op, assembly.attrs, inputs, outputs}, input);
  out.base = assembly.outputs[0];
  return out;
}

// Sets the stride of dimensions of size 1 to the next dimension's stride times its size, or to 1.
void fill_in(const Shape& shape, Strides& strides) {
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1) continue;
    strides[i] = i + 1 < shape.rank() ? strides[i + 1] * shape[i + 1] : 1;
  }
}

// True if views alone lead from `base` to `id`, and each value on the way has a single reader.
bool is_only_way(const Program& program, const Readers& readers, ValueId base, ValueId id) {
  while (readers.only(id) != kNoNode) {
    if (id == base) return true;
    const Node& view = program.node(program.value(id).producer);
    if (!makes_views(program, view)) return false;
    id = view.inputs[0];
  }
  return false;
}

}  // namespace

std::optional<AssembledPart> part_of_assembly(const Program& program, const Readers& readers,
                                              const Node& assembly, int input) {
  const Value& operand = program.value(assembly.inputs[static_cast<std::size_t>(input)]);
  const ValueId base = operand.layout.base;
  const Value& result = program.value(base);
  if (result.producer == kNoNode || result.type.count() != operand.type.count() ||
      result.type.count() == 0) {
    return std::nullopt;
  }
  if (!is_only_way(program, readers, base, assembly.inputs[static_cast<std::size_t>(input)])) {
    return std::nullopt;
  }
  AssembledPart out{base, place_of(program, assembly, input)};
  const auto strides = carry_strides({operand.type.shape, operand.layout.strides},
                                     out.place.strides, {result.type.shape, result.layout.strides});
  if (!strides) return std::nullopt;
  out.place.strides = *strides;
  fill_in(result.type.shape, out.place.strides);
  const OpDef& op = *program.node(result.producer).op;
  const bool fits = op.writes && op.writes(result.output_index, result.type, out.place.strides);
  if (!fits) return std::nullopt;
  return out;
}

std::vector<AssembledPart> assembled_parts(const Program& program) {
  std::vector<AssembledPart> out;
  std::optional<Readers> readers;  // most programs have no assemblies
  for (const Node& node : program.nodes) {
    if (!node.op->is_assembly()) continue;
    if (!readers) readers.emplace(program);
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      if (program.type(node.inputs[static_cast<std::size_t>(i)]).count() == 0) continue;
      const auto part = part_of_assembly(program, *readers, node, i);
      TRACESTEP_CHECK(part.has_value(), "operand {} of {} needs a copy first", i, node.op->name);
      out.push_back(*part);
    }
  }
  return out;
}

}  // namespace tracestep
