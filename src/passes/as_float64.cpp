#include "passes/form_passes.h"

#include "ir/rewrite.h"

namespace tracestep {
namespace {

DType widened(DType dtype) {
  return is_floating(dtype) ? DType::kF64 : dtype;
}

Attrs widened(const Attrs& attrs) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs.entries()) {
    if (const auto* dtype = std::get_if<DType>(&value)) out.set(name, widened(*dtype));
    if (const auto* body = std::get_if<Region>(&value)) {
      out.set(name, std::make_shared<const Program>(as_float64(**body)));
    }
  }
  return out;
}

}  // namespace

Program as_float64(const Program& program) {
  Program wide_leaves = program;
  for (ValueId id : program.leaves) {
    Type& type = wide_leaves.values[static_cast<std::size_t>(id)].type;
    type.dtype = widened(type.dtype);
  }
  Rewriter r(wide_leaves, "as_float64");
  for (const Node& node : program.nodes) {
    const auto guard = r.builder().like(node);
    r.replace(node, r.builder().call(*node.op, r.inputs(node), widened(node.attrs)));
  }
  return r.finish();
}

}  // namespace tracestep
