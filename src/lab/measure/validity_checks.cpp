// The checks of single rows. Each reads columns of `bench` and reports its fault; the limits are
// wide enough that a correct row from a busy machine is not reported.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/measure/validity_parts.h"
#include "nn/config.h"
#include "ops/attention_sizes.h"
#include "passes/memory_passes.h"
#include "planning/device_traits.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

using Found = std::optional<Verdict>;

std::int64_t bytes(double value) {
  return static_cast<std::int64_t>(value);
}

DeviceTraits traits_of(const ResultRow& row) {
  return traits_named(row.text("device"));
}

// Reports other programs: a steady one shows in no sample, as it looks like a slower machine.
Found others_running(const ResultRow& row) {
  const auto others = row.others_cores(), cores = row.environment_number("cores");
  if (!computes(row) || !had_company(row)) return {};
  const Json* asked = row.parameter("threads");
  const bool has_own = asked != nullptr && asked->is_number() && asked->as_double() > 0;
  const auto threads =
      has_own ? std::optional(asked->as_double()) : row.environment_number("threads");
  // A GPU's speed does not depend on busy cores of the host.
  const bool may_be_slower =
      !traits_of(row).has_own_memory() && cores && threads && *threads + *others > *cores;
  return Verdict{"others_running", may_be_slower ? Severity::kDoubt : Severity::kNote,
                 fmt::format("other programs used {:.1f}{} cores", *others,
                             cores ? fmt::format(" of your {:.0f}", *cores) : std::string())};
}

// --- the clocks -------------------------------------------------------------------------------

// Reports a device that was busy for longer than the host's clock shows: no synchronization.
Found missing_synchronization(const ResultRow& row) {
  constexpr double kSpanOverWall = 1.10;  // both of the same steps
  constexpr double kBusyOverWall = 1.50;
  const auto wall = row.wall_ms(), span = row.number("device_span_ms");
  const auto busy = row.device_busy_ms(), recorded = row.instrumented_wall_ms();
  if (!computes(row) || !wall || *wall <= 0) return {};
  const bool long_span = span && *span > kSpanOverWall * *wall;
  // Busy time is that of recorded steps. Without their own wall time, nothing shows what held them
  // up, and recorded_apart() reports. It is compared with the longest step, recorded ones among
  // them: a machine with other work on it stretches single steps many times.
  const std::vector<double> samples = row.samples_ms();
  const double longest =
      std::max({*wall, samples.empty() ? 0.0 : max_of(samples), recorded.value_or(0.0)});
  const bool long_busy = busy && recorded && *busy > kBusyOverWall * longest;
  if (!long_span && !long_busy) return {};
  return Verdict{
      "missing_synchronization", Severity::kInvalid,
      fmt::format("the wall clock says {:.3f} ms, but the device {} {:.3f} ms: it "
                  "stopped before the work was done",
                  *wall, long_span ? "spans" : "is busy for", long_span ? *span : *busy)};
}

Found launch_bound(const ResultRow& row) {
  constexpr double kBusyShare = 0.80;
  const auto wall = row.wall_ms(), busy = row.device_busy_ms();
  if (!computes(row) || !wall || !busy || *busy <= 0 || *busy >= kBusyShare * *wall) return {};
  // The kernels' times are of recorded steps. Where those show no such rest, it is a difference
  // between the steps and not the host's.
  const auto recorded = row.instrumented_wall_ms();
  const double occupied = *busy + row.interrupted_ms().value_or(0);
  if (recorded && *recorded > 0 && occupied >= kBusyShare * *recorded) return {};
  const auto launches = row.launches();
  const std::string each =
      launches && *launches > 0
          ? fmt::format(", {:.1f} µs per launch", (*wall - *busy) / *launches * 1e3)
          : std::string();
  return Verdict{"launch_bound", Severity::kNote,
                 fmt::format("kernels work {:.0f} % of the wall time; the rest is {}{}: this row "
                             "measures more than the kernels",
                             100 * *busy / *wall,
                             recorded ? "the host's, as in recorded steps"
                                      : "the host's, or a difference from recorded steps",
                             each)};
}

Found profiled(const ResultRow& row) {
  if (!row.truth("profiled").value_or(false)) return {};
  return Verdict{"profiled", Severity::kDoubt,
                 "a profiler listened while the steps were timed: host times are inflated; time "
                 "and profile in separate runs"};
}

// Returns how much a counter of the device grew during the row; nullopt: it was not read twice.
std::optional<double> counted(const ResultRow& row, std::string_view fact) {
  const Json *before = row.find("facts_before"), *after = row.find("facts_after");
  if (before == nullptr || after == nullptr || !before->is_object() || !after->is_object())
    return {};
  const Json *from = before->find(fact), *to = after->find(fact);
  if (from == nullptr || to == nullptr || !from->is_number() || !to->is_number()) return {};
  return to->as_double() - from->as_double();
}

