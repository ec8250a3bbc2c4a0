// Dropout: which elements stay is a function of the batch's number (ops/dropout_words.h), so that
// nothing is kept for backward.
#include "ops/functions.h"
#include "ops/registers.h"
#include "ops/rules.h"

namespace tracestep::ops {
namespace {

std::vector<Type> dropout_type(const OpCall& c) {
  rules::require_floating(c, 0);
  if (c.inputs[1] != Type{DType::kI64, {1}}) {
    fail_usage(c.op, "batch is {}; i64[1] is expected", c.inputs[1].str());
  }
  const double rate = c.attrs.real("rate");
  if (!(rate >= 0.0 && rate <= 1.0)) fail_usage(c.op, "rate {} is not within 0 and 1", rate);
  return {c.inputs[0]};
}

}  // namespace

void register_dropout() {
  register_op(
      {.name = "dropout",
       .doc = "x/(1 - rate) with the probability 1 - rate, otherwise 0. Which elements stay "
              "follows from their places, the stream and the number of the batch.",
       .source = "Srivastava et al. 2014; Salmon et al. 2011, Philox4x32-10",
       .inputs = {"x", "batch"},
       .outputs = {"y"},
       .attrs = {{"rate", AttrKind::kReal, std::nullopt, "part that is dropped"},
                 {"stream", AttrKind::kInt, AttrValue(std::int64_t{0}),
                  "number of the call in the program"}},
       .infer = dropout_type,
       .accepts = rules::contiguous,
       .gradient =
           [](const OpExpansion& e) {
             return std::vector{
                 e.builder.call1("dropout", {e.output_grads[0], e.inputs[1]}, e.attrs), Val{}};
           },
       .forms = {{"none", [](const OpExpansion& e) { return std::vector{e.inputs[0]}; }}},
       .flops = rules::per_result(2),
       .donates = {{0, 0}},
       .cheap_to_recompute = true});
}

}  // namespace tracestep::ops
