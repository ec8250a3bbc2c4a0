// The topic `checkpointing`: the arithmetic of groups and of halving, beside what programs hold.
#include <algorithm>
#include <cmath>

#include "analysis/cost.h"
#include "analysis/saved.h"
#include "lab/explain/topics.h"
#include "lab/fit/remedy.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

constexpr double kMiB = 1 << 20;
// The course's handout of 2026, problem gradient_checkpointing: 32 blocks whose input is 80 MiB,
// and what the inside of one was measured to hold.
constexpr double kHandoutBlocks = 32, kHandoutInside = 3651.31 * kMiB;
constexpr double kHandoutInput = 80 * kMiB;

RunSpec spec_of(const ExplainInput& input, const std::string& choice) {
  return {.model = input.model,
          .shape = input.shape,
          .mode = Mode::kForwardBackward,
          .recompute = parse_recomputation("explain", choice)};
}

// The figures of the program that a choice of recomputation gives.
struct Form {
  std::string choice;
  double arithmetic_bytes = 0;
  std::int64_t held_bytes = 0, saved_bytes = 0, peak_bytes = 0;
  double flops_ratio = 0;
  std::string command;
};

Form form_of(const ExplainInput& input, const std::string& choice, double arithmetic_bytes) {
  const MemoryRun run = predict_memory(spec_of(input, choice), {});
  double again = 0, once = 0;
  for (const Node& node : run.program.nodes) {
    if (!is_product(node)) continue;
    const auto flops = static_cast<double>(cost_of(run.program, node).flops);
    (node.origin().phase == Phase::kRecompute ? again : once) += flops;
  }
  return {.choice = choice,
          .arithmetic_bytes = arithmetic_bytes,
          .held_bytes = held_for_recompute(run.program),
          .saved_bytes = saved_bytes(run.program),
          .peak_bytes = run.predicted_peak_bytes,
          .flops_ratio = (once + again) / once,
          .command = "tracestep memory --predict " + flags_of(run.spec.step)};
}

Table form_table(const std::vector<Form>& forms) {
  const Fields<Form> fields = {
      {col::choice, &Form::choice},
      {bytes_column("arithmetic_bytes", "by arithmetic", "inputs and insides alone"),
       [](const Form& f) { return static_cast<std::int64_t>(f.arithmetic_bytes); }},
      {col::held_bytes.titled("inputs held", "of the program, for what is computed again"),
       &Form::held_bytes},
      {col::saved_bytes("of the program, in all"), &Form::saved_bytes},
      {col::peak_bytes("of the program, forward and backward"), &Form::peak_bytes},
      {real_column("flops_ratio", "FLOPs", "×", 3, "of matrix products; 1: nothing again"),
       &Form::flops_ratio},
      {col::command, &Form::command}};
  return table_of("forms", "The same by programs, forward and backward", fields, forms);
}

void add_handout(Explanation& out) {
  double least = HUGE_VAL, best = 0;
  for (double size = 1; size <= kHandoutBlocks; size *= 2) {
    const double inputs = kHandoutBlocks / size,
                 bytes = inputs * kHandoutInput + size * kHandoutInside;
    out.values.add("handout").set("size", size).set("inputs", inputs).set("bytes", bytes);
    if (bytes < least) {
      least = bytes;
      best = size;
    }
  }
  out.values.set("handout_best", least / kMiB).set("handout_size", best);
}

}  // namespace

void explain_checkpointing(const ExplainInput& input, Explanation& out) {
  const Letters n(input);
  const double inside = saved_by_layer(input), stream = 4 * n.b * n.t * n.c;
  std::vector<Form> forms{form_of(input, "none", n.l * inside)};
  out.values.set("inside", inside);
  double best_bytes = 0, best = 0;
  for (double size = 1; size <= n.l; size *= 2) {
    const double inputs = std::ceil(n.l / size), bytes = inputs * stream + size * inside;
    out.values.add("group").set("size", size).set("inputs", inputs).set("bytes", bytes);
    forms.push_back(form_of(input, size == 1 ? "blocks" : fmt::format("every={}", size), bytes));
    if (best == 0 || bytes < best_bytes) {
      best = size;
      best_bytes = bytes;
    }
  }
  out.values.set("best", best);
  const double levels = std::ceil(std::log2(n.l)), nested = inside + (levels + 1) * stream;
  Values& halving = out.values.add("halving").set("inputs", levels + 1).set("bytes", nested);
  halving.set("runs", n.l * (1 + levels / 2)).set("each", 1 + levels / 2);
  forms.push_back(form_of(input, "nested", nested));
  out.values.set("flops_ratio", forms[1].flops_ratio);  // of blocks
  if (n.l == kHandoutBlocks && stream == kHandoutInput) add_handout(out);
  ExplainInput four = input;
  four.model.layers = 4;
  four.model.name = "custom";
  const RunSpec demo = spec_of(four, "every=2");
  out.values.set("demo", flags_of(demo));
  out.values.set("held", held_for_recompute(predict_memory(demo, {}).program));
  out.more.push_back(form_table(forms));
}

}  // namespace tracestep