// Reports throttled clocks. Flags say what holds at an instant, and may be left from the row
// before; the device also counts for how long its limits held the clocks.
Found throttled(const ResultRow& row) {
  const std::string why = row.text("throttled");
  if (why.empty()) return {};
  const auto by_power = counted(row, "power_limited_ns"), by_heat = counted(row, "heat_limited_ns"),
             clock = counted(row, "sm_clock_mhz");
  const bool are_counted = why.find("hw_") == std::string::npos;  // the reasons that were flagged
  const bool was_held = by_power.value_or(1) > 0 || by_heat.value_or(1) > 0;
  if (are_counted && !was_held && clock == 0.0) return {};
  return Verdict{
      "throttled", Severity::kDoubt,
      fmt::format(
          "measured while throttled: {}{}; its time is no less than at full clocks", why,
          clock && *clock != 0 ? fmt::format(", the clock {:+.0f} MHz", *clock) : std::string())};
}

// --- reports on speed, units and labels -------------------------------------------------------

Found faster_than_the_roof(const ResultRow& row) {
  constexpr double kMargin = 1.05;  // ceilings are measured too
  const auto speed = row.tflops(), roof = row.number("roof_tflops");
  if (!speed || !roof || *roof <= 0 || *speed <= kMargin * *roof) return {};
  const bool is_noisy = had_company(row, kRoofCompany);
  return Verdict{"faster_than_the_roof", is_noisy ? Severity::kDoubt : Severity::kInvalid,
                 fmt::format("{:.3f} TFLOP/s are {:.0f} % of the {:.3f} that the device reached at "
                             "best: {}",
                             *speed, 100 * *speed / *roof, *roof,
                             is_noisy ? "other programs ran while that was measured, so it is "
                                        "too low"
                                      : "time, FLOPs or unit are wrong")};
}

bool differs(double a, double b) {
  return std::abs(a - b) > 1e-6 * std::max(std::abs(a), std::abs(b));
}

// Returns the sequences of a step, of all its micro-batches; nullopt: the row does not say.
std::optional<double> sequences_of(const ResultRow& row) {
  const auto batch = row.batch();
  if (!batch) return {};
  return *batch * row.number("accumulate").value_or(1);
}

Found unit_mix_up(const ResultRow& row) {
  const std::vector<double> samples = row.samples_ms();
  const auto median = row.median_ms(), flops = row.flops();
  const auto speed = row.tflops(), tokens = row.number("tokens_per_s");
  const auto sequences = sequences_of(row), context = row.context();
  const auto wrong = [](std::string_view what, double is, double should_be) {
    return Verdict{"unit_mix_up", Severity::kInvalid,
                   fmt::format("{} says {:.6g}, its parts give {:.6g}", what, is, should_be)};
  };
  if (!samples.empty() && median && differs(*median, median_of(samples))) {
    return wrong("median_ms", *median, median_of(samples));
  }
  if (!median || *median <= 0) return {};
  if (speed && flops && differs(*speed, *flops / *median * 1e-9)) {
    return wrong("tflops", *speed, *flops / *median * 1e-9);
  }
  if (tokens && sequences && context && differs(*tokens, *sequences * *context / *median * 1e3)) {
    return wrong("tokens_per_s", *tokens, *sequences * *context / *median * 1e3);
  }
  return {};
}

// Returns the model of the row's label; nullopt if it is no preset and the row lacks its sizes.
std::optional<ModelConfig> labelled_model(const ResultRow& row) {
  const auto vocab = row.vocab();
  if (!vocab) return {};
  ModelConfig out;
  const Json* cell = row.parameters();
  if (const ModelConfig* known = find_model(row.size())) {
    out = *known;
  } else if (cell != nullptr && cell->find("d_model") != nullptr) {
    try {
      out = run_of_key(*cell).model;
      if (cell->find("heads") == nullptr)
        out.heads = 1;        // of an older version: C/H does not matter
    } catch (const Error&) {  // a file may say anything
      return {};
    }
  } else {
    return {};
  }
  out.vocab = static_cast<std::int64_t>(*vocab);
  return out;
}

// Returns the share of the T² scores that tiled attention computes: half, and less in a window.
double tiled_share(double context, double window) {
  const double before = window > 0 ? std::max(0.0, context - window) / context : 0;
  return (1 - before * before) / 2;
}

