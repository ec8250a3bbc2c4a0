// Topics on number formats and on softmax: from the types, the passes and the sums themselves.
#include <cmath>

#include <fmt/format.h>

#include "analysis/component.h"
#include "analysis/cost.h"
#include "base/half.h"
#include "ir/op_def.h"
#include "lab/explain/topics.h"
#include "lab/precision/tables.h"

namespace tracestep {
namespace {

float as_f16(double x) {
  return to_float(to_f16(static_cast<float>(x)));
}
float as_bf16(double x) {
  return to_float(to_bf16(static_cast<float>(x)));
}

}  // namespace

std::vector<Table> explain_softmax(const ExplainInput& input) {
  Worked out;
  for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
    const Program program = step_program(
        {.model = input.model, .shape = input.shape, .mode = Mode::kForward, .ops = ops});
    Cost softmax, products;
    for (const Node& node : program.nodes) {
      if (node.op->kernel_class == KernelClass::kView) continue;
      const std::string component = component_of(node.origin().path);
      if (component == "attn.softmax") softmax += cost_of(program, node);
      if ((component == "attn.scores" || component == "attn.values") &&
          node.op->kernel_class == KernelClass::kGemm) {
        products += cost_of(program, node);
      }
    }
    const std::string name(name_of(ops));
    const auto bytes = [](const Cost& c) {
      return static_cast<double>(c.bytes_read + c.bytes_written);
    };
    out.flops(name + ": softmax", "counted per op", "", static_cast<double>(softmax.flops));
    out.flops(name + ": the two products", "4·BHT²D per layer", "",
              static_cast<double>(products.flops));
    if (softmax.flops <= 0 || products.flops <= 0) continue;
    out.ratio(name + ": products over softmax, FLOPs", "",
              fmt::format("{} / {}", products.flops, softmax.flops),
              static_cast<double>(products.flops) / static_cast<double>(softmax.flops));
    out.bytes(name + ": moved by softmax", "each op reads and writes", "", bytes(softmax));
    out.bytes(name + ": moved by the products", "", "", bytes(products));
    out.ratio(name + ": products over softmax, bytes", "", "", bytes(products) / bytes(softmax));
  }
  const auto d = static_cast<double>(input.model.head_width());
  out.ratio("FLOPs of the products per score", "4·D", fmt::format("4·{}", d), 4 * d);
  out.ratio("of softmax, five operations a score", "max, subtract, exp, sum, divide", "", 5);
  out.ratio("ratio, counting five", "4·D / 5", "", 4 * d / 5);
  out.ratio("ratio, multiply-adds of one product to one operation a score", "D", "", d);
  out.note(
      "softmax(x)ᵢ = e^(xᵢ − m) / Σ e^(xⱼ − m) with m = max x: without m, exp overflows fp32 above "
      "88");
  out.note(fmt::format("numbers of {} at B = {}, T = {}, forward", input.model.name,
                       input.shape.batch, input.shape.context));
  return {out.table()};
}

std::vector<Table> explain_mixed_precision(const ExplainInput& input) {
  const auto p = static_cast<double>(parameter_formula(input.model));
  const auto c = static_cast<double>(input.model.d_model);
  const double multiplied = p - static_cast<double>(input.model.vocab) * c -
                            (2 * static_cast<double>(input.model.layers) + 1) * c;
  Worked out;
  out.bytes("weights, which stay", "4·P", fmt::format("4·{:.0f}", p), 4 * p);
  out.bytes("narrow copies of all that are multiplied", "2·(L(4C² + 3CF) + VC)",
            fmt::format("2·{:.0f}", multiplied), 2 * multiplied);
  out.ratio("spacing of bf16 at 1", "2⁻⁷", "", static_cast<double>(to_float(BF16{0x3f81}) - 1));
  out.ratio("spacing of fp16 at 1", "2⁻¹⁰", "", static_cast<double>(to_float(F16{0x3c01}) - 1));
  out.ratio("1/3 in bf16", "", "", static_cast<double>(as_bf16(1.0 / 3)));
  out.ratio("1/3 in fp16", "", "", static_cast<double>(as_f16(1.0 / 3)));
  out.note("tracestep precision --part steps measures time, peak and error of each precision");
  return {out.table(), format_table()};
}

