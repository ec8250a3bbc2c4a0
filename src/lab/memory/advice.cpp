#include "lab/memory/advice.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/cost.h"
#include "base/units.h"
#include "exec/executor.h"
#include "ir/op_def.h"
#include "lab/memory/fit.h"
#include "lab/memory/holders.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr std::size_t kHolders = 10;

std::int64_t live_bytes(const OutOfMemoryState& oom) {
  std::int64_t out = 0;
  for (const LiveAllocation& block : oom.live) out += block.requested_bytes;
  return out;
}

// Everything is stored narrow.
bool is_pure(const Precision& precision) {
  return precision.parameters != DType::kF32;
}

struct Figures {
  // 0: the step has a budget for its peak, which no choice of what to compute again meets.
  std::int64_t peak_bytes = 0, host_bytes = 0;
  std::int64_t kept_bytes = 0;  // weights and states, which neither batch nor context changes
  double flops = 0, moved = 0, kernels = 0;  // per token
};

std::int64_t kept_bytes(const Program& program) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool is_kept = leaf.leaf == LeafKind::kParameter || leaf.leaf == LeafKind::kState;
    if (is_kept && leaf.memory == Memory::kDevice) out += leaf.type.bytes();
  }
  return out;
}

Figures figures_of(const RunSpec& step, const Program& program, const DeviceTraits& traits) {
  const Cost cost = total_cost(program);
  const auto tokens = static_cast<double>(step.shape.batch * step.shape.context);
  return {predicted_peak_bytes(step.executor, program, traits),
          host_bytes(program),
          kept_bytes(program),
          static_cast<double>(cost.flops) / tokens,
          static_cast<double>(cost.bytes_read + cost.bytes_written) / tokens,
          static_cast<double>(launch_count(program)) / tokens};
}

Figures figures_of(const RunSpec& step, const DeviceTraits& traits) {
  try {
    return figures_of(step, step_program(step, traits), traits);
  } catch (const BudgetNotMet&) {
    return {};
  }
}

// The search for remedies: changes of one thing each, as small as fits, alone or combined.
class Search {
 public:
  Search(const MemoryCell& cell, std::int64_t limit)
      : limit_(limit),
        traits_(cell.run.traits),
        start_{.step = cell.run.spec.step},
        now_(figures_of(start_.step, traits_)),
        figures_{{start_.command, now_}} {}

  // Tries single changes, also together with fused ops, which keep the numbers and the task; if
  // none fits, pairs with each change that helps; then all together.
  std::vector<Remedy> run() {
    std::vector<Remedy> level{start_}, first{start_};
    if (auto next = fused(start_)) first.push_back(std::move(*next));
    std::vector<Remedy> found = fitting(one_more(first, true));
    for (int depth = 1; found.empty() && depth < 4; ++depth) {
      level = one_more(level, false);
      if (level.empty()) break;
      found = fitting(one_more(level, true));
    }
    return found;
  }

 private:
  using Changes = std::vector<Remedy>;

  bool fits(const Remedy& r) const { return r.peak_bytes > 0 && r.peak_bytes <= limit_; }

  // The changes that fit, each once, those that alter the task least first.
  Changes fitting(Changes all) const {
    Changes out;
    for (Remedy& r : all) {
      const bool is_new =
          std::ranges::none_of(out, [&](const Remedy& o) { return o.command == r.command; });
      if (fits(r) && is_new) out.push_back(std::move(r));
    }
    std::ranges::stable_sort(out, {}, [&](const Remedy& r) {
      return std::tuple(severity(r), -r.step.shape.batch * r.step.shape.context);
    });
    return out;
  }

  int severity(const Remedy& r) const {
    if (r.step.shape.context != start_.step.shape.context) return 4;
    if (r.step.precision != start_.step.precision) return is_pure(r.step.precision) ? 3 : 2;
    const bool same_moments = r.step.optimizer.moments == start_.step.optimizer.moments;
    return r.step.shape.batch != start_.step.shape.batch || !same_moments ? 1 : 0;
  }

