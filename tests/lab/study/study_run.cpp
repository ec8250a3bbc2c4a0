#include "lab/study/study_run.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "backends/comm/local/local_group.h"
#include "backends/reference/reference_device.h"
#include "base/error.h"
#include "course/published.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/study/summary.h"
#include "lab/time/tables.h"
#include "session/devices.h"
#include "support/backends.h"

namespace tracestep::testing {
namespace {

ModelConfig model(std::string name, std::int64_t layers, std::int64_t width) {
  return {.name = std::move(name),
          .vocab = 32,
          .d_model = width,
          .d_ff = 2 * width,
          .layers = layers,
          .heads = 2};
}

StudySizes sizes() {
  const BatchShape shape{.batch = 2, .context = 8};
  StudySizes out;
  out.models = {model("tiny", 1, 8), model("small", 2, 16)};
  out.shape = shape;
  out.steps = 8;
  out.scaled = model("tiny", 1, 8);
  out.contexts = {4, 8, 16};
  out.warmups = {0, 2};
  out.precise = {model("tiny", 1, 8), model("small", 2, 16)};
  out.precisions = {{}, {.autocast = DType::kBF16}};
  out.compiled = {model("tiny", 1, 8)};
  out.error = {.layers = 1, .tokens = 4};
  out.planned = model("planned", 2, 32);
  out.planned_contexts = {64, 128, 256};
  const RunSpec step{.model = model("small", 2, 16), .shape = shape, .mode = Mode::kStep};
  RunSpec in_parts = step;
  in_parts.ops = Granularity::kPrimitive;
  out.recorded = {step, in_parts};
  out.profiled = {step, step, in_parts};
  out.profiled[1].precision.autocast = DType::kBF16;
  out.attention = {.run = {.shape = {.batch = 2}},
                   .protocol = {.warmup = 1, .steps = 8, .max_seconds = 0.02}};
  out.widths = {4};
  out.attention_contexts = {16, 32, 64, 128};
  out.variant_contexts = {16, 32, 64};
  out.parallel.ranks = 2;
  return out;
}

StudyTraining training() {
  StudyTraining out;
  out.shape = {.batch = 2, .context = 8};
  for (int i = 1; i <= 10; ++i) {
    TrainStep step;
    step.step = i;
    step.loss = 4.0 - 0.2 * i;
    step.tokens_per_s = 100.0;
    out.steps.push_back(step);
  }
  out.steps.back().validation_loss = 2.5;
  out.sample = "The </script> end.";  // what a page must not break at
  return out;
}

double set_ms(const std::string& mode) {
  return mode == "step" ? 35.0 : mode == "forward-backward" ? 30.0 : mode == "forward" ? 10.0 : 9.0;
}

Json eight_around(double ms) {
  Json out = Json::array();
  for (const int i : {-4, -3, -2, -1, 1, 2, 3, 4}) out.push_back(ms * (1.0 + 0.001 * i));
  return out;
}

// Measured times of such small models are noise; these are not.
void set_times(std::vector<Table>& tables) {
  for (Table& table : tables) {
    const auto mode = table.index_of("mode"), size = table.index_of("size"),
               ops = table.index_of("ops"), median = table.index_of("median_ms"),
               context = table.index_of("context"), verdict = table.index_of("verdict");
    // Replaces the validity checker's verdicts on the times that were measured.
    if (verdict && (table.name == "validity" || is_verdict_column(table.columns[*verdict]))) {
      for (auto& row : table.rows) row[*verdict] = "ok";
    }
    if (table.name != "cells" && table.name != "scaling" && table.name != "time") continue;
    for (auto& row : table.rows) {
      double ms = set_ms(row[*mode].as_string());
      if (row[*ops].as_string() == "primitive") ms *= 1.5;
      if (row[*size].as_string() == "small") ms *= 8.0;
      if (table.name == "scaling") ms *= row[*context].as_double() / 8.0;
      row[*median] = ms;
      if (const auto samples = table.index_of("samples_ms")) row[*samples] = eight_around(ms);
      if (const auto counts = table.index_of("visit_samples")) row[*counts] = Json();
      if (const auto mean = table.index_of("mean_ms")) row[*mean] = ms;
      if (const auto deviation = table.index_of("std_ms")) row[*deviation] = 0.01 * ms;
      if (const auto others = table.index_of("others_cores")) row[*others] = 0.02;
    }
  }
  const auto set = [&](const std::string& path, Json to) { cell_at(tables, path) = std::move(to); };
  for (const auto& [column, value] : {std::pair{"primitive_ms", Json(420.0)},
                                      {"fused_ms", Json(280.0)},
                                      {"ratio", Json(0.667)},
                                      {"low", Json(0.66)},
                                      {"high", Json(0.675)},
                                      {"p", Json(0.001)},
                                      {"change", Json("faster")}}) {
    for (const char* size : {"small", "tiny"}) {
      set(fmt::format("granularity[mode step; size {}].{}", size, column), value);
    }
  }
  set("granularity[mode step; size tiny].primitive_ms", 42.0);
  for (const auto& [column, ms] : {std::pair{"plain_wall_ms", 10.0},
                                   {"plain_span_ms", 9.9},
                                   {"wall_ms", 10.1},
                                   {"busy_ms", 9.0},
                                   {"gaps_ms", 0.9},
                                   {"span_ms", 10.0},
                                   {"interrupted_ms", 0.0},
                                   {"recorded_gaps_ms", 1.0}}) {
    set(fmt::format("clocks[mode step].{}", column), ms);
  }
  // Recorded twice, the kernels of forward take the same.
  for (const auto& [pass, ms, products] : {std::tuple{"mode inference; pass all", 20.0, 10.0},
                                           {"mode step; pass forward", 20.0, 10.0},
                                           {"mode step; pass all", 90.0, 30.0}}) {
    set(fmt::format("passes[{}].ms", pass), ms);
    set(fmt::format("passes[{}].products_ms", pass), products);
    set(fmt::format("passes[{}].products_percent", pass), 100 * products / ms);
  }
  for (const auto& [precision, ms] : {std::pair{"fp32", 100.0}, {"bf16", 50.0}}) {
    for (const char* size : {"tiny", "small"}) {
      const std::string row =
          fmt::format("steps[size {}; mode forward-backward; precision {}].", size, precision);
      set(row + "median_ms", ms);
      set(row + "samples_ms", eight_around(ms));
      set(row + "visit_samples", Json());
    }
  }
  // Starts of processes in which first steps are slow.
  for (const auto& [warmup, mean, deviation] : {std::tuple{0, 14.0, 8.94}, {2, 10.0, 0.0}}) {
    const std::string row = fmt::format("warmup[warmup {}].", warmup);
    Json steps = Json::array();
    for (int i = 0; i < warmup + 5; ++i) steps.push_back(i == 0 ? 30.0 : 10.0);
    for (const auto& [column, value] : {std::pair{"mean_ms", Json(mean)},
                                        {"std_ms", Json(deviation)},
                                        {"median_ms", Json(10.0)},
                                        {"first_ms", Json(warmup == 0 ? 30.0 : 10.0)},
                                        {"second_ms", Json(10.0)},
                                        {"start_ms", Json(30.0)},
                                        {"unsettled", Json(1)},
                                        {"steps_ms", steps}}) {
      set(row + column, value);
    }
  }
  for (const auto& [context, forward, backward] :
       {std::tuple{64, 2.0, 4.0}, std::tuple{128, 7.6, 15.2}}) {
    const std::string row = fmt::format("attention[context {}; saved weights].", context);
    for (const auto& [part, ms] : {std::pair{"forward", forward}, {"backward", backward}}) {
      set(row + part + "_median_ms", ms);
      set(row + part + "_samples_ms", eight_around(ms));
    }
    set(row + "backward_over_forward", backward / forward);
  }
}

// Statistics are those of the samples, as in every study.
void set_statistics(Table& table) {
  constexpr std::string_view kSamples = "samples_ms";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::string name = table.columns[i].name;
    if (!name.ends_with(kSamples)) continue;
    const std::string part = name.substr(0, name.size() - kSamples.size());
    for (auto& row : table.rows) {
      if (!row[i].is_array() || row[i].size() < 2) continue;
      std::vector<double> samples;
      for (const Json& ms : row[i].items()) samples.push_back(ms.as_double());
      for (const auto& [statistic, value] : {std::pair{"median_ms", median_of(samples)},
                                             {"mean_ms", mean_of(samples)},
                                             {"std_ms", sample_std_of(samples)}}) {
        const auto at = table.index_of(part + statistic);
        if (at && row[*at].is_number()) row[*at] = value;
      }
    }
  }
}

}  // namespace

