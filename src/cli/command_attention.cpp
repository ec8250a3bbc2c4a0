// tracestep attention: measures attention alone over widths and contexts.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "backends/null/null_device.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/attention/tables.h"
#include "lab/measure/ceilings.h"
#include "spec/axes.h"

namespace tracestep::cli {
namespace {

constexpr const char* kAttentionSchema = "tracestep.attention/1";

// A sweep's name, and the values that it gives to fields for which the user gave none.
struct Sweep {
  std::string_view name;
  std::vector<std::pair<const char*, std::vector<std::string>>> values;
};

const std::vector<Sweep>& sweeps() {
  static const std::vector<Sweep> all = {
      {"grid",
       {{"batch", {"8"}},
        {"context", {"256", "1024", "4096", "8192", "16384"}},
        {"precision", {"fp32"}},
        {"attention", {"naive"}}}},
      {"flash",
       {{"batch", {"1"}},
        {"context",
         {"128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768", "65536"}},
        {"precision", {"bf16-pure", "fp32"}},
        {"attention", {"naive", "flash"}}}}};
  return all;
}

struct AttentionOptions {
  RunGrid grid;
  AttentionSpec base;  // warm-up, steps and time of every cell
  std::string sweep = "grid";
  std::vector<std::int64_t> widths = {16, 32, 64, 128};
  std::vector<std::string> masks = {"causal"};
  std::vector<SavedScores> saved = {{}};
  OutputOptions output;
  RoundOptions rounds;
};

// Gives the fields that no flag has set the values of the sweep.
void complete(AttentionOptions& o) {
  for (const auto& [field, values] : std::ranges::find(sweeps(), o.sweep, &Sweep::name)->values) {
    if (!o.grid.is_given(field)) o.grid.offer(field, values);
  }
}

// Makes an axis of the field's values in the grid.
Axis<AttentionSpec> axis_of(const RunGrid& grid, std::string_view field) {
  Axis<AttentionSpec> out;
  for (const RunChange& change : grid.changes(field)) {
    out.push_back([change](AttentionSpec& spec) { change(spec.run); });
  }
  return out;
}

// Returns the cells of the grid, by precision, then form, saved tensors, mask, width and context.
// `run` has the other fields. Flash attention, which saves no scores, ignores `o.saved`.
std::vector<AttentionSpec> specs_of(const AttentionOptions& o, const RunSpec& run) {
  using S = AttentionSpec;
  S usual = o.base;
  usual.run = run;
  std::vector<S> forms = product<S>(
      {usual},
      {axis_of(o.grid, "precision"), axis_of(o.grid, "attention"), axis<S>(o.saved, &S::saved)});
  std::erase_if(forms, [&](const S& spec) {
    return spec.run.attention == AttentionForm::kFlash &&
           name_of(spec.saved) != name_of(o.saved.front());
  });
  for (S& spec : forms) {
    if (spec.run.attention == AttentionForm::kFlash) spec.saved = {};
  }
  std::vector<bool> are_causal;
  for (const std::string& mask : o.masks) are_causal.push_back(mask == "causal");
  return product(std::move(forms), {axis<S>(are_causal, &S::causal), axis<S>(o.widths, &S::width),
                                    axis_of(o.grid, "context")});
}

// Notes the first context that failed for lack of memory, and what twice the largest needs.
void add_limit_notes(std::span<const AttentionResult> results, const DeviceFactory& make_device,
                     Table& table) {
  if (results.empty()) return;
  const std::int64_t limit = results[0].spec.run.place.memory_limit_bytes;
  const auto failed = std::ranges::find(results, Status::kOutOfMemory, &AttentionResult::status);
  table.notes.push_back(
      failed == results.end()
          ? "no cell ran out of memory"
          : fmt::format("out of memory first at width {}, context {}: it needs {}, the limit is {}",
                        failed->spec.width, failed->spec.run.shape.context,
                        format_bytes(failed->predicted_peak_bytes),
                        limit > 0 ? format_bytes(limit) : "the device's own"));
  AttentionSpec next = std::ranges::max_element(results, {}, [](const AttentionResult& r) {
                         return r.spec.run.shape.context;
                       })->spec;
  next.run.shape.context *= 2;
  const PartsBytes bytes = predict_attention(next, *make_device(next.run));
  table.notes.push_back(
      fmt::format("twice that, context {} at width {}, would hold {} before backward and {} at the "
                  "peak (predicted)",
                  next.run.shape.context, next.width, format_bytes(bytes.before_backward),
                  format_bytes(bytes.peak)));
}

// Adds accounts, buffer by buffer, of the largest cell that ran and the first that did not fit.
void add_accounts(std::span<const AttentionResult> results, const DeviceFactory& make_device,
                  std::vector<Table>& tables) {
  const AttentionResult *largest = nullptr, *failed = nullptr;
  for (const AttentionResult& r : results) {
    if (r.status == Status::kOutOfMemory) {
      if (failed == nullptr) failed = &r;
    } else if (largest == nullptr || r.predicted_peak_bytes > largest->predicted_peak_bytes) {
      largest = &r;
    }
  }
  if (largest != nullptr) tables.push_back(attention_account_table(*largest, make_device));
  if (failed == nullptr) return;
  Table table = attention_account_table(*failed, make_device);
  table.name += "@oom";
  tables.push_back(std::move(table));
}

int run_attention(AttentionOptions o, Cells& cells) {
  complete(o);
  RunSpec run = run_of(o.grid, Takes::kPlanner, cells.use());
  check_rounds(o.rounds);
  probe_output(o.output);
  const Json environment = cells.environment_of(run);
  run.place = with_limit(run.place, environment);
  const std::vector<AttentionSpec> specs = specs_of(o, run);
  const StopSignal& stop = cells.stop("cells");
  o.rounds.seed = run.seed;
  bool has_roofs = false;
  const auto measure_one = [&](const AttentionSpec& spec, const StepObserver&) {
    if (!std::exchange(has_roofs, true)) {  // before the first cell
      for (const AttentionSpec& other : cells.is_child() ? std::vector{spec} : specs) {
        roof_tflops(other.run);
      }
    }
    return visit(make_device, spec, &stop);
  };
  const auto planned = make_null_device({.traits = traits_of(run.place)});
  const auto plan_of = [&](const AttentionSpec& spec) {
    return JobPlan{.place = run.place,
                   .peak_bytes = predict_attention(spec, *planned).peak,
                   .seconds = 2 * spec.protocol.max_seconds,
                   .has_time = spec.protocol.max_seconds > 0};
  };
  auto results = cells.measure<AttentionResult>("attention", specs, o.rounds, plan_of, measure_one);
  for (AttentionResult& result : results) {
    const Roof roof = cells.besides<Roof>("roof", result.spec, [&] {
      return Roof{roof_tflops_for(result.spec.run, reached_tflops(result)),
                  roof_others_cores(result.spec.run)};
    });
    result.roof_tflops = roof.tflops;
    result.roof_others_cores = roof.others_cores;
  }
  std::vector<Table> tables{attention_table(results, environment)};
  // A fit needs three contexts.
  if (Table scaling = attention_scaling_table(results); !scaling.rows.empty()) {
    tables.push_back(std::move(scaling));
  }
  add_accounts(results, cells.device_factory(), tables);
  add_limit_notes(results, cells.device_factory(), tables[0]);
  cells.add_beside("attention", results, tables);
  CellTables out{.output = o.output,
                 .schema = kAttentionSchema,
                 .environment = environment,
                 .tables = std::move(tables),
                 .done = results.size(),
                 .wanted = specs.size() * static_cast<std::size_t>(o.rounds.repeat)};
  if (specs.size() == 1 && results.size() == 1 && results[0].status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "attention", results[0].detail);
  }
  return cells.finish(std::move(out));
}

void add_what(OptionSet& set, const std::shared_ptr<AttentionOptions>& o) {
  set.group("What to measure");
  set.choice(
      "--sweep", o->sweep, {"grid", "flash"},
      "grid: as the defaults below; flash: both forms, batch 1, bf16-pure and fp32, contexts "
      "128 to 65536");
  add_field(set, o->grid, "batch", Values::kOne);
  set.integers("--width", o->widths, kShapeRange, "width of q, k and v, D, in each head");
  set.lists_cells();
  set.integer("--heads", o->base.heads, {1, kShapeRange.max},
              "heads H, each an attention of its own");
  add_field(set, o->grid, "context", Values::kGrid);
  add_field(set, o->grid, "attention", Values::kGrid,
            "two matrix products around a softmax, or one kernel without T² tensors");
  set.choices("--mask", o->masks, {"causal", "none"},
              "whether a token sees later ones (none) or not (causal)");
  set.lists_cells();
  set.value(
      "--saved", "SET[,SET]",
      "with naive attention, the T² tensors kept until backward starts, joined by +: weights; exp, "
      "which a softmax in parts keeps; scores, if something still holds them",
      [o](const std::string& where, const std::string& text) {
        o->saved.clear();
        for (const std::string& part : split_list(where, text)) {
          o->saved.push_back(parse_saved(where, part));
        }
      },
      name_of(o->saved.front()));
  add_protocol_flag(set, o->base.protocol, "warmup");
  add_protocol_flag(set, o->base.protocol, "steps", "timed steps of forward and backward");
  add_protocol_flag(set, o->base.protocol, "max_seconds",
                    "end the timed steps of a cell after this many seconds");
  add_round_options(set, o->rounds);
}

}  // namespace

Command attention_command() {
  const auto options = std::make_shared<AttentionOptions>();
  complete(*options);
  Command command{.name = "attention"};
  OptionSet& set = command.options;
  add_what(set, options);
  set.group("How it runs");
  add_field(set, options->grid, "device", Values::kOne, "cpu; cuda[:N]; null (bytes only)");
  add_field(set, options->grid, "threads", Values::kOne);
  add_field(set, options->grid, "precision", Values::kGrid, "of q, k, v and products");
  add_field(set, options->grid, "memory_limit_bytes", Values::kOne,
            "behave like a device with this much memory; on a CPU nine tenths of the machine's "
            "memory; none: try even what this machine has no room for");
  add_field(set, options->grid, "seed", Values::kOne, "seed of the values");
  add_output_options(set, options->output);
  measures_with(command, options, run_attention);
  command.job_fields = fields_that([](const RunField& field) {
    return field.is_axis && !is_shape(field);  // a fit needs all contexts
  });
  command.job_fields.insert(command.job_fields.end(), {"mask", "width"});
  return command;
}

}  // namespace tracestep::cli
