#include "passes/row_chunks.h"

#include "ops/functions.h"
#include "ops/rules.h"

namespace tracestep {

ProductAxes axes_of(const Program& program, const Node& product) {
  const std::vector<Type> types{program.type(product.inputs[0]), program.type(product.inputs[1])};
  return product.op->product({*product.op, product.attrs, types, {}});
}

Val add_product(Builder& builder, const Node& product, std::vector<Val> operands, Val total,
                bool adds) {
  if (total && adds) {
    operands.push_back(total);
    return builder.call1(kProductAndSum, std::move(operands), product.attrs);
  }
  const DType wide = rules::accumulation_dtype(operands[0].dtype());
  const Val part =
      ops::cast(builder.call(*product.op, std::move(operands), product.attrs).front(), wide);
  return total ? ops::add(total, part) : part;
}

}  // namespace tracestep
