// tracestep study: every experiment at sizes that this machine manages in some minutes, and one
// report of them with the answers to the study's questions.
#include <memory>

#include "base/log.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cli/bench_warmup.h"
#include "cli/ceilings.h"
#include "cli/command.h"
#include "cli/cuda.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/study_training.h"
#include "lab/report/html.h"
#include "lab/study/study.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

struct StudyOptions {
  fs::path folder = "out";
  std::optional<std::int64_t> train_steps;
  bool quick = false;
  double budget_minutes = 0.0;  // 0: kMinutes, or kQuickMinutes
  RunGrid grid;
};

constexpr double kMinutes = 2.5, kQuickMinutes = 1.0;

void announce(const std::string& what) {
  log_info("study: {}", what);
}

Table warm_up(const Place& place, const RunSpec& step, const std::vector<std::int64_t>& warmups) {
  std::vector<std::string> arguments{"bench",
                                     "--steps",
                                     "5",
                                     "--batch",
                                     std::to_string(step.shape.batch),
                                     "--device",
                                     place.device,
                                     "--threads",
                                     std::to_string(place.threads)};
  if (place.memory_limit_bytes > 0) {
    arguments.insert(arguments.end(), {"--memory-limit", std::to_string(place.memory_limit_bytes)});
  }
  return warmup_study({step}, warmups, arguments, nullptr);
}

StudySizes sizes_of(const StudyOptions& o, const Place& place) {
  if (o.quick) return quick_study_sizes();
  return cuda_index(place.device) ? gpu_study_sizes() : cpu_study_sizes();
}

StudyMachine machine_of(const StudyOptions& o, const RunSpec& run, const StudySizes& sizes,
                        const Json& environment) {
  const std::int64_t memory = memory_of(run.place, environment);
  RunSpec limited = run;
  Place& place = limited.place;
  place = with_limit(place, environment);
  limited.model = sizes.models.front();
  limited.shape = {.batch = 4, .context = 128};
  const StudyTrainingOptions training{.folder = o.folder, .run = limited, .steps = o.train_steps};
  return {
      .make_device = make_device,
      .make_reference = make_reference,
      .ceilings = device_ceilings,
      .train = [training](double seconds,
                          double step_ms) { return train_for_study(training, seconds, step_ms); },
      // Without the default limit, which the user did not set.
      .warm_up =
          [place = run.place](const RunSpec& step, const std::vector<std::int64_t>& warmups) {
            return warm_up(place, step, warmups);
          },
      .traits = traits_of(place),
      .memory_bytes = memory,
      .place = place,
      .seed = run.seed,
      .environment = environment};
}

std::string page_of(const StudyReport& report, const std::string& json) {
  std::vector<PageSection> sections;
  for (const StudySection& section : report.sections) {
    sections.push_back({.id = section.id, .tables = {}, .charts = section.charts});
    for (const Table& table : section.tables) sections.back().tables.push_back(table.name);
  }
  return html_page("A training step, measured", json, report.tables, sections);
}

int run_study_command(const StudyOptions& o, std::span<const std::string> arguments) {
  const RunSpec run = run_of(o.grid, {"cpu", "cuda"});
  const Json environment = environment_of(arguments, run);
  std::error_code error;
  fs::create_directories(o.folder, error);
  const fs::path text = o.folder / "study.md", data = o.folder / "study.json",
                 page = o.folder / "study.html";
  const NamedPath outputs[] = {
      {"--output-dir", text}, {"--output-dir", data}, {"--output-dir", page}};
  check_apart({}, outputs);
  for (const fs::path& path : {text, data, page}) check_writable(path);
  const StudySizes sizes = sizes_of(o, run.place);
  const double minutes = o.budget_minutes > 0 ? o.budget_minutes
                         : o.quick            ? kQuickMinutes
                                              : kMinutes;
  const StudyReport report =
      run_study(machine_of(o, run, sizes, environment), sizes, 60.0 * minutes, announce);
  const std::string json =
      to_string({"tracestep.study/2", environment, report.tables}, Format::kJson);
  write_file(data, json);
  write_file(page, page_of(report, json));
  write_file(text, study_page(report, environment));
  write_text(answers_text(report.answers), {});
  announce(fmt::format("the report is {}, the same with charts {}, its numbers {}", text.string(),
                       page.string(), data.string()));
  return 0;
}

}  // namespace

Command study_command() {
  const auto options = std::make_shared<StudyOptions>();
  Command command{
      .name = "study",
      .summary = "all of it, as one report with the questions answered",
      .details =
          "Runs every experiment at sizes that this machine manages in the time given: sums and "
          "formats, predictions for large models, attention alone, the time of steps and of "
          "contexts, training on the text files of the current folder, warm-up, precisions, the "
          "bytes and the kernels of single steps. Answers the questions of the study from these "
          "tables, each with the rows it rests on, and refuses where they do not support one. "
          "Writes study.html (one file, offline, with charts), study.md and study.json.",
      .examples = {{"", "the whole study, into out/"},
                   {"--budget 20 --device cuda", "on a GPU, with more time"},
                   {"--quick --train-steps 50 --output-dir /tmp/look", "a short look"}}};
  OptionSet& set = command.options;
  set.group("The study");
  set.path("--output-dir", "DIR", options->folder, "where the report goes");
  set.real("--budget", options->budget_minutes, {0.05, 10000},
           "minutes; what does not fit is left out and named; 2.5 when left out, with --quick 1");
  set.integer("--train-steps", options->train_steps, {1, 1000000},
              "as many as the time allows, 200 at most, when left out");
  set.toggle("--quick", options->quick, "small sizes and few samples");
  set.group("How it runs");
  add_field(set, options->grid, "device", Values::kOne, "cpu, or cuda[:N]");
  for (const char* field : {"threads", "memory_limit_bytes", "seed"}) {
    add_field(set, options->grid, field, Values::kOne);
  }
  command.run = [options](std::span<const std::string> arguments) {
    return run_study_command(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