std::vector<Table> explain_accumulation(const ExplainInput&) {
  Worked out;
  for (const Accumulation& e : accumulations()) {
    const Accumulated sum = accumulate(e);
    out.add(e.name, "sum ← round(sum + round(term))", fmt::format("{} × {}", e.count, e.term),
            fmt::format("{}", sum.value), sum.value);
  }
  out.note("every sum should be 10");
  return {out.table(), accumulation_table()};
}

std::vector<Table> explain_autocast(const ExplainInput&) {
  Worked out;
  out.note("read from a small model's program behind the pass: linear, ReLU, norm, linear, loss");
  Table table = autocast_table();
  const auto column = [&](std::string_view name) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].name == name) return i;
    }
    return table.columns.size();
  };
  const std::size_t dtype = column("dtype");
  double narrow = 0;
  for (const auto& row : table.rows) {
    if (dtype < row.size() && row[dtype].is_string() && row[dtype].as_string() != "f32") ++narrow;
  }
  out.ratio("values of both programs", "", "", static_cast<double>(table.rows.size()));
  out.ratio("of them in a low format", "", "", narrow);
  return {out.table(), std::move(table), precision_class_table()};
}

std::vector<Table> explain_loss_scaling(const ExplainInput&) {
  Worked out;
  const double least = std::ldexp(1.0, -24), normal = std::ldexp(1.0, -14);
  out.ratio("least number of fp16", "2⁻²⁴", "", static_cast<double>(as_f16(least)));
  out.ratio("half of it becomes", "rounded to even", fmt::format("{:.4g}", least / 2),
            static_cast<double>(as_f16(least / 2)));
  out.ratio("least normal number of fp16", "2⁻¹⁴", "", static_cast<double>(as_f16(normal)));
  const double gradient = 2e-8, scale = 65536;
  out.ratio("a gradient in fp16", "round(g)", fmt::format("g = {:.3g}", gradient),
            static_cast<double>(as_f16(gradient)));
  const double scaled = static_cast<double>(as_f16(gradient * scale));
  out.ratio("scaled", "round(s·g)", fmt::format("s = {}", scale), scaled);
  out.ratio("and taken back in fp32", "round(s·g) / s", "", scaled / scale);
  out.ratio("the same gradient in bf16, unscaled", "round(g)", "",
            static_cast<double>(as_bf16(gradient)));
  out.ratio("what overflows at this scale", "g > 65504 / s", fmt::format("65504 / {}", scale),
            static_cast<double>(to_float(F16{0x7bff})) / scale);
  out.note(
      "loss · s before backward, gradients / s before clipping and the update; s is halved when "
      "a gradient is not finite");
  return {out.table()};
}

std::vector<Table> explain_rmsnorm(const ExplainInput& input) {
  Worked out;
  const double eps = input.model.norm_eps;
  out.ratio("ε", "", "", eps);
  out.ratio("ε in fp16", "below the least normal number", "", static_cast<double>(as_f16(eps)));
  out.ratio("ε in bf16", "", "", static_cast<double>(as_bf16(eps)));
  out.ratio("255² in fp16", "", "", static_cast<double>(as_f16(255.0 * 255.0)));
  out.add("256² in fp16", "", "", fmt::format("{}", as_f16(256.0 * 256.0)), 0);
  out.ratio("255² in bf16", "", "", static_cast<double>(as_bf16(255.0 * 255.0)));
  const auto c = static_cast<double>(input.model.d_model);
  // A sum of C ones, in bf16, term by term.
  const Accumulated ones = accumulate({.name = "ones",
                                       .count = input.model.d_model,
                                       .term = 1.0,
                                       .sum_dtype = DType::kBF16,
                                       .term_dtype = DType::kBF16});
  out.ratio("Σ of C ones added up in bf16", "C", fmt::format("C = {}", c), ones.value);
  out.note("y = w ∘ x / √(mean(x²) + ε); rows are reduced in fp32 whatever the format of x");
  return {out.table(), norm_table()};
}

}  // namespace tracestep