  // Changes of one thing on top of each of `from`, each set of them once: those without a size,
  // from which a search goes on, or, `sized`, those of which one may be enough.
  Changes one_more(const Changes& from, bool sized) {
    Changes out;
    const auto add = [&out](std::optional<Remedy> next) {
      const bool is_new = next && std::ranges::none_of(out, [&](const Remedy& o) {
                            return o.command == next->command;
                          });
      if (is_new) out.push_back(std::move(*next));
    };
    for (const Remedy& r : from) {
      const bool is_step = r.step.mode == Mode::kStep;
      // Where weights and states alone are too many, only what makes those fewer can help.
      const bool has_room = !sized || figures_.at(r.command).kept_bytes <= limit_;
      if (has_room) add(fused(r));
      add(with(r, &RunSpec::updates, UpdateTime::kEarly, is_step));
      if (has_room) add(with(r, &RunSpec::attention, AttentionForm::kFlash));
      if (sized && has_room) add(recompute(r));
      add(with(r, &RunSpec::offload, Offload::kOptimizer, is_step && traits_.has_own_memory()));
      if (sized && has_room) add(batch(r));
      add(moments(r));
      add(precision(r, {.autocast = DType::kBF16}));
      if (sized && has_room) add(context(r));
      if (sized) add(precision(r, {.parameters = DType::kBF16}));
      Remedy least = r;
      least.step.shape.batch = r.step.parallel.replicas();
      if (!sized && least.step.shape.batch != r.step.shape.batch) add(described(least));
    }
    return out;
  }

  // With one field of the step changed, unless it has that value or means nothing here.
  template <class T>
  std::optional<Remedy> with(Remedy r, T RunSpec::*field, T value, bool has_meaning = true) {
    if (!has_meaning || r.step.*field == value) return std::nullopt;
    r.step.*field = value;
    return described(r);
  }

  std::optional<Remedy> fused(const Remedy& r) {
    return with(r, &RunSpec::ops, Granularity::kFused);
  }

  // The cheapest choice of what to compute again that fits.
  std::optional<Remedy> recompute(Remedy r) {
    const Recomputation& now = r.step.recompute;
    const bool is_larger_budget =
        now.kind == Recomputation::Kind::kBudget && now.budget_bytes > limit_;
    if (r.step.mode == Mode::kInference) return std::nullopt;
    if (now != Recomputation() && !is_larger_budget) return std::nullopt;
    // To find that nothing fits takes many times as long as to find what does, and what fits least
    // is close to whole blocks.
    constexpr double kFarFromBlocks = 1.5;
    r.step.recompute = parse_recomputation("recompute", "blocks");
    const Figures blocks = figures_of(r.step, traits_);
    if (static_cast<double>(blocks.peak_bytes) > kFarFromBlocks * static_cast<double>(limit_)) {
      return std::nullopt;
    }
    r.step.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = limit_};
    return described(r);
  }

  std::optional<Remedy> moments(Remedy r) {
    Moments& stored = r.step.optimizer.moments;
    if (r.step.mode != Mode::kStep || stored == Moments::kBF16) return std::nullopt;
    stored = Moments::kBF16;
    return described(r);
  }

  std::optional<Remedy> precision(Remedy r, const Precision& other) {
    const Precision& now = r.step.precision;
    // Changing fp16 to bf16 saves nothing.
    if (now == other || is_pure(now) || (now.autocast && other.autocast)) return std::nullopt;
    r.step.precision = other;
    return described(r);
  }

  std::optional<Remedy> batch(const Remedy& r) {
    const int replicas = r.step.parallel.replicas();  // which share it equally
    return largest(r.step.shape.batch / replicas - 1, [&](std::int64_t n) {
      Remedy out = r;
      out.step.shape.batch = n * replicas;
      return out;
    });
  }

  // In multiples of 64 tokens where possible: odd lengths are slow.
  std::optional<Remedy> context(const Remedy& r) {
    const std::int64_t now = r.step.shape.context, unit = now > 64 ? 64 : 1;
    return largest((now - 1) / unit, [&](std::int64_t n) {
      Remedy out = r;
      out.step.shape.context = n * unit;
      return out;
    });
  }

  // The largest n in [1, most] that fits; peaks grow with n, so that nothing fits if 1 does not.
  template <class With>
  std::optional<Remedy> largest(std::int64_t most, With&& with) {
    if (most < 1) return std::nullopt;
    std::optional<Remedy> best = described(with(1));
    if (!fits(*best)) return std::nullopt;
    std::int64_t low = 2, high = most;
    while (low <= high) {
      const std::int64_t n = low + (high - low) / 2;
      Remedy r = described(with(n));
      if (fits(r)) {
        best = std::move(r);
        low = n + 1;
      } else {
        high = n - 1;
      }
    }
    return best;
  }

  Remedy described(Remedy r) {
    const RunSpec &a = start_.step, &b = r.step;
    r.what.clear();
    r.command.clear();
    for (const RunField& field : run_fields()) {
      const std::string from = text_of(field, a), to = text_of(field, b);
      if (from == to) continue;
      r.what += fmt::format("{}{} {} → {}", r.what.empty() ? "" : ", ", field.name, from, to);
      r.command += fmt::format("{}{} {}", r.command.empty() ? "" : " ", field.flag, to);
    }
    // The flags identify a combination, which the search can reach in several ways.
    const auto [known, is_new] = figures_.try_emplace(r.command);
    if (is_new) known->second = figures_of(r.step, traits_);
    const Figures& f = known->second;
    r.peak_bytes = f.peak_bytes;
    r.host_bytes = f.host_bytes;
    r.flops_ratio = f.flops / now_.flops;
    r.moved_ratio = f.moved / now_.moved;
    r.kernels_ratio = f.kernels / now_.kernels;
    return r;
  }

  std::int64_t limit_;
  DeviceTraits traits_;
  Remedy start_;
  Figures now_;
  std::map<std::string, Figures> figures_;  // by command
};

