// tracestep predict: predicts how long a step takes and how many bytes it holds, without running
// it; and shows how good such predictions were.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/fit_plan.h"
#include "cli/grid.h"
#include "cli/hints.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/predict/calibrate.h"
#include "lab/predict/predict.h"
#include "lab/predict/prediction_files.h"
#include "lab/predict/sized_products.h"
#include "lab/predict/time_source.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"
#include "spec/planned.h"
#include "spec/step_program.h"

namespace tracestep::cli {
namespace {

struct PredictOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
  Protocol protocol{.warmup = 2, .steps = 5, .recorded_steps = 1};
  bool calibrate = false, check = false, history = false, no_spot_check = false;
  TimeOptions times;
  Link link{.gb_s = 0, .call_us = 10};
  GivenOptions given = {};
};

constexpr const char* kSchema = "tracestep.predict/1";
constexpr double kDisturbed = 0.2;  // a band of a calibration beyond which it says little
constexpr struct {
  double cpu, gpu;
} kCalibratedSeconds{.cpu = 45, .gpu = 12};  // after which no round begins a step

// Refuses options that change nothing in what is asked for.
void check_effects(const PredictOptions& o, bool has_ranks) {
  struct Rule {
    const char* flag;
    bool has_effect;
    const char *why, *hint;
  };
  const bool is_here = o.times.published.empty();
  const Rule rules[] = {{"--warmup", o.check, "no step runs", "leave it out, or give --check"},
                        {"--steps", o.check, "no step runs", "leave it out, or give --check"},
                        {"--no-spot-check", is_here && !o.calibrate && !o.history,
                         "nothing runs to see whether the device is still as fast", "leave it out"},
                        {"--link-us", has_ranks, "one rank alone uses no link", "give --parallel"}};
  for (const Rule& rule : rules) {
    if (rule.has_effect || !o.given.contains(rule.flag)) continue;
    throw Error(ErrorCode::kUsage, rule.flag, rule.why, rule.hint);
  }
}

void check_options(const PredictOptions& o) {
  const int kinds = (o.calibrate ? 1 : 0) + (o.check ? 1 : 0) + (o.history ? 1 : 0);
  if (kinds > 1) {
    throw Error(ErrorCode::kUsage, "predict",
                "--calibrate, --check and --history are three different things",
                "give one of them");
  }
  if (o.times.published.empty()) return;
  if (kinds > 0) {
    throw Error(ErrorCode::kUsage, "--published", "a device that is not here can only be predicted",
                "leave out --calibrate, --check and --history");
  }
}

std::vector<Precision> calibrated_precisions(const PredictOptions& o, const RunSpec& run) {
  const RunField& field = field_named("precision");
  const bool is_gpu = traits_of(run.place).has_product_formats();
  std::vector<Precision> out;
  const bool is_given = o.grid.is_given(field.name);
  for (const std::string& name : is_given ? o.grid.texts(field) : precision_names()) {
    const Precision precision = parse_precision(field.flag, name);
    if (precision.float8 && !is_given) continue;  // few sizes of models have such products
    if (is_gpu || !(precision.tf32 || precision.split)) out.push_back(precision);
  }
  return out;
}

int run_calibrate(const PredictOptions& o, const RunSpec& run, const Json& environment) {
  const PredictionFiles files = prediction_files(run, o.times.calibration);
  const NewCalibration file(files);
  ProgressLine progress;
  const bool is_gpu = traits_of(run.place).has_own_memory();
  CalibrationPlan plan{
      .steps = calibration_steps(run.place, calibrated_precisions(o, run)),
      .identity = calibration_identity(environment, run.place.device),
      .date_utc = environment.at("date_utc").as_string(),
      .most_seconds = is_gpu ? kCalibratedSeconds.gpu : kCalibratedSeconds.cpu,
      .progress =
          [&](const std::string& step, std::size_t index, std::size_t count) {
            progress.update(fmt::format("calibrating {}/{}  {}", index + 1, count, step));
          },
      .keep = [&](const Calibration& begun) { file.keep(begun); }};
  plan.begun = file.begun(plan.identity);
  if (plan.begun) {
    log_info("goes on with {} of {} steps, which were measured before", plan.begun->steps.size(),
             plan.steps.size());
  }
  const StopSignal stop("what is measured is kept; the same command goes on with it");
  const std::optional<Calibration> calibration = calibrate(make_device, plan, &stop);
  progress.done();
  if (!calibration) return stop.exit_status();
  file.write(*calibration);
  const double spread = make_time_model(*calibration)->spread();
  log_info("calibrated with {} steps, of which it predicts those held out within {:.0f} %: {}",
           calibration->steps.size(), 100 * spread, files.calibration.string());
  if (spread > kDisturbed) {
    log_warn("other work disturbed this calibration: make it again when the machine is quiet");
  }
  return 0;
}

std::optional<Link> link_of(const PredictOptions& o) {
  return o.link.gb_s > 0 ? std::optional(o.link) : std::nullopt;
}

[[noreturn]] void fail_without_link(const std::string& what) {
  throw Error(ErrorCode::kUsage, "--parallel", what,
              "give --link-gb-s; tracestep comm measures it as bus bandwidth");
}

// The link inside a host by the data sheet, for the ranks of all runs; `note` says so.
Link published_link(const PredictOptions& o, std::span<const RunSpec> runs,
                    const PublishedDevice& device, std::string& note) {
  const int ranks = std::ranges::max(runs, {}, [](const RunSpec& run) {
                      return run.parallel.ranks;
                    }).parallel.ranks;
  Link out = o.link;
  out.gb_s = device.reached_link_gb_s(ranks);
  if (out.gb_s <= 0) {
    fail_without_link(
        fmt::format("{} of {} are more than one host has, and how fast the link "
                    "between hosts is, is not known",
                    ranks, device.name));
  }
  note += note_of_link(device, ranks);
  return out;
}

std::vector<Prediction> predict_all(const std::vector<RunSpec>& runs, const Predictor& predictor) {
  std::vector<Prediction> out;
  ProgressLine progress;
  for (const RunSpec& run : runs) {
    progress.update("predicting  " + label_of(run));
    out.push_back(or_beyond_budget(
        runs.size() == 1, run, [&] { return predict_run(run, traits_of(run.place), predictor); },
        [&](const BudgetNotMet& error) { return prediction_beyond_budget(run, error); }));
  }
  return out;
}

// Returns a run's products for which a calibration has a grid of sizes; none without a program.
std::set<NamedProduct> products_of_run(const RunSpec& run) {
  if (run.precision.tf32) return {};  // they have the names of those that are not rounded
  try {
    return products_of(step_program(run, traits_of(run.place)));
  } catch (const BudgetNotMet&) {
    return {};
  }
}

// Times the products of these runs that a GPU's calibration has only at other sizes, and keeps the
// times in it. Returns the exit status of the signal that ended this, or 0.
int time_products(const std::vector<RunSpec>& runs, const PredictionFiles& files,
                  KnownDevice& known) {
  constexpr double kMostRatio = 1.5;
  Calibration& calibration = known.calibration;
  std::set<NamedProduct> wanted;
  RunSpec alone;  // the device of a run whose products are not rounded
  for (const RunSpec& run : runs) {
    if (calibration.products.empty()) return 0;
    wanted.merge(products_of_run(run));
    if (!run.precision.tf32) alone = run;
  }
  alone.place.memory_limit_bytes = 0;
  alone.parallel = {};
  const StopSignal stop("nothing is predicted");
  ProgressLine progress;
  progress.update("timing products of these sizes");
  const SizedProducts found =
      measure_sized_products([&] { return make_device(alone); }, wanted, calibration, &stop);
  progress.done();
  if (stop.requested()) return stop.exit_status();
  if (found.measured.empty()) return 0;
  if (found.ratio > kMostRatio) {
    log_warn(
        "products take {:.1f} times as long as in the calibration: other work keeps the device "
        "busy, and they are predicted from those of neighbouring sizes",
        found.ratio);
    return 0;
  }
  calibration.sized_products.insert(calibration.sized_products.end(), found.measured.begin(),
                                    found.measured.end());
  known.model = make_time_model(calibration);
  keep_calibration(files, calibration);
  return 0;
}

void write_predictions(const PredictOptions& o, const Json& environment,
                       const std::vector<Prediction>& predictions,
                       const std::vector<std::string>& notes) {
  std::vector<Table> tables{prediction_table(predictions)};
  for (const std::string& note : notes) tables[0].notes.push_back(note);
  if (predictions.size() == 1) tables.push_back(prediction_parts_table(predictions[0]));
  write_tables(o.output, kSchema, environment, std::move(tables));
}

int predict_published(const PredictOptions& o, std::vector<RunSpec> runs, const Json& environment,
                      std::vector<std::string> notes) {
  TimeSource source = published_source(o.times.published);
  for (const RunSpec& run : runs) {
    if (source.model) check_precision(run.precision, source);
  }
  if (!source.model) {
    throw Error(ErrorCode::kUsage, "--published", source.note,
                "fit and memory --predict say with --published what fits");
  }
  for (RunSpec& run : runs) {
    std::int64_t& limit = run.place.memory_limit_bytes;
    if (limit == 0) limit = source.usable_bytes;
  }
  Predictor predictor = source.predictor();
  predictor.link = link_of(o);
  const bool has_ranks = std::ranges::any_of(runs, [](auto& r) { return r.parallel.is_on(); });
  if (has_ranks && !predictor.link) {
    predictor.link = published_link(o, runs, *source.device, source.note);
  }
  notes.push_back(source.note);
  write_predictions(o, environment, predict_all(runs, predictor), notes);
  return 0;
}

// Measures what was predicted. Returns the exit status of the signal that ended this, or 0.
int check_all(const PredictOptions& o, const std::string& date_utc, const KnownDevice& known,
              const PredictionFiles& files, std::vector<Prediction>& predictions) {
  const StopSignal stop("the cells measured so far are written");
  ProgressLine progress;
  bool is_kept = append_history(files, {});
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    Prediction& p = predictions[i];
    if (p.status) continue;  // there is no step to run
    progress.update(fmt::format("{}/{}  {}", i + 1, predictions.size(), label_of(p.run)));
    check_prediction(make_device, o.protocol, &stop, p);
    if (p.status == Status::kInterrupted) {
      predictions.resize(i);
      return stop.exit_status();
    }
    if (p.status != Status::kOk || !is_kept) continue;
    is_kept = append_history(files, {{.date_utc = date_utc,
                                      .calibrated_utc = known.calibration.date_utc,
                                      .key = key_of(p.run),
                                      .model_ms = p.model_ms,
                                      .predicted_ms = p.time.ms,
                                      .measured_ms = p.measured_ms}});
  }
  return 0;
}

