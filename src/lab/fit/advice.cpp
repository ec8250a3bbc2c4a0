#include "lab/fit/advice.h"

#include <algorithm>

#include "analysis/cost.h"
#include "base/units.h"
#include "ir/op_def.h"
#include "lab/fit/plan.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::size_t kHolders = 10;

std::int64_t live_bytes(const OutOfMemoryState& oom) {
  std::int64_t out = 0;
  for (const LiveAllocation& block : oom.live) out += block.requested_bytes;
  return out;
}

// Returns a phrase for what the severest change from step `a` to `remedy` means for the user.
const char* consequence(const RunSpec& a, const Remedy& remedy) {
  const RunSpec& b = remedy.step;
  if (a.shape.context != b.shape.context) return "another task: the model sees less text";
  const bool is_stored_narrow = a.precision.parameters != b.precision.parameters;
  if (is_stored_narrow) return "another task: weights are rounded after every update";
  if (a.shape.batch != b.shape.batch) return "smaller batch; accumulate gradients for the same one";
  if (a.optimizer.moments != b.optimizer.moments) {
    if (b.optimizer.moments == Moments::k8Bit) return "AdamW's states in 8 bits, rounded at random";
    return b.optimizer.kind == OptimizerKind::kMuon ? "the optimizer's states rounded at random"
                                                    : "AdamW's states rounded at random";
  }
  if (a.precision != b.precision) return "products in bfloat16";
  if (a.grad_accum_dtype != b.grad_accum_dtype) return "gradients added up in 16 bits";
  const bool same_sums = a.ops == b.ops && a.attention == b.attention &&
                         a.loss_chunks == b.loss_chunks && a.ffn_chunks == b.ffn_chunks &&
                         remedy.micro_batches == 1;
  if (!same_sums) return "same numbers up to rounding";
  if (has_optimizer(a.offload) != has_optimizer(b.offload)) {
    return "the same numbers; updates wait for the bus to the host";
  }
  if (a.offload != b.offload)
    return "the same numbers; what blocks keep crosses the bus to the host";
  if (a.recompute == b.recompute) return "the same updates, one by one";
  return "the same numbers; a part of forward runs twice";
}

Fields<Remedy> time_fields() {
  using R = const Remedy&;
  return {{col::predicted_ms, [](R r) { return r.figures.ms; }},
          {col::tokens_per_s("at that time"),
           [](R r) { return 1e3 * static_cast<double>(tokens_of_step(r.step)) / r.figures.ms; }}};
}

}  // namespace

bool runs_out(const MemoryCell& cell) {
  const std::int64_t limit = cell.limit_bytes;
  return cell.run.status == Status::kOutOfMemory ||
         (limit > 0 && cell.run.predicted_peak_bytes > limit);
}

Table failure_table(const MemoryCell& cell) {
  const OutOfMemoryState& oom = *cell.run.oom;
  const Program& program = cell.run.program;
  Table table{.name = "failure", .title = "Out of memory", .columns = {col::item, col::value}};
  const bool in_step = oom.node != kNoNode;
  table.add_row({"phase", in_step ? name_of(program.node(oom.node).origin().phase)
                                  : std::string_view("before the step: weights, states, inputs")});
  if (in_step) {
    const Node& node = program.node(oom.node);
    table.add_row({"node", fmt::format("{} of {} ({}:{})", node.op->name, node.origin().path,
                                       node.origin().file, node.origin().line)});
    const auto done = static_cast<std::int64_t>(cell.run.moments.size());
    table.add_row({"kernels before it", fmt::format("{} of {}", std::max<std::int64_t>(0, done - 1),
                                                    launch_count(program))});
  }
  const std::int64_t live = live_bytes(oom);
  table.add_row({"asked for", fmt::format("{} of {}", format_bytes(oom.requested_bytes),
                                          name_of(oom.category))});
  table.add_row({"live", fmt::format("{} in {} blocks", format_bytes(live), oom.live.size())});
  const std::string end = oom.on_host ? "what the host's memory can take" : "the device's own end";
  table.add_row({"limit", oom.limit_bytes > 0 ? format_bytes(oom.limit_bytes) : end});
  if (oom.limit_bytes > 0) {
    table.add_row({"missing here", format_bytes(live + oom.requested_bytes - oom.limit_bytes)});
    table.add_row(
        {"missing at the peak", format_bytes(cell.run.predicted_peak_bytes - oom.limit_bytes)});
  }
  table.add_row({"predicted peak", format_bytes(cell.run.predicted_peak_bytes)});
  return table;
}

