#include "passes/form_passes.h"

#include <algorithm>

#include "ir/op_def.h"

namespace tracestep {
namespace {

constexpr std::int64_t kLeastExtent = 128;

bool pays(const Program& program, const Node& node) {
  if (node.op->find_attr("by_parts") == nullptr) return false;
  const Type& a = program.type(node.inputs[0]);
  const Shape& y = program.type(node.outputs[0]).shape;
  const std::int64_t k = a.shape.back(node.attrs.flag("transpose_a") ? 1 : 0);
  return a.dtype == DType::kF32 && std::min({y.back(0), y.back(1), k}) >= kLeastExtent;
}

}  // namespace

Program by_parts(const Program& program) {
  Program out = program;
  for (Node& node : out.nodes) {
    if (pays(program, node)) node.attrs.set("by_parts", true);
  }
  return out;
}

}  // namespace tracestep