// Refuses ranks on a CPU, which would share its cores and memory, and ranks on devices whose link
// is not known.
void check_ranks(const PredictOptions& o, const RunSpec& run) {
  if (!run.parallel.is_on()) return;
  if (!traits_of(run.place).has_own_memory()) {
    throw Error(ErrorCode::kUsage, "--parallel", "ranks on one CPU take each other's time",
                "bench --parallel measures them; for GPUs give --device cuda or --published");
  }
  if (o.link.gb_s > 0 || !o.times.published.empty()) return;
  fail_without_link("how fast the link between the ranks is, is not known");
}

int run_predict(const PredictOptions& o, std::span<const std::string> arguments) {
  check_options(o);
  const bool runs_here = o.calibrate || o.check;
  RunGrid grid = on_timed_device(o.grid, o.times);
  std::vector<const RunField*> assumed;
  if (!runs_here) assumed = assume_planned(grid, o.times);
  const std::vector<RunSpec> runs =
      runs_of(grid, Takes::kFast, runs_here ? DeviceUse::kRun : DeviceUse::kPlan,
              runs_here ? Ranks::kRefused : Ranks::kUsed);
  for (const RunSpec& run : runs) check_ranks(o, run);
  const bool has_ranks = std::ranges::any_of(runs, [](auto& r) { return r.parallel.is_on(); });
  if (o.link.gb_s > 0 && !has_ranks) {
    throw Error(ErrorCode::kUsage, "--link-gb-s", "one rank alone uses no link", "give --parallel");
  }
  check_effects(o, has_ranks);
  probe_output(o.output);
  Json environment = environment_of(arguments, runs[0]);
  std::vector<std::string> notes;
  say_assumed(assumed, runs, environment, notes);
  if (!o.times.published.empty()) return predict_published(o, runs, environment, std::move(notes));
  if (o.calibrate) return run_calibrate(o, runs[0], environment);
  const PredictionFiles files = prediction_files(runs[0], o.times.calibration);
  KnownDevice known =
      read_known_device(files, calibration_identity(environment, runs[0].place.device));
  if (o.history) {
    write_tables(o.output, kSchema, environment, {history_table(known.history)});
    return 0;
  }
  std::string doubt;
  if (!o.no_spot_check) {
    doubt = verdict_of(spot_check(make_device, known.calibration, runs[0].place),
                       known.calibration.date_utc);
    if (!doubt.empty()) log_warn("{}", doubt);
  }
  if (doubt.empty()) {  // a slower device's products say nothing of the one that was calibrated
    if (const int stopped = time_products(runs, files, known); stopped != 0) return stopped;
  }
  const Json* const gpu = environment.find("gpu");
  const PublishedDevice* const sheet =
      gpu != nullptr && gpu->is_string() ? known_device(gpu->as_string()) : nullptr;
  std::vector<Prediction> predictions =
      predict_all(runs, {*known.model, known.history, link_of(o), sheet});
  const std::string& date_utc = environment.at("date_utc").as_string();
  const int status = o.check ? check_all(o, date_utc, known, files, predictions) : 0;
  if (!doubt.empty()) notes.push_back(doubt);
  write_predictions(o, environment, predictions, notes);
  if (o.check && runs.size() == 1 && !predictions.empty() &&
      predictions[0].status == Status::kOutOfMemory) {
    throw Error(ErrorCode::kOutOfMemory, "predict", predictions[0].detail,
                oom_hint(runs[0], predictions[0].lack));
  }
  return status;
}

}  // namespace