const char* consequence(const MemoryCell& cell, const Remedy& r) {
  const RunSpec &a = cell.run.spec.step, &b = r.step;
  if (a.shape.context != b.shape.context) return "another task: the model sees less text";
  if (a.precision != b.precision) return "other roundings";
  if (a.optimizer.moments != b.optimizer.moments) return "AdamW's states rounded at random";
  if (a.shape.batch != b.shape.batch) return "smaller batch; accumulate gradients for the same one";
  const bool same_ops = a.ops == b.ops && a.attention == b.attention;
  const bool same_places = a.offload == b.offload;
  if (same_ops && !same_places) return "the same numbers; updates wait for the bus to the host";
  if (same_ops && a.recompute == b.recompute) return "the same updates, one by one";
  if (same_ops) return "the same numbers; a part of forward runs twice";
  return "same numbers up to rounding";
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
  Table table{.name = "failure",
              .title = "Out of memory",
              .columns = {text_column("item"), text_column("value")}};
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
      {text_column("component", {}, "model path, layers added up"), &Holder::component},
      {text_column("op"), [](H h) { return or_null(h.op); }},
      {text_column("category"), [](H h) { return or_null(h.category); }},
      {int_column("buffers"), &Holder::buffers},
      {bytes_column("bytes"), &Holder::bytes},
      {real_column("share_percent", "share", "%", 1),
       [&](H h) { return percent_of(h.bytes, total); }},
      {text_column("reason", {}, "of the first of them"),
       [](H h) { return h.op ? Json(h.reason) : Json(); }}};
  Table table =
      table_of("failure_holders", "Who held the memory then", fields, holders.rows(kHolders));
  table.add_cells({{"component", "total"},
                   {"buffers", holders.buffers()},
                   {"bytes", total},
                   {"share_percent", 100.0}});
  return table;
}

std::vector<Remedy> remedies(const MemoryCell& cell, std::int64_t limit_bytes) {
  return Search(cell, limit_bytes).run();
}

Table remedy_table(const MemoryCell& cell, std::int64_t limit_bytes, const Predictor* times) {
  using R = const Remedy&;
  const std::vector<Remedy> found = remedies(cell, limit_bytes);
  Fields<Remedy> fields = {
      {text_column("change"), &Remedy::what},
      {bytes_column("peak_bytes", "predicted peak"), &Remedy::peak_bytes},
      {bytes_column("spare_bytes", "to spare"), [&](R r) { return limit_bytes - r.peak_bytes; }}};
  if (std::ranges::any_of(found, [](R r) { return r.host_bytes > 0; })) {
    fields.add(bytes_column("host_bytes", "in host memory"), &Remedy::host_bytes);
  }
  add_times<Remedy>(fields, cell.run.traits, times, [](R r) { return &r.step; });
  fields.add(Fields<Remedy>{
      {real_column("flops_per_token", "FLOPs per token", "×", 3, "1: as before"),
       &Remedy::flops_ratio},
      {real_column("moved_per_token", "bytes moved per token", "×", 3), &Remedy::moved_ratio},
      {real_column("kernels_per_token", "kernels per token", "×", 3), &Remedy::kernels_ratio},
      {text_column("consequence"), [&](R r) { return consequence(cell, r); }},
      {text_column("flags"), &Remedy::command},
      {data_only(text_column("command")), [](R r) { return command_of(r.step); }}});
  Table table = table_of("remedies", "What would fit, the smallest change first", fields, found);
  if (table.rows.empty()) {
    table.notes.push_back(fmt::format(
        "nothing that was tried fits into {}: single changes, among them one sequence, fused ops "
        "and low precision, and sets of up to four",
        format_bytes(limit_bytes)));
  }
  return table;
}

}  // namespace tracestep
