// Topics on memory and attention: programs are planned, nothing runs.
#include <algorithm>
#include <cmath>

#include "analysis/saved.h"
#include "lab/explain/topics.h"
#include "lab/memory/accounting.h"
#include "lab/memory/tables.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

RunSpec spec_of(const ExplainInput& input, Mode mode, Granularity ops = Granularity::kFused) {
  return {.model = input.model, .shape = input.shape, .mode = mode, .ops = ops};
}

MemoryCell cell_of(const RunSpec& spec) {
  return {.run = predict_memory(spec, {})};
}

double peak_of(const RunSpec& spec) {
  return static_cast<double>(predict_memory(spec, {}).map.peak_bytes);
}

double saved_layer(const ExplainInput& input, Granularity ops) {
  return 4 * static_cast<double>(saved_elements_per_layer(spec_of(input, Mode::kStep, ops)));
}

// True if the closed forms of the tensors that plain code and ours save hold for this model.
bool is_reference(const ExplainInput& input) {
  return variations_of(input.model).empty();
}

}  // namespace

double saved_by_layer(const ExplainInput& input) {
  RunSpec one = spec_of(input, Mode::kForwardBackward);
  one.model.layers = 1;
  RunSpec two = one;
  two.model.layers = 2;
  return static_cast<double>(saved_bytes(step_program(two)) - saved_bytes(step_program(one)));
}

Letters::Letters(const ExplainInput& input)
    : b(static_cast<double>(input.shape.batch)),
      t(static_cast<double>(input.shape.context)),
      c(static_cast<double>(input.model.d_model)),
      f(static_cast<double>(input.model.d_ff)),
      h(static_cast<double>(input.model.heads)),
      d(static_cast<double>(input.model.head_width())),
      l(static_cast<double>(input.model.layers)),
      v(static_cast<double>(input.model.vocab)),
      p(static_cast<double>(parameter_formula(input.model))) {}

void explain_peak_memory(const ExplainInput& input, Explanation& out) {
  for (Mode mode : kAll<Mode>) {
    out.values.add("mode").set("name", name_of(mode)).set("peak", peak_of(spec_of(input, mode)));
  }
  out.more.push_back(category_table(cell_of(spec_of(input, Mode::kStep))));
}

void explain_saved_for_backward(const ExplainInput& input, Explanation& out) {
  if (is_reference(input)) {
    out.values.set("fused", saved_layer(input, Granularity::kFused));
    out.values.set("primitive", saved_layer(input, Granularity::kPrimitive));
    out.values.set("course",
                   4 * static_cast<double>(course_elements_per_layer(input.model, input.shape)));
  }
  out.values.set("layer", saved_by_layer(input));
  out.more.push_back(saved_by_op_table(cell_of(spec_of(input, Mode::kForwardBackward))));
}

void explain_adamw(const ExplainInput&, Explanation& out) {
  const OptimizerOptions o;
  out.values.set("beta1", o.beta1).set("beta2", o.beta2).set("eps", o.eps);
  const double gradient = 0.01;
  double m = 0, v = 0;
  for (int t = 1; t <= 2; ++t) {
    m = o.beta1 * m + (1 - o.beta1) * gradient;
    v = o.beta2 * v + (1 - o.beta2) * gradient * gradient;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    Values& step = out.values.add("step").set("t", t).set("g", gradient).set("m", m).set("v", v);
    step.set("update", m_hat / (std::sqrt(v_hat) + o.eps));
    step.set("uncorrected", m / (std::sqrt(v) + o.eps));
  }
}

void explain_oom(const ExplainInput& input, Explanation& out) {
  const auto set = [&](const std::string& name, Mode mode, const Accounting& as) {
    const AccountedPeak peak = accounted_peak(spec_of(input, mode), as);
    out.values.set(name, peak.bytes).set(name + "_formula", peak.formula);
  };
  if (is_reference(input)) {
    set("one_graph", Mode::kForward, {.live_graphs = 1});
    set("two_graphs", Mode::kForward, {.live_graphs = 2});
    set("backward", Mode::kForwardBackward, {.kept_gradients = false});
    set("backward_kept", Mode::kForwardBackward, {.kept_gradients = true});
    set("step", Mode::kStep, {.kept_gradients = false});
    set("step_kept", Mode::kStep, {.kept_gradients = true});
  }
  ExplainInput half = input;
  half.shape.batch = std::max<std::int64_t>(1, input.shape.batch / 2);
  out.values.set("ours", peak_of(spec_of(input, Mode::kStep)));
  out.values.set("half_batch", half.shape.batch);
  out.values.set("ours_half", peak_of(spec_of(half, Mode::kStep)));
  RunSpec blocks = spec_of(input, Mode::kStep);
  blocks.recompute = Recomputation::blocks();
  out.values.set("ours_blocks", peak_of(blocks));
}

void explain_flash_attention(const ExplainInput&, Explanation& out) {
  Values& v = out.values;
  // Shows the identity on three scores that come one by one.
  const double x[] = {1.0, 3.0, 2.0};
  double m = -HUGE_VAL, sum = 0;
  for (double score : x) {
    const double next = std::max(m, score);
    sum = sum * std::exp(m - next) + std::exp(score - next);
    m = next;
    v.add("score").set("x", score).set("m", m).set("sum", sum);
  }
  v.set("all", std::exp(x[0] - m) + std::exp(x[1] - m) + std::exp(x[2] - m));
  v.set("lse", m + std::log(sum));
}

}  // namespace tracestep