// Returns the FLOPs of `mode`: forward's, with backward three times those. Flash attention omits
// masked scores of a layer's 4·BT²·HD, but its backward has five products, not four.
double flops_formula(const ModelConfig& m, double batch, double context, std::string_view mode,
                     bool is_flash) {
  const bool has_backward = mode == "forward-backward" || mode == "step";
  const double forward = forward_flops(m, batch, context);
  const double layer = 4 * batch * context * context * static_cast<double>(m.query_width());
  const double naive = (has_backward ? 3 : 1) * layer, flash = (has_backward ? 3.5 : 1) * layer;
  double out = (has_backward ? 3 : 1) * forward;
  for (std::int64_t i = 0; is_flash && m.takes_tiles() && i < m.layers; ++i) {
    out += flash * tiled_share(context, static_cast<double>(m.window_of(i))) - naive;
  }
  return out;
}

bool has_backward(const ResultRow& row) {
  const std::string mode = row.mode();
  return mode == "forward-backward" || mode == "step";
}

// Returns the model with the vocabulary to which the head may be padded (passes/pad.cpp), if
// backward runs in mixed precision, where the head has a narrow copy; else the model as it is.
ModelConfig with_padding(const ResultRow& row, ModelConfig m) {
  const std::string name = row.precision();
  const std::vector<std::string>& known = precision_names();
  if (!has_backward(row) || std::ranges::find(known, name) == known.end()) return m;
  const std::optional<DType> low = parse_precision("precision", name).autocast;
  if (low) m.vocab = padded_columns(m.vocab, static_cast<std::int64_t>(size_of(*low)));
  return m;
}

// Returns the most FLOPs that backward may recompute: forward's, once or for each level of halving.
double most_again(const ResultRow& row, const ModelConfig& m, double batch, double context) {
  const Json* choice = row.parameter("recompute");
  if (!has_backward(row) || choice == nullptr || *choice == Json("none")) return 0;
  const bool is_nested = *choice == Json("nested");
  const double levels = is_nested ? 1 + std::ceil(std::log2(static_cast<double>(m.layers))) : 1;
  return levels * forward_flops(m, batch, context);
}

// True if some weights are not trained, so that formulas for whole steps do not hold.
bool row_trains_part(const ResultRow& row) {
  return std::ranges::any_of(std::array{"lora", "freeze"}, [&](const char* field) {
    const Json* value = row.parameter(field);
    return value != nullptr && *value != Json("none");
  });
}

Found swapped_label(const ResultRow& row) {
  const auto found = [](std::string text) {
    return Verdict{"swapped_label", Severity::kInvalid, std::move(text)};
  };
  if (const Json* cell = row.parameters()) {
    for (const RunField& field : run_fields()) {
      const std::string& key = field.name;
      const bool is_said = field.role == FieldRole::kProgram && row.find(key) != nullptr;
      const Json* asked = is_said ? cell->find(key) : nullptr;
      if (asked == nullptr || !asked->is_string() || asked->as_string() == row.text(key)) continue;
      return found(fmt::format("the row says {} {}, but {} was asked for", key, row.text(key),
                               asked->as_string()));
    }
  }
  const std::optional<ModelConfig> model = labelled_model(row);
  if (!model || row_trains_part(row)) return {};
  const auto parameters = row.number("parameters"), flops = row.flops();
  const double expected_parameters = static_cast<double>(parameter_formula(*model));
  if (parameters && *parameters > 0 && differs(*parameters, expected_parameters)) {
    return found(fmt::format("{:.0f} parameters are not those of {}, which has {:.0f}", *parameters,
                             row.size(), expected_parameters));
  }
  auto batch = sequences_of(row), context = row.context();
  if (!flops || *flops <= 0 || !batch || !context) return {};
  const Json* packed = row.parameter("packed");
  if (packed != nullptr && *packed == Json(true) && row.attention() == "flash") {
    *batch *= kUsualDocuments;  // attention in tiles is of documents
    *context /= kUsualDocuments;
  }
  const auto formula = [&](const ModelConfig& m) {
    return flops_formula(m, *batch, *context, row.mode(), row.attention() == "flash");
  };
  // The label's FLOPs are those of the model; products with a padded head, or what runs again, are
  // in the program's too.
  const ModelConfig padded = with_padding(row, *model);
  const double expected = formula(*model);
  const double most = formula(padded) + most_again(row, padded, *batch, *context);
  const bool is_between = *flops > expected && *flops < most;
  if (is_between || !differs(*flops, expected) || !differs(*flops, most)) return {};
  return found(
      fmt::format("{:.6g} FLOPs are not those of this label, {:.6g} (they are {:.3f} of "
                  "it)",
                  *flops, expected, *flops / expected));
}

