// The run of the study: the experiments one after the other, each within its share of the time, and
// the cells that they ask the driver for.
#include <algorithm>
#include <array>
#include <ctime>
#include <functional>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/study/experiments.h"

namespace tracestep {

using Clock = std::chrono::steady_clock;

std::string words_of(const BatchShape& shape) {
  return fmt::format(" {}x{}", shape.batch, shape.context);
}

double StudyContext::seconds_left() const {
  if (driver().is_stopped()) return 0;
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

bool StudyContext::has_time_for(double seconds) {
  const bool has_time = seconds_left() > std::max(0.0, seconds);
  ++(has_time ? begun : left_out);
  return has_time;
}

double StudyContext::seconds_of(const RunSpec& step) const {
  const auto of = [&](const RunSpec& run) {
    const CellResult* cell = result_of(CellSpec{run, {}}, steps);
    return cell != nullptr && cell->status == Status::kOk ? max_of(cell->samples_ms) * 1e-3 : 0.0;
  };
  if (const double known = of(step); known > 0) return known;
  double same_mode = 0, other_mode = 0;
  for (const RunSpec& run : runs_in(*this, "time")) {
    if (!is_same_model(run.model, step.model)) continue;
    if (run.mode == step.mode) same_mode = std::max(same_mode, of(run));
    if (other_mode > 0 || run.mode == step.mode) continue;
    other_mode = of(run) * visit_weight(CellSpec{step, {}}) / visit_weight(CellSpec{run, {}});
  }
  return same_mode > 0 ? same_mode : other_mode;
}

const Ceilings& StudyContext::ceilings() {
  if (!known_ceilings) {
    known_ceilings = Ceilings{};
    if (machine.ceilings) {
      known_ceilings = driver().besides<Ceilings>("ceilings", full_key(here({})),
                                                  [&] { return machine.ceilings(here({})); });
    }
  }
  return *known_ceilings;
}

RunSpec StudyContext::here(RunSpec run) const {
  run.place = machine.place;
  run.seed = machine.seed;
  return run;
}

std::string StudyContext::stage_of(std::string_view what) const {
  return fmt::format("{}{}", what, words_of(sizes.shape));
}

std::vector<CellResult> StudyContext::measured(std::span<const RunSpec> runs) const {
  std::vector<CellResult> out;
  for (const RunSpec& run : runs) {
    if (const CellResult* cell = result_of(CellSpec{run, {}}, steps)) out.push_back(*cell);
  }
  return out;
}

template <class Spec, class Result>
void StudyContext::measure(const std::string& stage, const std::vector<WantedCell<Spec>>& cells,
                           std::map<std::string, Result>& results, Visits visits) {
  // Cells have up to twelve rounds, leads at least nine, as far as time allows: the interval of
  // nine medians leaves out the least and the most, so that one disturbed visit does not widen it.
  constexpr int kMostRounds = 12, kRoundsOfLeads = 9;
  RoundLimits limits{.most = kMostRounds,
                     .seconds = seconds_left(),
                     .seed = machine.seed,
                     .least_of_leads = kRoundsOfLeads};
  constexpr int kSamplesOfOne = 6;  // which an interval of 95 % needs
  if (visits == Visits::kOnce) limits.least = limits.least_of_leads = 1;
  if (machine.visits > 0) limits.least = limits.least_of_leads = limits.most = machine.visits;
  std::vector<Spec> specs;
  for (const WantedCell<Spec>& cell : each_once(cells)) {
    if (result_of(cell.spec, results) != nullptr) continue;
    limits.leads += cell.is_lead ? 1 : 0;
    specs.push_back(cell.spec);
    Protocol& protocol = specs.back().protocol;
    if (visits == Visits::kOnce) {
      protocol.steps = kSamplesOfOne;
    } else {
      protocol.visit_seconds = kVisitSeconds;
    }
  }
  if (driver().is_child()) {
    limits = {.least = 1, .most = 1};
  } else if (limits.seconds <= 0) {
    left_out += static_cast<int>(specs.size());
    return;
  }
  int last = -1;
  driver().on_visit = [&](const std::string& label, int round) {
    if (std::exchange(last, round) == round) return;  // one line a round
    announce(fmt::format("round {} of times, {} and others", round, label));
  };
  for (std::optional<Result>&result : driver().visit_cells<Result>(
           stage, specs, limits,
           [&](const Spec&spec, const auto&) {
             return visit(machine.make_device, spec, driver().stop_signal());
           },
           machine.in_processes)) {
    ++(result ? begun : left_out);
    if (!result) continue;
    if constexpr (std::same_as<Result, CellResult>) driver().complete(*result);
    const std::string key = key_of(result->spec).dump();
    results[key] = *std::move(result);
  }
  driver().on_visit = {};
}
template void StudyContext::measure(const std::string&, const std::vector<WantedCell<CellSpec>>&,
                                    std::map<std::string, CellResult>&, Visits);
template void StudyContext::measure(const std::string&,
                                    const std::vector<WantedCell<AttentionSpec>>&,
                                    std::map<std::string, AttentionResult>&, Visits);

namespace {

// Returns the sizes at the largest batch and context, down to a quick study's, at which the
// smallest model's cells fit into `seconds`, by what a visit takes now. A small step in many rounds
// says more than a large one in few; on a busy machine a longer study answers what a quick one
// does, or more. A process that measures for another one takes the shape asked for.
StudySizes fitted(const StudyMachine& machine, StudySizes sizes, double seconds) {
  // The smallest model's cells take as long as so many visits of its step: 16 in three rounds, and
  // the leads in six more.
  constexpr int kVisits = 16 * 3 + 6 * 6;
  const BatchShape quick = quick_study_sizes().shape, usual = sizes.shape;
  const auto tokens = [](const BatchShape& shape) { return shape.batch * shape.context; };
  const bool is_quick = tokens(usual) <= tokens(quick);
  if (sizes.is_shape_fixed || is_quick || machine.traits.has_own_memory()) return sizes;
  const std::array shapes{usual, BatchShape{usual.batch, usual.context / 2},
                          BatchShape{quick.batch, usual.context / 2}, quick};
  const BatchShape* chosen = nullptr;
  Driver& driver = *machine.driver;
  if (driver.is_child()) {
    chosen = std::ranges::find_if(shapes, [&](const BatchShape& shape) {
      return driver.asked().find(words_of(shape) + ":") != std::string::npos;
    });
    if (chosen == shapes.end()) chosen = &shapes.front();
  }
  CellSpec pilot{{.model = sizes.models.front(), .shape = usual, .mode = Mode::kStep},
                 {.warmup = 1, .steps = kVisitSamples, .recorded_steps = 0}};
  pilot.step.place = machine.place;
  pilot.step.seed = machine.seed;
  const auto largest = [&] {
    const Clock::time_point start = Clock::now();
    visit(machine.make_device, pilot, driver.stop_signal());
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    const double per_token = kVisits * taken / static_cast<double>(tokens(usual));
    for (const BatchShape& shape : shapes) {
      if (per_token * static_cast<double>(tokens(shape)) <= seconds) return shape;
    }
    return quick;
  };
  const BatchShape shape =
      chosen != nullptr ? *chosen : driver.besides<BatchShape>("shape", full_key(pilot), largest);
  if (tokens(shape) < tokens(usual)) at_shape(shape, sizes);
  return sizes;
}

Table part_table() {
  Table table{.name = "parts", .title = "What ran, and for how long"};
  table.columns = {text_column("part"),
                   real_column("seconds", "time", "s", 1),
                   real_column("computed_s", "of processors", "s", 1,
                               "time of all threads of the study's process"),
                   int_column("left_out", "left out", "cells for which there was no time"),
                   text_column("status", "", "done, in part, left out or out of memory"),
                   text_column("detail", "", "of what ran out of memory"),
                   data_only(text_column("tables", "", "that lack rows where it had no time"))};
  return table;
}

// Runs an experiment and adds its row to `parts`. If it runs out of memory, its results until then
// are kept, and the other experiments still run.
void run_one(const Experiment& experiment, StudyContext& context, Table& parts) {
  const Clock::time_point begin = Clock::now();
  const std::clock_t own = std::clock();
  context.begun = context.left_out = 0;
  Json lack;
  try {
    experiment.run(context);
  } catch (const OutOfMemory& error) {
    context.announce(fmt::format("{} ran out of memory, and is left out", experiment.name));
    lack = error.text();
  }
  parts.add_row({experiment.name, std::chrono::duration<double>(Clock::now() - begin).count(),
                 static_cast<double>(std::clock() - own) / CLOCKS_PER_SEC, context.left_out,
                 !lack.is_null()         ? "out of memory"
                 : context.left_out == 0 ? "done"
                 : context.begun > 0     ? "in part"
                                         : "left out",
                 lack, experiment.tables});
}

}  // namespace

StudyReport run_study(const StudyMachine& machine, const StudySizes& asked, double budget_seconds,
                      const std::function<void(const std::string& what)>& announce) {
  const Clock::time_point start = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const bool is_gpu = machine.traits.has_own_memory();
  const auto share_of_time = [&](const Experiment& experiment) {
    return is_gpu ? experiment.gpu_share : experiment.share;
  };
  const StudySizes sizes = fitted(machine, asked, experiment_of(step_part).share * budget_seconds);
  StudyContext context{.machine = machine, .sizes = sizes, .announce = announce};
  Table parts = part_table();
  std::vector<Experiment> all = all_experiments();
  const bool has_ranks = sizes.parallel.is_on(), has_larger = models_of(sizes).size() > 1;
  std::erase_if(all, [&](const Experiment& experiment) {
    const bool is_asked = (experiment.run != rank_part || has_ranks) &&
                          (experiment.run != larger_step_part || has_larger);
    return !is_asked || (machine.driver->is_child() && !experiment.has_cells);
  });
  // If only a quick study's context fits, larger models get a fifth of their share of the time.
  const bool is_slow = sizes.shape.context < asked.shape.context &&
                       sizes.shape.context == quick_study_sizes().shape.context;
  double of_larger = has_larger ? 0.0 : experiment_of(larger_step_part).share;
  for (Experiment& experiment : all) {
    experiment.share = share_of_time(experiment);
    if (!is_slow || experiment.run != larger_step_part) continue;
    constexpr double kStill = 0.2;
    of_larger = (1 - kStill) * experiment.share;
    experiment.share *= kStill;
  }
  for (Experiment& experiment : all) {
    if (experiment.run == step_part) experiment.share += of_larger;
  }
  double shares = 0;  // of those that have not run yet
  for (const Experiment& experiment : all) shares += experiment.share;
  constexpr double kReport =
      2.5;              // seconds of one thread for tables, sentences, pages and pictures
  double slowness = 1;  // how long such a second takes beside what else runs here
  for (const Experiment& experiment : all) {
    const double before = passed();
    const std::clock_t own = std::clock();
    const double report = std::min(kReport * slowness, budget_seconds / 4);
    const double left = std::max(0.0, budget_seconds - passed() - report);
    const double seconds = experiment.share > 0 ? left * experiment.share / shares : 0;
    context.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(seconds));
    shares -= experiment.share;
    run_one(experiment, context, parts);
    const double computed = static_cast<double>(std::clock() - own) / CLOCKS_PER_SEC;
    if (experiment.share <= 0)
      slowness = std::max(slowness, (passed() - before) / std::max(computed, 1e-3));
  }
  if (context.driver().is_child()) return {};
  if (sizes.shape.context != asked.shape.context) {
    parts.notes.push_back(fmt::format(
        "steps are of {} × {} tokens in place of {} × {}: by what one visit took, there "
        "was no time for more",
        sizes.shape.batch, sizes.shape.context, asked.shape.batch, asked.shape.context));
  }
  std::vector<StudySection>& sections = context.sections;
  sections.push_back(section("parts", {std::move(parts)},
                             {{"budget", fmt::format("{:.1f}", budget_seconds / 60.0)},
                              {"taken", fmt::format("{:.1f}", passed() / 60.0)}}));
  return answered(in_reading_order(std::move(sections)));
}

}  // namespace tracestep