Command predict_command() {
  const auto options = std::make_shared<PredictOptions>();
  PredictOptions& o = *options;
  Command command{.name = "predict"};
  OptionSet& set = command.options;
  set.group("What to predict");
  set.toggle(
      "--calibrate", o.calibrate,
      "measure this device with small steps in every precision, or those of --precision, and keep "
      "the times");
  set.toggle("--check", o.check,
             "also run each step, and add the error of its prediction to the history");
  set.toggle("--history", o.history, "show what was checked so far, and run nothing");
  add_time_options(set, o.times);
  set.toggle(
      "--no-spot-check", o.no_spot_check,
      "do not first run three small steps to see whether the device is still as fast as when "
      "it was calibrated");
  set.real("--link-gb-s", o.link.gb_s, {.min = 0.0},
           "with --parallel: GB/s that each rank gets from the others, the bus bandwidth of comm; "
           "of a published device else 73 % of the nominal rate inside a host");
  set.real("--link-us", o.link.call_us, {.min = 0.0},
           "with --parallel: microseconds of each collective besides its bytes");
  add_protocol_flag(set, o.protocol, "warmup");
  add_protocol_flag(set, o.protocol, "steps");
  set.record(o.given);
  add_run_fields(set, o.grid, Values::kGrid, "cpu; cuda[:N]");
  add_output_options(set, o.output);
  runs_with(command, options, run_predict);
  return command;
}

}  // namespace tracestep::cli
