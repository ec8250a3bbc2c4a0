// Topics on number formats and on softmax: from the types, the passes and the sums themselves.
#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/cost.h"
#include "analysis/origins.h"
#include "base/half.h"
#include "ir/op_def.h"
#include "lab/explain/topics.h"
#include "lab/precision/tables.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

float as_f16(double x) {
  return to_float(to_f16(static_cast<float>(x)));
}
float as_bf16(double x) {
  return to_float(to_bf16(static_cast<float>(x)));
}

// The number of elements of the parameters that products read.
std::int64_t multiplied_parameters(const Program& program) {
  std::set<ValueId> found;
  for (const Node& node : program.nodes) {
    if (!is_product(node)) continue;
    for (ValueId id : node.inputs) found.insert(program.value(id).layout.base);
  }
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kParameter && found.contains(id)) out += leaf.type.count();
  }
  return out;
}

}  // namespace

void explain_softmax(const ExplainInput& input, Explanation& out) {
  const auto part = [](std::string_view name) { return scope::path({scope::kAttention, name}); };
  for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
    const Program program = step_program(
        {.model = input.model, .shape = input.shape, .mode = Mode::kForward, .ops = ops});
    Cost softmax, products;
    for (const Node& node : program.nodes) {
      if (node.op->kernel_class == KernelClass::kView) continue;
      const std::string component = component_of(node.origin().path);
      if (component == part(scope::kSoftmax)) softmax += cost_of(program, node);
      if ((component == part(scope::kScores) || component == part(scope::kValues)) &&
          node.op->kernel_class == KernelClass::kGemm) {
        products += cost_of(program, node);
      }
    }
    Values& v = out.values.add("ops").set("name", name_of(ops));
    v.set("softmax", softmax.flops).set("products", products.flops);
    if (softmax.flops <= 0 || products.flops <= 0) continue;
    const std::int64_t softmax_bytes = softmax.bytes_read + softmax.bytes_written,
                       product_bytes = products.bytes_read + products.bytes_written;
    v.set("softmax_bytes", softmax_bytes).set("product_bytes", product_bytes);
  }
}

void explain_mixed_precision(const ExplainInput& input, Explanation& out) {
  Values& v = out.values;
  v.set("multiplied", multiplied_parameters(logits_program(input.model, input.shape)));
  v.set("bf16_spacing", to_float(BF16{0x3f81}) - 1).set("f16_spacing", to_float(F16{0x3c01}) - 1);
  v.set("bf16_third", as_bf16(1.0 / 3)).set("f16_third", as_f16(1.0 / 3));
  out.more.push_back(format_table());
}

void explain_accumulation(const ExplainInput&, Explanation& out) {
  for (const Accumulation& e : accumulations()) {
    Values& sum = out.values.add("sum").set("name", e.name);
    sum.set("count", e.count).set("term", e.term).set("value", accumulate(e).value);
  }
  out.more.push_back(accumulation_table());
}

void explain_autocast(const ExplainInput&, Explanation& out) {
  Table table = autocast_table();
  const std::size_t dtype = table.index_of("dtype").value();
  out.values.set("values", table.rows.size());
  out.values.set("narrow", std::ranges::count_if(table.rows, [&](const auto& row) {
                   return row[dtype].is_string() && row[dtype].as_string() != "f32";
                 }));
  out.more = {std::move(table), precision_class_table()};
}

void explain_loss_scaling(const ExplainInput&, Explanation& out) {
  const double least = std::ldexp(1.0, -24), normal = std::ldexp(1.0, -14);
  const double gradient = 2e-8, scale = 65536;
  Values& v = out.values;
  v.set("least", as_f16(least)).set("half", least / 2).set("half_stored", as_f16(least / 2));
  v.set("normal", as_f16(normal));
  v.set("gradient", gradient).set("unscaled", as_f16(gradient)).set("scale", scale);
  v.set("scaled", as_f16(gradient * scale)).set("bf16", as_bf16(gradient));
}

void explain_rmsnorm(const ExplainInput& input, Explanation& out) {
  const double eps = input.model.norm_eps;
  Values& v = out.values;
  v.set("eps", eps).set("eps_f16", as_f16(eps)).set("eps_bf16", as_bf16(eps));
  v.set("square_255_f16", as_f16(255.0 * 255.0)).set("square_256_f16", as_f16(256.0 * 256.0));
  v.set("square_255_bf16", as_bf16(255.0 * 255.0));
  // A sum of C ones, in bf16, term by term.
  v.set("ones", accumulate({.name = "ones",
                            .count = input.model.d_model,
                            .term = 1.0,
                            .sum_dtype = DType::kBF16,
                            .term_dtype = DType::kBF16})
                    .value);
  out.more.push_back(norm_table());
}

}  // namespace tracestep
