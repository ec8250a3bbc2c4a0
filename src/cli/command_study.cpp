// tracestep study: every experiment at sizes that this machine manages in some minutes, and one
// report of them with the answers to the study's questions.
#include <chrono>
#include <memory>

#include "backends/comm/launch/launched.h"
#include "base/error.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/made_folders.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/pictures.h"
#include "cli/remaining_time.h"
#include "cli/study_training.h"
#include "course/hand_in.h"
#include "course/published.h"
#include "lab/compare/result_file.h"
#include "lab/measure/ceilings.h"
#include "lab/study/study.h"
#include "lab/study/summary.h"
#include "run/memory_limit.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

struct StudyOptions {
  fs::path folder = "out", pictures, from, mine;
  bool course = false, is_all = false;
  std::optional<std::int64_t> train_steps;
  bool quick = false;
  double budget_minutes = 0.0;         // 0: minutes_of() decides
  std::optional<std::int64_t> rounds;  // none: as many as there is time for
  RunGrid grid;
};

double minutes_of(const StudyOptions& o, const Place& place) {
  constexpr double kMinutes = 4.0, kGpuMinutes = 4.4, kQuickMinutes = 1.0;
  if (o.budget_minutes > 0) return o.budget_minutes;
  return o.quick ? kQuickMinutes : traits_of(place).has_own_memory() ? kGpuMinutes : kMinutes;
}