Table failure_holder_table(const MemoryCell& cell) {
  Holders holders;
  for (const Holding& h : cell.run.holdings) {
    if (!h.free) holders.add(cell.run.buffer(h), h.requested_bytes);
  }
  const std::int64_t total = holders.bytes();
  using H = const Holder&;
  const Fields<Holder> fields = {
      {col::component, &Holder::component},
      {col::op, [](H h) { return or_null(h.op); }},
      {col::category, [](H h) { return or_null(h.category); }},
      {col::buffers, &Holder::buffers},
      {col::bytes, &Holder::bytes},
      {with_digits(1, col::share_percent), [&](H h) { return percent_of(h.bytes, total); }},
      {col::reason("of the first of them"), [](H h) { return h.op ? Json(h.reason) : Json(); }}};
  Table table =
      table_of("failure_holders", "Who held the memory then", fields, holders.rows(kHolders));
  table.add_cells({{"component", "total"},
                   {"buffers", holders.buffers()},
                   {"bytes", total},
                   {"share_percent", 100.0}});
  return table;
}

// Returns the name of the device for which the relative times of remedies are predicted.
std::string priced_on(const FitQuestion& asked) {
  if (asked.times != nullptr) {
    return asked.times->sheet != nullptr ? asked.times->sheet->name : "this device";
  }
  return asked.traits.has_own_memory() ? "a usual GPU" : "a usual CPU";
}

Table remedy_table(const FitQuestion& asked, const Advice& advice) {
  using R = const Remedy&;
  Fields<Remedy> fields = {
      {to_copy(col::flags), &Remedy::command},
      {col::peak_bytes.titled("predicted peak"), [](R r) { return r.figures.peak_bytes; }},
      {col::spare_bytes, [&](R r) { return asked.limit_bytes - r.figures.peak_bytes; }}};
  if (std::ranges::any_of(advice.remedies, [](R r) { return r.figures.host_bytes > 0; })) {
    fields.add(col::host_bytes, [](R r) { return r.figures.host_bytes; });
  }
  if (asked.times != nullptr) fields.add(time_fields());
  fields.add(Fields<Remedy>{
      {real_column("time_per_token", fmt::format("token on {}", priced_on(asked)), "×", 3,
                   "1: as in the step that was asked for; of a usual device by rounded rates"),
       &Remedy::time_ratio},
      {real_column("flops_per_token", "FLOPs per token", "×", 3, "1: as before"),
       &Remedy::flops_ratio},
      {real_column("moved_per_token", "bytes moved per token", "×", 3), &Remedy::moved_ratio},
      {real_column("kernels_per_token", "kernels per token", "×", 3), &Remedy::kernels_ratio},
      {col::severity, [](R r) { return name_of(r.severity); }},
      {text_column("consequence"), [&](R r) { return consequence(asked.step, r); }},
      {col::change, &Remedy::what},
      {data_only(col::command), [](R r) { return command_of(r); }}});
  Table table =
      table_of("remedies", "What would fit, the smallest change first", fields, advice.remedies);
  if (asked.margin > 0 && !table.rows.empty()) {
    table.notes.push_back(
        fmt::format("each leaves at least {:.3g} % of the limit free", 100 * asked.margin));
  }
  note_micro_batches(advice.remedies, table);
  if (advice.tight) {
    table.notes.push_back(
        fmt::format("{} fits as well, with a peak of {}, and leaves {}", advice.tight->command,
                    format_bytes(advice.tight->figures.peak_bytes),
                    format_bytes(asked.limit_bytes - advice.tight->figures.peak_bytes)));
  }
  return table;
}

Table least_table(const FitQuestion& asked, const Advice& advice) {
  struct Least {
    const char* what;
    const Remedy& r;
  };
  using L = const Least&;
  Fields<Least> fields = {
      {text_column("task"), [](L l) { return l.what; }},
      {col::peak_bytes.titled("least peak"), [](L l) { return l.r.figures.peak_bytes; }},
      {bytes_column("kept_bytes", "weights and states"),
       [](L l) { return l.r.figures.kept_bytes; }},
      {to_copy(col::flags), [](L l) { return or_null(l.r.command); }},
      {data_only(col::command), [](L l) { return command_of(l.r); }}};
  fields.add(task_fields(), [&](L) { return &asked.step; });
  return table_of("least", "The least memory that would do", fields,
                  std::vector<Least>{{"as asked for", *advice.least},
                                     {"one sequence", *advice.least_sequence}});
}

}  // namespace tracestep
