#include "lab/time/step_parts.h"

#include <algorithm>

#include "lab/measure/parts.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

double ms_between(std::int64_t start_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - start_ns) * 1e-6;
}

// A row of `bench` whose steps were timed by parts, with the statistics of each part.
struct PartRow {
  const ResultRow& row;
  Summary forward, backward, optimizer;

  explicit PartRow(const ResultRow& r)
      : row(r),
        forward(summarize(r.forward_samples_ms())),
        backward(summarize(r.numbers("backward_samples_ms"))),
        optimizer(summarize(r.numbers("optimizer_samples_ms"))) {}
};

void add_part(Fields<PartRow>& fields, const std::string& part, Summary PartRow::*member) {
  using P = const PartRow&;
  fields
      .add(real_column(part + "_ms", part, "ms", 3, "median, from an idle device to an idle one"),
           [member](P p) { return positive_or_null((p.*member).median); })
      .add(real_column(part + "_std_ms", part + " std", "ms", 3, "sample standard deviation"),
           [member](P p) {
             return when((p.*member).median > 0, finite_or_null((p.*member).sample_std));
           });
}

Fields<PartRow> part_fields() {
  using P = const PartRow&;
  Fields<PartRow> out = {{col::label, [](P p) { return p.row.label(); }},
                         {col::steps.titled("n", "that stop between the parts"),
                          [](P p) { return std::ssize(p.row.forward_samples_ms()); }}};
  add_part(out, "forward", &PartRow::forward);
  add_part(out, "backward", &PartRow::backward);
  add_part(out, "optimizer", &PartRow::optimizer);
  return out.add(col::backward_over_forward.titled("backward / forward"), [](P p) {
    const bool has_both = p.forward.median > 0 && p.backward.median > 0;
    return has_both ? Json(p.backward.median / p.forward.median) : Json();
  });
}

}  // namespace

PartStarts part_starts(const Program& program) {
  PartStarts out;
  const BufferPlan plan = plan_buffers(program);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!plan.runs[i]) continue;
    const auto id = static_cast<NodeId>(i);
    const Phase phase = program.node(id).origin().phase;
    if (phase == Phase::kBackward || phase == Phase::kRecompute) {
      if (out.backward == kNoNode) out.backward = id;
      out.optimizer = kNoNode;
    } else if (phase == Phase::kOptimizer && out.optimizer == kNoNode) {
      out.optimizer = id;
    }
  }
  return out;
}

StepParts time_step_parts(Executor& executor, Device& device, Measurement& measurement, int steps) {
  StepParts out;
  const PartStarts starts = part_starts(executor.program());
  const PauseClock clock(executor, device, {starts.backward, starts.optimizer});
  measurement.warm_up(1);
  for (int i = 0; i < steps; ++i) {
    const StepTimes step = measurement.step();
    const bool has_backward = starts.backward != kNoNode, has_last = starts.optimizer != kNoNode;
    const std::int64_t backward_end = has_last ? clock.at_ns(1) : step.end_ns;
    const std::int64_t forward_end = has_backward ? clock.at_ns(0) : step.end_ns;
    out.forward_ms.push_back(ms_between(step.start_ns, forward_end));
    if (has_backward) out.backward_ms.push_back(ms_between(forward_end, backward_end));
    if (has_last) out.optimizer_ms.push_back(ms_between(backward_end, step.end_ns));
  }
  return out;
}

Table step_part_table(std::span<const ResultRow> rows) {
  std::vector<PartRow> parts;
  for (const ResultRow& row : rows) {
    if (!row.forward_samples_ms().empty()) parts.emplace_back(row);
  }
  Table table = table_of("parts_alone", "Forward, backward and optimizer, each timed alone",
                         part_fields(), parts);
  const auto replays = [](const ResultRow& row) { return row.truth("graph").value_or(false); };
  if (std::ranges::any_of(rows, replays)) {
    table.notes.push_back(
        "a stop cuts a graph: these steps were issued launch by launch, also where the steps of "
        "the first table replay a graph");
  }
  table.notes.push_back(
      "the step waits for the device between its parts, so they may add up to more than a step "
      "that does not; the loss is in forward, recomputation in backward");
  return table;
}

}  // namespace tracestep
