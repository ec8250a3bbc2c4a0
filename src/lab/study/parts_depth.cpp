// Parts of the study that take single steps apart: their bytes, their kernels, attention alone.
#include <algorithm>
#include <array>
#include <tuple>

#include "analysis/cost.h"
#include "base/units.h"
#include "lab/attention/tables.h"
#include "lab/measure/statistics.h"
#include "lab/memory/tables.h"
#include "lab/predict/devices.h"
#include "lab/study/study.h"
#include "spec/axes.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

void add(Table table, const std::string& label, std::vector<Table>& out) {
  if (table.rows.empty()) return;
  table.title += ": " + label;
  table.name += "@" + label;
  out.push_back(std::move(table));
}

// Returns the section on a cell's memory. `alone`: the cell's forward without backward.
// `has_lines`: adds live bytes by kernel, a page's longest tables, for models that questions need.
StudySection memory_section(const MemoryCell& cell, const MemoryCell& alone, bool has_lines) {
  const std::string label = label_of(cell);
  StudySection out = section("memory-" + label, {});
  for (Table table : {category_table(cell), phase_table(cell), contract_table(cell),
                      formula_table(cell), holder_table(cell), largest_table(cell),
                      saved_by_op_table(cell), saved_by_block_table(cell)}) {
    add(std::move(table), label, out.tables);
  }
  if (!has_lines) return out;
  const std::string forward_label = label_of(alone);
  add(stack_table(cell), label, out.tables);
  add(stack_table(alone), forward_label, out.tables);
  return out;
}

StudySection profile_section(const ProfiledCell& cell) {
  const std::string label = label_of(cell.profile);
  StudySection out = section("profile-" + label, {}, {{"source", cell.profile.source}});
  for (Table table :
       {attention_table(cell), kind_table(cell), kernel_table(cell), matrix_table(cell)}) {
    add(std::move(table), label, out.tables);
  }
  return out;
}