// Prints which part of the study begins, and how much time the study has left at most.
class Announcer {
 public:
  explicit Announcer(double seconds) : end_(Clock::now() + to_ticks(seconds)) {}
  void operator()(const std::string& what) const {
    const double left = std::chrono::duration<double>(end_ - Clock::now()).count();
    log_info("study: {} ({})", what,
             left > 0 ? words_of_remaining(left) + " at most" : "over time, nearly done");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::duration to_ticks(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  Clock::time_point end_;
};

StudySizes sizes_of(const StudyOptions& o, const Place& place) {
  constexpr double kLongMinutes = 6.0;
  const bool is_gpu = traits_of(place).has_own_memory();
  StudySizes out = o.quick ? quick_study_sizes() : is_gpu ? gpu_study_sizes() : cpu_study_sizes();
  if (o.grid.is_given("program"))
    fail_usage("--program", "the study is of the reference Transformer");
  const bool has_model = o.grid.is_given("size") || o.grid.is_given("model");
  const bool has_context = o.grid.is_given("context");
  const bool is_long = is_gpu && !o.quick && minutes_of(o, place) >= kLongMinutes;
  if (is_long && !has_model && !has_context) add_long_sizes(out);
  if (has_context) at_context(o.grid.run().shape.context, out);
  if (has_model) of_model(o.grid.run().model, out);
  return out;
}

StudyMachine machine_of(const StudyOptions& o, const RunSpec& run, const StudySizes& sizes,
                        const Json& environment, Cells& cells) {
  const std::int64_t memory = memory_of(run.place, environment);
  RunSpec limited = run;
  Place& place = limited.place;
  place = with_limit(place, environment);
  limited.model = sizes.models.front();
  limited.shape = {.batch = 4, .context = 128};
  const StudyTrainingOptions training{
      .folder = o.folder, .run = limited, .steps = o.train_steps, .stop = &cells.stop("parts")};
  return {.driver = &cells,
          .make_device = make_device,
          .make_reference = make_reference,
          .ceilings = device_ceilings,
          .train = [training](double seconds) { return train_for_study(training, seconds); },
          .beside_published = published_section,
          .traits = traits_of(place),
          .visits = cells.visits(o.rounds),
          .in_processes = cells.has_processes(),
          .runs_ranks = !traits_of(place).has_own_links(),
          .memory_bytes = place.memory_limit_bytes > 0 ? place.memory_limit_bytes : memory,
          .place = place,
          .seed = run.seed,
          .environment = environment};
}

constexpr const char* kCharts = "charts";  // the folder of the charts of study.tex, .typ and .md

// The path of a file of the study: "out/study.html".
fs::path file_of(const StudyOptions& o, std::string_view ending) {
  return o.folder / fmt::format("study.{}", ending);
}

void check_files(const StudyOptions& o) {
  if (!o.mine.empty()) {
    if (!o.course) {
      throw Error(ErrorCode::kUsage, "mine"_field, "times of your own stand in the hand-in",
                  "add --course");
    }
    read_own_times(read_text_file(o.mine, "mine"_field, kMaxResultBytes), o.mine);
  }
  std::vector<NamedPath> outputs;
  for (const fs::path& path :
       {file_of(o, "md"), file_of(o, "json"), file_of(o, "html"), file_of(o, "tex"),
        file_of(o, "typ"), o.folder / kStudyWeights, o.folder / kStudyLog}) {
    outputs.push_back({"--output-dir", path});
  }
  check_apart({}, outputs);
  for (const NamedPath& output : outputs) check_writable(output.path, "output_dir"_field);
  check_writable_folder(o.folder / kCharts);
  if (!o.pictures.empty()) check_writable_folder(o.pictures);
}

// The folders of a study, of which those that hold nothing at the end are removed again.
struct StudyFolders {
  explicit StudyFolders(const StudyOptions& o) : charts(o.folder / kCharts), pictures(o.pictures) {
    check_files(o);
  }
  const MadeFolders charts, pictures;
};

// Writes the hand-in for the course, out/course.md, .tex and .typ, with a person's own times.
void write_course(const StudyOptions& o, const StudyReport& report, const Json& environment) {
  std::vector<OwnTime> own;
  if (!o.mine.empty()) {
    own = read_own_times(read_text_file(o.mine, "mine"_field, kMaxResultBytes), o.mine);
    write_text(to_string({"", Json::object(), own_times_tables(own, report)}, Format::kText), {});
  }
  for (const auto& [ending, format] :
       {std::pair{"md", Format::kMarkdown}, {"tex", Format::kLatex}, {"typ", Format::kTypst}}) {
    write_file(
        o.folder / fmt::format("course.{}", ending),
        marked(course_page(report, environment, own, format, kCharts), format, kStudySchema));
  }
  log_info("study: the hand-in is {}, .tex and .typ", (o.folder / "course.md").string());
}

void write_report(const StudyOptions& o, const StudyReport& report, const Json& environment) {
  const Json result = study_json(report, environment);
  write_file(file_of(o, "json"), result.dump(2) + '\n');
  write_file(file_of(o, "html"), html_page(page_head(report, environment), result, report.tables,
                                           page_topics(report), page_sections(report)));
  write_pictures(o.folder / kCharts, charts_of(report), report.tables, Titles::kNone);
  for (const auto& [ending, format] :
       {std::pair{"md", Format::kMarkdown}, {"tex", Format::kLatex}, {"typ", Format::kTypst}}) {
    write_file(file_of(o, ending),
               marked(study_page(report, environment, format, kCharts), format, kStudySchema));
  }
  const auto name = [&](const char* ending) { return file_of(o, ending).string(); };
  log_info("study: the report is {}; to print {}, {} and {}; its numbers {}", name("html"),
           name("md"), name("tex"), name("typ"), name("json"));
  if (o.course) write_course(o, report, environment);
  if (!o.pictures.empty()) {
    write_pictures(o.pictures, charts_of(report), report.tables, Titles::kFindings);
  }
}

// Returns the run without ranks: these are threads here, and only some experiments use them.
RunSpec run_alone(const StudyOptions& o, DeviceUse use = DeviceUse::kRun) {
  RunSpec run = o.grid.run();
  run.parallel = {};
  return placed(run, Takes::kFast, use);
}

// Refuses several processes of a launcher, each of which would write the whole report.
void check_alone() {
  const std::optional<Launched> self = launched();
  if (!self || self->count == 1) return;
  throw Error(ErrorCode::kUsage, "study",
              fmt::format("one process runs all of it, and {} were started", self->count),
              "run it without a launcher; bench times a step that processes share");
}

// Sets the ranks to those that were asked for, if any; throws if they cannot divide the model.
void set_parallel(const StudyOptions& o, StudySizes& sizes) {
  if (!o.grid.run().parallel.is_on()) return;
  RunSpec shared{.model = sizes.models.front(), .parallel = o.grid.run().parallel};
  shared.shape = {.batch = shared.parallel.replicas(), .context = sizes.shape.context};
  rank_shape(shared);  // throws where they cannot divide the model
  sizes.parallel = shared.parallel;
}

void print(const StudyOptions& o, const StudyReport& report) {
  if (o.is_all) return write_text(answers_text(report.answers), {});
  std::string out = summary_text(report, screen_columns());
  out += fmt::format("\nmore: {} answers with their tables (--all), or in\n{}\n",
                     report.answers.size(), file_of(o, "html").string());
  write_text(out, {});
}

// Writes the report again from what another study has measured, with the questions of today.
int write_anew(const StudyOptions& o) {
  const StoredStudy stored =
      stored_study(read_text_file(o.from, "from"_field, kMaxResultBytes), o.from.string());
  const StudyFolders folders(o);
  const StudyReport report = answered(stored.sections);
  write_report(o, report, stored.environment);
  print(o, report);
  return 0;
}

// What a job for the study needs: all memory or the limit, as it chooses sizes that fit it.
JobPlan plan_of(const StudyOptions& o) {
  const Place place = run_alone(o, DeviceUse::kPlan).place;
  return {
      .place = place, .peak_bytes = limit_in_bytes(place), .seconds = 60.0 * minutes_of(o, place)};
}

int run_study_command(const StudyOptions& o, Cells& cells) {
  if (cells.lists()) {
    cells.needs_whole(plan_of(o));
    return 0;
  }
  if (!o.from.empty()) return write_anew(o);
  check_alone();
  const RunSpec run = run_alone(o);
  const Json environment = cells.environment_of(run);
  StudySizes sizes = sizes_of(o, run.place);
  set_parallel(o, sizes);
  cells.stop("parts");
  const double seconds = 60.0 * minutes_of(o, run.place);
  const auto report_of = [&] {
    return run_study(machine_of(o, run, sizes, environment, cells), sizes, seconds,
                     Announcer(seconds));
  };
  if (cells.is_child()) {
    const OutputOptions none;
    report_of();
    return cells.finish({.output = none, .environment = environment});
  }
  const StudyFolders folders(o);
  const StudyReport report = report_of();
  write_report(o, report, environment);
  print(o, report);
  return cells.is_stopped() ? cells.stop().exit_status() : 0;
}

}  // namespace

Command study_command() {
  const auto options = std::make_shared<StudyOptions>();
  Command command{.name = "study"};
  OptionSet& set = command.options;
  set.group("The study");
  set.path("--output-dir", "DIR", options->folder, "where the report goes");
  set.names_one_file();
  set.path("--from", "FILE", options->from,
           "make the report anew from a stored study.json or study.html; nothing is measured");
  set.toggle("--course", options->course,
             "also a hand-in: course.md, .tex and .typ, by the handout's problems, with tables of "
             "size against context");
  set.names_one_file();
  set.path("--mine", "FILE", options->mine,
           "with --course: times of your own beside these and published ones, a CSV file with the "
           "columns size, context, mode, precision, mean_ms, std_ms, n; or, in place of the last "
           "three, trace: a recording of torch.profiler, beside that file");
  set.names_one_file();
  set.path("--pictures", "DIR", options->pictures,
           "also write every chart here with what it shows above it, as SVG, and as PNG where "
           "rsvg-convert is installed");
  add_overwrite_flag(set);
  set.real("--minutes", options->budget_minutes, {0.05, 10000},
           "how many minutes it may take; what does not fit is left out and named; when left out "
           "4, on a GPU 4.4, with --quick 1");
  set.lists_cells();
  set.integer("--rounds", options->rounds, {1, 1000},
              "measure each cell in so many rounds; as many as the time allows, 3 to 12, when left "
              "out");
  set.integer("--train-steps", options->train_steps, {1, 1000000},
              "as many as the time allows, 200 at most, when left out");
  set.toggle("--quick", options->quick, "small sizes and few samples");
  set.lists_cells();
  set.toggle("--all", options->is_all, "print every answer, where a screen has the first ones");
  set.group("Of which model");
  for (const char* field : {"size", "model", "context"}) {
    if (find_field(field) != nullptr) add_field(set, options->grid, field, Values::kOne);
  }
  set.group("How it runs");
  add_field(set, options->grid, "device", Values::kOne, "cpu, or cuda[:N]");
  add_field(set, options->grid, "parallel", Values::kOne,
            "how many ranks share a step, in this form and in the usual ones, two if left out; on "
            "GPUs their bytes alone");
  for (const RunField& field : run_fields()) {
    const bool is_of_place = field.group == FieldGroup::kHow && field.show == FieldShow::kKey;
    if (is_of_place) add_field(set, options->grid, field.name, Values::kOne);
  }
  measures_with(command, options, run_study_command);
  return command;
}

}  // namespace tracestep::cli