Json& cell_at(std::vector<Table>& tables, std::string_view path) {
  const std::size_t dot = path.rfind('.'), end = path[dot - 1] == ']' ? dot - 1 : dot;
  const std::size_t begin = std::min(path.find('['), end);
  const auto table = std::ranges::find(tables, path.substr(0, begin), &Table::name);
  TRACESTEP_CHECK(table != tables.end(), "no table of {}", path);
  const auto is_it = [&](const std::vector<Json>& row) {
    if (begin == end) return true;
    for (const std::string& condition :
         pages::split(path.substr(begin + 1, end - begin - 1), ";")) {
      const std::size_t space = condition.find(' ');
      const Json& cell = row[table->index_of(condition.substr(0, space)).value()];
      const std::string text = cell.is_string() ? cell.as_string() : cell.dump();
      if (text != condition.substr(space + 1)) return false;
    }
    return true;
  };
  const auto row = std::ranges::find_if(table->rows, is_it);
  TRACESTEP_CHECK(row != table->rows.end(), "no row of {}", path);
  return (*row)[table->index_of(path.substr(dot + 1)).value()];
}

const StudyReport& measured_study() {
  static const StudyReport report = [] {
    const auto cpu = [](const RunSpec&) { return backend_named("cpu").make({}); };
    register_device("cpu", cpu);
    register_group([](Device&, int ranks) { return make_local_group(ranks); });
    Driver driver;
    const StudyMachine machine{
        .driver = &driver,
        .make_device = cpu,
        .make_reference = [](const RunSpec&) { return make_reference_device({}); },
        .ceilings =
            [](const RunSpec&) {
              Ceilings out{.bandwidth_gb_s = 20, .arithmetic_gflops = 100};
              for (DType dtype : {DType::kF32, DType::kBF16}) out.products_gflops[dtype] = 100;
              return out;
            },
        .train = [](double) { return training(); },
        .beside_published = published_section,
        .traits = backend_named("cpu").make({})->traits(),
        .memory_bytes = std::int64_t{1} << 30,
        .place = {.threads = kStudyThreads},
        .environment = Json::object()};
    // More time than any guess from steps of microseconds asks for: nothing is left out.
    constexpr double kSeconds = 1e7;
    return run_study(machine, sizes(), kSeconds, [](const std::string&) {});
  }();
  return report;
}

const StudyReport& small_study() {
  static const StudyReport report = [] {
    StudyReport out = measured_study();
    set_times(out.tables);
    for (Table& table : out.tables) set_statistics(table);
    for (StudySection& section : out.sections) {
      for (Table& table : section.tables) {
        table = *std::ranges::find(out.tables, table.name, &Table::name);
      }
    }
    return answered(std::move(out.sections));
  }();
  return report;
}

}  // namespace tracestep::testing