// --- reports on memory ------------------------------------------------------------------------

Found two_graphs(const ResultRow& row) {
  const auto peak = row.peak_bytes(), predicted = row.number("predicted_peak_bytes");
  const auto saved = row.number("saved_bytes");
  if (!peak || !predicted || *peak == *predicted) return {};
  const double excess = *peak - *predicted;
  // Half of what one step saves: the rest of the second graph may overlap with freed memory.
  if (saved && *saved > 0 && excess >= *saved / 2) {
    return Verdict{"two_graphs", Severity::kInvalid,
                   fmt::format("the peak is {} above the predicted one, and a step saves {}: the "
                               "graph of the step before was still alive",
                               format_bytes(bytes(excess)), format_bytes(bytes(*saved)))};
  }
  return Verdict{
      "peak_differs", Severity::kInvalid,
      fmt::format("the measured peak is {} {} the predicted one",
                  format_bytes(bytes(std::abs(excess))), excess > 0 ? "above" : "below")};
}

Found host_spill(const ResultRow& row) {
  constexpr double kFaultsPerStep = 16;
  const auto faults = row.number("major_faults");
  const auto steps = static_cast<double>(row.samples_ms().size());
  if (faults && steps > 0 && *faults > kFaultsPerStep * steps) {
    return Verdict{"host_spill", Severity::kInvalid,
                   fmt::format("{:.0f} pages per step came back from disk: this is the time of "
                               "swapping; use a smaller batch or context",
                               *faults / steps)};
  }
  const auto peak = row.peak_bytes(), outside = row.number("outside_bytes");
  const bool on_gpu = traits_of(row).has_own_memory();
  auto room = row.environment_number(on_gpu ? "gpu_memory_bytes" : "memory_limit_bytes");
  if (!room && !on_gpu) room = row.environment_number("memory_total_bytes");
  if (!computes(row) || !peak || !room || *peak + outside.value_or(0) <= *room) return {};
  return Verdict{
      "host_spill", Severity::kInvalid,
      fmt::format("{} in use on a device of {}: part of it lies elsewhere, and the time "
                  "is that of moving it",
                  format_bytes(bytes(*peak + outside.value_or(0))), format_bytes(bytes(*room)))};
}

Found nothing_computed(const ResultRow& row) {
  if (traits_of(row).computes) return {};
  return Verdict{"nothing_computed", Severity::kNote,
                 "this device plans and counts; its times are those of the host alone"};
}

constexpr std::array<RowCheck, 23> kChecks = {{
    {"nothing_computed", "the device has no numbers", nothing_computed},
    {"too_few_samples", "fewer than six samples", too_few_samples},
    {"no_warmup", "the first step is a sample", no_warmup},
    {"warmup_too_short", "the first sample stands out", warmup_too_short},
    {"unsteady", "the samples lie far apart", unsteady},
    {"drifting", "the second half of the samples differs from the first", drifting},
    {"others_running", "other programs ran", others_running},
    {"criterion_not_met", "the limit of noise was not met", criterion_not_met},
    {"missing_synchronization", "the device worked longer than the wall clock ran",
     missing_synchronization},
    {"launch_bound", "kernels work less than 80 % of the time", launch_bound},
    {"instrument_cost", "recording slows steps down by more than 1 %", instrument_cost, true},
    {"recorded_apart", "recorded steps are unlike the timed ones", recorded_apart, true},
    {"recorded_unsteady", "recorded steps are few, or unlike each other", recorded_unsteady, true},
    {"uneven_instances", "single recorded launches were held up", uneven_instances, true},
    {"overlapping_kernels", "kernels' times add up to more than the busy time",
     overlapping_kernels},
    {"above_the_roof", "a kernel beyond what the ceilings allow", above_the_roof},
    {"profiled", "a profiler listened to the timed steps", profiled},
    {"throttled", "the device lowered its clock, so that it took longer", throttled},
    {"faster_than_the_roof", "more TFLOP/s than the device's ceiling", faster_than_the_roof},
    {"unit_mix_up", "a derived figure does not follow from its parts", unit_mix_up},
    {"swapped_label", "parameters or FLOPs are those of another label", swapped_label},
    {"two_graphs", "the peak is not the predicted one", two_graphs},
    {"host_spill", "more memory in use than there is", host_spill},
}};

}  // namespace

std::span<const RowCheck> row_checks() {
  return kChecks;
}

bool had_company(const ResultRow& row, std::string_view column) {
  constexpr double kWorthSaying = 0.1;  // cores
  return row.number(column).value_or(0) > kWorthSaying;
}

}  // namespace tracestep
