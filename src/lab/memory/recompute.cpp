// Tables of recomputation in backward: bytes kept for it, kernels and FLOPs.
#include <algorithm>

#include "analysis/cost.h"
#include "analysis/roofline.h"
#include "analysis/saved.h"
#include "ir/op_def.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

struct Again {
  std::string choice;
  std::int64_t held_bytes = 0, kernels = 0, flops = 0, other_flops = 0;
  double us = 0.0, other_us = 0.0;  // modelled; `other`: of forward and backward
};

Again again_in(const MemoryRun& run) {
  Again out{.choice = name_of(run.spec.step.recompute),
            .held_bytes = held_for_recompute(run.program)};
  for (const Node& node : run.program.nodes) {
    const Phase phase = node.origin().phase;
    if (makes_views(run.program, node) || phase == Phase::kOptimizer) continue;
    const std::int64_t flops = cost_of(run.program, node).flops;
    const double us = modelled_us(run.program, node, run.traits.kind);
    if (phase == Phase::kRecompute) {
      ++out.kernels;
      out.flops += flops;
      out.us += us;
    } else {
      out.other_flops += flops;
      out.other_us += us;
    }
  }
  return out;
}

}  // namespace

std::int64_t held_for_recompute(const Program& program) {
  std::int64_t out = 0;
  for (const Saved& saved : saved_for_backward(program)) {
    const bool is_read_again = std::ranges::any_of(saved.readers, [&](NodeId reader) {
      return program.node(reader).origin().phase == Phase::kRecompute;
    });
    if (is_read_again) out += saved.bytes;
  }
  return out;
}

Table recompute_table(const MemoryCell& cell) {
  using A = const Again&;
  const Fields<Again> fields = {
      {col::choice, &Again::choice},
      {col::held_bytes.titled("kept for it", "results of forward that it is computed from"),
       &Again::held_bytes},
      {col::kernels("that run again"), &Again::kernels},
      {col::flops("of these"), &Again::flops},
      {real_column("flops_percent", "of the others", "%", 1, "FLOPs of forward and backward"),
       [](A a) { return percent_of(a.flops, a.other_flops); }},
      {with_digits(1, col::modelled_ms.titled(
                          "modelled time", "by rounded rates of a typical device; no prediction")),
       [](A a) { return 1e-3 * a.us; }},
      {real_column("modelled_percent", "of the others", "%", 1, "modelled in the same way"),
       [](A a) { return percent_of(a.us, a.other_us); }}};
  std::vector<Again> rows{again_in(cell.run)};
  if (rows[0].kernels == 0) rows.clear();
  Table table = table_of("recompute", "Computed again in backward", fields, rows);
  if (!cell.run.recompute_note.empty()) table.notes.push_back(cell.run.recompute_note);
  return table;
}

}  // namespace tracestep
