#include "cli/bench_op.h"

#include <map>

#include "backends/null/null_device.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "lab/measure/ceilings.h"
#include "spec/axes.h"

namespace tracestep::cli {
namespace {

// Splits calls at commas, but for those within brackets.
std::vector<std::string> split_calls(const std::string& where, const std::string& text) {
  std::string separated = text;
  int depth = 0;
  for (char& c : separated) {
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (c == ',' && depth > 0) c = '\n';
  }
  std::vector<std::string> out = split_list(where, separated);
  for (std::string& call : out) std::ranges::replace(call, '\n', ',');
  return out;
}

void check_fields(const RunGrid& grid) {
  for (const RunField& field : run_fields()) {
    const bool means =
        is_of_attention(field) && !is_shape(field) && (!field.is_form || field.name == "ops");
    if (means || !grid.is_given(field.name)) continue;
    throw Error(ErrorCode::kUsage, field.where(), "it is of a model's step, and --op is one op",
                "leave one out");
  }
}

}  // namespace

void add_op_options(OptionSet& set, OpOptions& options) {
  set.value("--op", "CALL[,CALL]",
            "instead of steps, these ops by themselves, forward and gradient, with attributes as "
            "programs show them: softmax, sum{axes=[0]}",
            [&options](const std::string& where, const std::string& text) {
              options.calls = split_calls(where, text);
            });
  set.lists_cells();
  set.value("--shape", "SHAPES[,SHAPES]",
            "with --op, the operands' shapes joined by +: 512x64+64x256; of another dtype "
            "8x64:i32, of indices below a number 8x64:50257, of rank 0 scalar",
            [&options](const std::string& where, const std::string& text) {
              options.shapes = split_list(where, text);
            });
  set.lists_cells();
  set.choices("--cache", options.caches, {"warm", "cold"},
              "with --op, whether caches hold what the step before left in them, or are swept");
  set.lists_cells();
}

std::vector<OpSpec> op_specs(const OpOptions& options, const RunGrid& grid,
                             const Protocol& protocol, DeviceUse use) {
  check_fields(grid);
  if (protocol.max_noise_percent > 0 || protocol.part_steps > 0) {
    throw Error(ErrorCode::kUsage, protocol.part_steps > 0 ? "--part-steps" : "--max-noise",
                "parts of an op take --steps samples each", "leave one out");
  }
  using S = OpSpec;
  S usual{.protocol = protocol};
  usual.protocol.max_seconds = 0;
  std::vector<bool> are_cold;
  for (const std::string& cache : options.caches) are_cold.push_back(cache == "cold");
  std::vector<Axis<S>> axes = {axis<S>(runs_of(grid, Takes::kAll, use), &S::run),
                               axis<S>(options.calls, &S::call)};
  if (!options.shapes.empty()) axes.push_back(axis<S>(options.shapes, &S::shape));
  axes.push_back(axis<S>(are_cold, &S::is_cold));
  std::vector<S> out = product<S>({usual}, axes);
  for (const S& spec : out) check_op(spec);
  return out;
}

int run_ops(const OutputOptions& output, std::vector<OpSpec> specs, RoundOptions rounds,
            std::optional<double> roof, Cells& cells) {
  probe_output(output);
  const Json environment = cells.environment_of(specs[0].run);
  const StopSignal& stop = cells.stop("ops");
  rounds.seed = specs[0].run.seed;
  const DeviceFactory make_planned = [](const RunSpec& run) {
    return make_null_device({.traits = traits_of(run.place)});
  };
  const auto plan_of = [&](const OpSpec& spec) {
    const auto planned = make_planned(spec.run);
    const PartsProgram program = op_program(spec, *planned);
    return JobPlan{.place = spec.run.place,
                   .peak_bytes = planned_bytes(program, spec.run.executor, *planned).peak,
                   .has_time = false};
  };
  auto results = cells.measure<OpResult>(
      "op", specs, rounds, plan_of,
      [&](const OpSpec& spec, const StepObserver&) { return visit(make_device, spec, &stop); });
  std::map<std::string, Ceilings> known;  // by precision
  std::vector<OpWork> work;
  std::string how;
  double company = 0;
  for (const OpResult& result : results) {
    const RunSpec& run = result.spec.run;
    const auto ceilings = cells.besides<Ceilings>("ceilings", result.spec, [&] {
      const auto [found, is_new] = known.try_emplace(name_of(run.precision));
      if (is_new && roof != 0.0) found->second = device_ceilings(run);
      return found->second;
    });
    work.push_back(work_of(op_program(result.spec, *make_planned(run)), ceilings));
    if (how.empty() && ceilings.known()) how = "at best: " + ceilings.how;
    company = std::max(company, ceilings.others_cores.value_or(0));
  }
  std::vector<Table> tables{op_table(results, work, environment)};
  if (!how.empty()) tables[0].notes.push_back(std::move(how));
  if (company > 0.1) {
    tables[0].notes.push_back(fmt::format(
        "other programs kept {:.1f} cores busy while that was measured: it may be too low",
        company));
  }
  cells.add_beside("op", results, tables);
  CellTables out{.output = output,
                 .schema = "tracestep.op/1",
                 .environment = environment,
                 .tables = std::move(tables),
                 .done = results.size(),
                 .wanted = specs.size() * static_cast<std::size_t>(rounds.repeat)};
  if (out.wanted == 1 && out.done == 1 && results[0].status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "bench", results[0].detail);
  }
  return cells.finish(std::move(out));
}

}  // namespace tracestep::cli