// Returns the cells of attention. Those that questions need come first, in case time runs out:
// widest heads in both forms, longest context first, then more saved; last other widths and bf16.
std::vector<AttentionSpec> attention_specs(const StudySizes& sizes) {
  using S = AttentionSpec;
  const auto from_longest = [](std::vector<std::int64_t> contexts) {
    std::ranges::reverse(contexts);
    return attention_contexts(contexts);
  };
  const auto widths = [&](auto begin, auto end) {
    return axis<S>(std::vector<std::int64_t>(begin, end), &S::width);
  };
  const auto forms = axis<S>(
      std::array{AttentionForm::kNaive, AttentionForm::kFlash},
      [](S & spec) -> auto& { return spec.run.attention; });
  const auto saved = axis<S>(
      std::array{SavedScores{.scores = true}, SavedScores{.scores = true, .exp = true}}, &S::saved);
  S variant = sizes.attention;
  variant.protocol.steps = std::min(variant.protocol.steps, 5);
  const auto begin = sizes.widths.begin(), end = sizes.widths.end();
  std::vector<S> out = product<S>(
      {sizes.attention}, {widths(end - 1, end), from_longest(sizes.attention_contexts), forms});
  const auto contexts = from_longest(sizes.attention_contexts);
  constexpr int kFewer = 10;  // samples of a visit, of what no sentence compares
  S low = sizes.attention;
  low.protocol.steps = std::min(low.protocol.steps, kFewer);
  low.run.precision.autocast = DType::kBF16;
  S tiled = sizes.attention;
  tiled.protocol.steps = low.protocol.steps;
  tiled.run.attention = AttentionForm::kFlash;
  for (auto& more : {product<S>({variant}, {saved, widths(begin, begin + 1),
                                            from_longest(sizes.variant_contexts)}),
                     product<S>({sizes.attention}, {widths(begin, end - 1), contexts}),
                     product<S>({low}, {widths(end - 1, end), contexts, forms}),
                     product<S>({tiled}, {widths(begin, end - 1), contexts}),
                     product<S>({low}, {widths(begin, end - 1), contexts, forms})}) {
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

// Adds a step's bytes; if there is no time to measure them, those that the program predicts.
void add_bytes(StudyContext& context, const RunSpec& step, bool has_time) {
  context.announce(fmt::format("recording the bytes of {}", step.model.name));
  const auto run = [&](Mode mode) {
    MemoryRunSpec spec{.step = context.here(step), .times = mode == step.mode};
    spec.step.mode = mode;
    if (!has_time) return predict_memory(spec.step, context.machine.traits);
    MemoryRun out = context.driver().besides<MemoryRun>("bytes", full_key(spec), [&] {
      MemoryRun measured = run_memory(context.machine.make_device, spec);
      if (measured.oom) measured.detail = measured.oom->message;
      return measured;
    });
    out.spec = spec;
    add_program(out, context.machine.traits);
    return out;
  };
  context.memory.push_back({.run = run(step.mode)});
  context.forward_alone.push_back({.run = run(Mode::kForward)});
}

}  // namespace

Axis<AttentionSpec> attention_contexts(const std::vector<std::int64_t>& contexts) {
  return axis<AttentionSpec>(
      contexts, [](AttentionSpec & spec) -> auto& { return spec.run.shape.context; });
}

// Measures the smallest model's bytes, always: that needs no quiet machine and hardly any time.
void first_memory_part(StudyContext& context) {
  for (const RunSpec& step : context.sizes.recorded) {
    if (is_of_first_model(context, step)) add_bytes(context, step, true);
  }
}

void other_memory_part(StudyContext& context) {
  constexpr int kSteps = 4;  // warm-up, recorded, timed by kernel; forward alone thrice
  for (const RunSpec& step : context.sizes.recorded) {
    if (is_of_first_model(context, step)) continue;
    add_bytes(context, step, context.has_time_for(kSteps * context.seconds_of(step)));
  }
}

void add_memory_sections(StudyContext& context) {
  if (context.memory.empty()) return;
  Table all = peak_table(context.memory);
  all.columns.resize(all.columns.size() - 3);  // structured: told by the other tables
  for (auto& row : all.rows) row.resize(all.columns.size());
  context.sections.push_back(section("memory", {std::move(all)}));
  for (std::size_t i = 0; i < context.memory.size(); ++i) {
    const MemoryCell& cell = context.memory[i];
    if (cell.run.status != Status::kOk) continue;
    const RunSpec& step = cell.run.spec.step;
    const bool has_lines = is_of_first_model(context, step) ||
                           step.model.name == context.sizes.recorded.back().model.name;
    context.sections.push_back(memory_section(cell, context.forward_alone[i], has_lines));
  }
}

void profile_part(StudyContext& context) {
  const Protocol protocol{.warmup = 1, .steps = 3, .recorded_steps = 3};
  std::vector<ProfiledCell> cells;
  const Ceilings ceilings = context.ceilings();
  for (const RunSpec& run : runs_in(context, "passes")) {
    // If the rounds had no time for the plain steps, they are timed here. A profiler slows its own
    // first step.
    const CellResult* timed = result_of(CellSpec{run, {}}, context.steps);
    const int plain = timed == nullptr ? protocol.warmup + protocol.steps : 0;
    const int steps = plain + protocol.warmup + 1 + protocol.recorded_steps;
    const double seconds = context.seconds_of(run);
    // Launches of the smallest model are exact, however short the time is.
    const bool is_due = is_of_first_model(context, run) && run.ops == Granularity::kFused &&
                        run.precision == Precision();
    constexpr double kFilling = 3;  // weights and states take as long as so many steps
    const double needed = seconds > 0 ? (1.5 * steps + kFilling) * seconds : 1e9;
    const bool has_time = context.seconds_left() > needed;
    if (!is_due && !context.has_time_for(needed)) continue;
    context.announce(fmt::format("profiling {}", label_of(run)));
    const Protocol least{.warmup = 1, .steps = 1, .recorded_steps = 1};
    const ProfileSpec spec{.step = run, .protocol = has_time ? protocol : least};
    Profile profile = context.driver().besides<Profile>("profile", full_key(run), [&] {
      return profile_step(context.machine.make_device, spec, context.driver().stop_signal(),
                          timed == nullptr ? std::nullopt : plain_times(*timed));
    });
    if (profile.status == Status::kInterrupted) break;
    profile.spec = spec;
    if (profile.status == Status::kOk && profile.program.nodes.empty()) {
      profile.program = step_program(run, context.machine.traits);
    }
    ProfiledCell cell{std::move(profile), ceilings, {}};
    cell.work = work_of(cell.profile, ceilings);
    cells.push_back(std::move(cell));
  }
  if (cells.empty()) return;
  StudySection summary =
      section("profile", {pass_table(cells), clock_table(cells), launch_check_table(cells)});
  if (ceilings.known()) {
    summary.tables.push_back(ceiling_table(ceilings));
    const Json* gpu = context.machine.environment.find("gpu");
    if (gpu != nullptr && gpu->is_string() && context.machine.traits.has_own_memory()) {
      add_published_peaks(gpu->as_string(), summary.tables.back());
    }
  }
  context.sections.push_back(std::move(summary));
  // At other contexts than the study's, questions ask for the passes but not for each kernel.
  const auto is_step = [&](const ProfiledCell& cell) {
    const RunSpec& step = cell.profile.spec.step;
    return step.mode == Mode::kStep && cell.profile.status == Status::kOk &&
           step.shape.context == context.sizes.shape.context;
  };
  for (const ProfiledCell& cell : cells) {
    if (!is_step(cell)) continue;
    context.sections.push_back(profile_section(cell));
  }
}

namespace {

// Returns the device's highest rate in matrix products of any dtype, in TFLOP/s, as an attention
// kernel may multiply in another dtype than its operands have. Measures the rate again if a cell
// exceeds it: other work may have slowed the first measurement.
double attention_roof(StudyContext& context) {
  constexpr int kTries = 3;
  double reached = 0, roof = 0;
  for (const AttentionResult& r : context.attention) {
    reached = std::max(reached, reached_tflops(r));
  }
  for (int i = 0; i < kTries && (i == 0 || reached > roof); ++i) {
    if (i > 0) context.known_ceilings.reset();
    for (const auto& [dtype, gflops] : context.ceilings().products_gflops) {
      roof = std::max(roof, gflops * 1e-3);
    }
  }
  return roof;
}

}  // namespace

void attention_part(StudyContext& context) {
  std::vector<AttentionSpec> specs = attention_specs(context.sizes);
  // The leads are the cells that answers compare: the widest heads at the longest context, and each
  // form of attention_ways() at the longest of its contexts.
  const StudySizes& sizes = context.sizes;
  std::vector<WantedCell<AttentionSpec>> wanted;
  const auto want = [&](const AttentionSpec& spec, std::int64_t longest) {
    wanted.push_back({spec, spec.run.shape.context == longest});
  };
  for (AttentionSpec& spec : specs) {
    spec.run = context.here(spec.run);
    const bool is_widest = spec.width == sizes.widths.back() && spec.run.precision == Precision();
    want(spec, is_widest ? sizes.attention_contexts.back() : 0);
  }
  for (const AttentionSpec& spec : attention_ways(context)) {
    want(spec, sizes.variant_contexts.back());
  }
  context.measure("attention", wanted, context.attention_cells);
  if (context.driver().is_child()) return;
  for (const AttentionSpec& spec : specs) {
    if (const AttentionResult* r = result_of(spec, context.attention_cells)) {
      context.attention.push_back(*r);
    }
  }
  if (context.attention.empty()) return;
  std::ranges::stable_sort(context.attention, {}, [](const AttentionResult& r) {
    const AttentionSpec& spec = r.spec;
    return std::tuple(spec.run.attention, spec.saved.count(), -spec.width, spec.run.shape.context);
  });
  const double roof_tflops = attention_roof(context);
  for (AttentionResult& r : context.attention) {
    r.roof_tflops = roof_tflops;
    r.roof_others_cores = context.ceilings().others_cores;
  }
  context.sections.push_back(
      section("attention", {attention_table(context.attention, context.machine.environment),
                            attention_scaling_table(context.attention)}));
}

}  // namespace tracestep
