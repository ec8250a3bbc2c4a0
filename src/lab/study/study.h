// `tracestep study`: a list of experiments with their cells and shares of the time
// (experiments.cpp), measured by the driver (lab/driver/), and the sections of a report made from
// the results.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/attention/run.h"
#include "lab/compile/ladder.h"
#include "lab/driver/driver.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/profile/tables.h"
#include "lab/report/html.h"
#include "lab/study/answers.h"
#include "lab/time/cell.h"
#include "spec/axes.h"
#include "train/loop.h"

namespace tracestep {

// A section of the report: titled tables with a few plain sentences.
struct StudySection {
  std::string id = {}, title = {};
  std::string reading = {};  // The sentences about the tables, with this run's numbers.
  std::vector<Table> tables = {};
};

// Pairs of a name in braces and the text in its place, and the section `id` of sections.md with
// these tables and values; the page "memory-*" serves every "memory-LABEL".
using SectionValues = std::vector<std::pair<std::string, std::string>>;
StudySection section(const std::string& id, std::vector<Table> tables,
                     const SectionValues& values = {});
// Returns another text of the section's page, by its label, with `values` in place of braces.
std::string text_of_section(std::string_view id, std::string_view label,
                            const SectionValues& values = {});
// The position of a section in reading order; sections of one kind share it.
std::size_t place_of(const StudySection& section);

// The result of the study's training run of its smallest model.
struct StudyTraining {
  BatchShape shape;
  std::vector<std::string> texts;  // The paths of the texts that were read.
  std::int64_t file_count = 0, text_bytes = 0;
  std::vector<TrainStep> steps;
  double seconds = 0.0;
  std::string sample;  // text from the trained model
};

// The driver, devices and functions that the caller of a study provides.
struct StudyMachine {
  Driver* driver = nullptr;
  DeviceFactory make_device;
  DeviceFactory make_reference;
  std::function<Ceilings(const RunSpec& run)> ceilings;
  // Trains the smallest model for this many seconds.
  std::function<StudyTraining(double seconds)> train;
  // Makes the section that compares rows of steps and of attention with published ones; if it is
  // not set, the section is left out.
  std::function<StudySection(std::vector<ResultRow> rows, const Json& environment)>
      beside_published = {};
  DeviceTraits traits;
  // How often each cell is visited, 0: as often as time allows; and whether a new process makes
  // each visit.
  int visits = 0;
  bool in_processes = false;
  // True: ranks run in this process; false: only their bytes are predicted.
  bool runs_ranks = true;
  std::int64_t memory_bytes = 0;  // 0: not known
  Place place;
  std::uint64_t seed = 0;
  Json environment;
};

// The models and sizes of all experiments.
struct StudySizes {
  // Models that are timed in every mode, the smallest first, which is also trained.
  std::vector<ModelConfig> models;
  BatchShape shape;
  int steps = 10;  // The timed steps per cell; fewer if time is short.
  ModelConfig scaled;
  // The contexts at which `scaled` is timed, each twice the one before.
  std::vector<std::int64_t> contexts;
  std::vector<std::int64_t> warmups;
  // Models that are timed in fp32 and bf16; the first one in all precisions and with errors.
  std::vector<ModelConfig> precise;
  std::vector<Precision> precisions;  // The precisions in which the first of these is timed.
  // Models that are timed eager and compiled; the first one also by the ladder.
  std::vector<ModelConfig> compiled;
  ErrorSpec error;
  ModelConfig planned;  // A model whose bytes are only predicted.
  std::vector<std::int64_t> planned_contexts;
  std::vector<RunSpec> recorded;  // memory
  std::vector<RunSpec> profiled;  // Steps whose kernels are profiled, each also as inference.
  AttentionSpec attention;        // Batch, steps and time of the cells of attention alone.
  std::vector<std::int64_t> widths, attention_contexts, variant_contexts;
  Parallel parallel = {};  // How ranks share a step; with one rank, that experiment is left out.
  // True: the user asked for this batch and context, so they are not reduced if time is short.
  bool is_shape_fixed = false;
};
StudySizes cpu_study_sizes();
StudySizes gpu_study_sizes();
// Adds what a GPU can do in more than six minutes: bfloat16 and float32 up to 2.7B, and the kernels
// of the largest timed model at further contexts.
void add_long_sizes(StudySizes& sizes);
// The sizes of a quick study: fewer and smaller cells.
StudySizes quick_study_sizes();
// Reduces all steps to this batch and context. Growing contexts shrink by the same factor of
// tokens, and sizes that do not depend on them become those of a quick study.
void at_shape(const BatchShape& shape, StudySizes& sizes);
// Replaces the larger models by this one; the small model that is trained stays.
void of_model(const ModelConfig& model, StudySizes& sizes);
// Puts all cells at this context; growing contexts end there.
void at_context(std::int64_t context, StudySizes& sizes);

// A cell that a table shows. A lead is a cell that a headline compares, so it is measured in more
// rounds.
template <class Spec>
struct WantedCell {
  Spec spec;
  bool is_lead = false;
};

// Removes duplicates from cells: leads first, then in their order. A cell records as many steps as
// any of its duplicates asked for.
template <class Spec>
std::vector<WantedCell<Spec>> each_once(std::vector<WantedCell<Spec>> cells) {
  std::vector<WantedCell<Spec>> out;
  std::map<std::string, std::size_t> known;  // The index of each cell by its key.
  std::ranges::stable_partition(cells, &WantedCell<Spec>::is_lead);
  for (const WantedCell<Spec>& cell : cells) {
    const auto [at, is_new] = known.try_emplace(key_of(cell.spec).dump(), out.size());
    if (is_new) out.push_back(cell);
    int& recorded = out[at->second].spec.protocol.recorded_steps;
    recorded = std::max(recorded, cell.spec.protocol.recorded_steps);
  }
  return out;
}

// How often a cell is visited: in rounds, for two samples or more, or once, for six, and again
// where there is time.
enum class Visits { kRounds, kOnce };

// The result of a cell by its key; nullptr: it was not asked for or was left out.
template <class Spec, class Result>
const Result* result_of(const Spec& spec, const std::map<std::string, Result>& results) {
  const auto found = results.find(key_of(spec).dump());
  return found == results.end() ? nullptr : &found->second;
}

// The state that the experiments of a study share and add to.
struct StudyContext {
  const StudyMachine& machine;
  const StudySizes& sizes;
  std::function<void(const std::string& what)> announce;
  // The time at which the running experiment must end.
  std::chrono::steady_clock::time_point deadline = {};
  // The number of cells that were measured, and of cells that were skipped for lack of time.
  int begun = 0, left_out = 0;
  // Results of every step and of every attention cell, by key.
  std::map<std::string, CellResult> steps = {};
  std::map<std::string, AttentionResult> attention_cells = {};
  std::map<std::string, StartTimes> starts = {};  // The starts of runs, by their keys.
  // Errors against float64, by the keys of runs.
  std::map<std::string, std::optional<StepError>> errors = {};
  std::vector<AttentionResult> attention = {};  // The results in the table of attention alone.
  // The cells of the memory tables; forward_alone has forward of the first one only.
  std::vector<MemoryCell> memory = {}, forward_alone = {};
  std::optional<Ceilings> known_ceilings = {};  // The result of ceilings(), once it was measured.
  std::vector<StudySection> sections = {};

  Driver& driver() const { return *machine.driver; }
  double seconds_left() const;
  // True if work of this many seconds may begin. Counts the cell as begun or left out.
  bool has_time_for(double seconds);
  // The estimated time of a step, from its own measurement; else from the slowest step of the same
  // model and mode; else by FLOPs from another mode; 0: not known.
  double seconds_of(const RunSpec& step) const;
  // The device's ceilings, which the first call measures; empty if the machine measures none.
  const Ceilings& ceilings();
  // `run` with the machine's place and seed.
  RunSpec here(RunSpec run) const;
  // The name of a stage with the study's batch and context, as in "step 4x128"; a new process
  // recognises the shape by it.
  std::string stage_of(std::string_view what) const;
  // The results of those runs that were measured.
  std::vector<CellResult> measured(std::span<const RunSpec> runs) const;
  // Measures the cells that are not known yet, within the experiment's time, in the order of
  // `cells`.
  template <class Spec, class Result>
  void measure(const std::string& stage, const std::vector<WantedCell<Spec>>& cells,
               std::map<std::string, Result>& results, Visits visits = Visits::kRounds);
};

// --- what is measured ----------------------------------------------------------------------------

// The runs of a table, by the list in experiments.cpp: "time", "scaling", "steps", "ways",
// "ladder", "passes" (profiled), "ranks". Runs of one model are together.
std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table);
// Every way to share the step among ranks: first one rank alone, then the most important ones.
std::vector<RunSpec> shared_steps(const StudyContext& context, const RunSpec& step);
void measure_shared_steps(StudyContext& context);
std::vector<const Rung*> study_rungs();
std::vector<AttentionSpec> attention_ways(const StudyContext& context);
Axis<AttentionSpec> attention_contexts(const std::vector<std::int64_t>& contexts);
bool is_of_first_model(const StudyContext& context, const RunSpec& step);

// The experiments. Each adds its sections, or results from which the last one makes sections.
void number_part(StudyContext& context);
void plan_part(StudyContext& context);
void first_memory_part(StudyContext& context);  // Measures the bytes of the smallest model.
void attention_part(StudyContext& context);
// Measure every step that a table shows, of the smallest model and of the others.
void step_part(StudyContext& context);
void larger_step_part(StudyContext& context);
void training_part(StudyContext& context);
void warm_up_part(StudyContext& context);
void start_part(StudyContext& context);  // Measures errors of precisions, and starts.
void other_memory_part(StudyContext& context);
// Predicts the bytes of each run, on all threads at once; `take(i, run)` is called for each,
// several at the same time.
void predict_each(const StudyContext& context, std::span<const RunSpec> runs,
                  const std::function<void(std::size_t, MemoryRun)>& take);
// Adds the bytes of the planned model's ranks, for plan_part().
void plan_ranks(StudyContext& context);
// Measures steps shared by ranks, and adds them to the sections of plan_ranks().
void rank_part(StudyContext& context);
void profile_part(StudyContext& context);
// Visits steps again whose noise marks answers as noisy, as far as time is left.
void more_rounds_part(StudyContext& context);
// Chooses steps to visit again. `wanted`: the steps of each marked answer; `seconds`: how long the
// visits of each step take. Takes the answer whose steps that are not chosen yet take the least,
// and so on until the next one would take more than `seconds_left`.
std::set<std::string> cheapest_first(std::vector<std::set<std::string>> wanted,
                                     const std::map<std::string, double>& seconds,
                                     double seconds_left);
// Adds the sections on validity, on all gathered results, and on published tables.
void review_part(StudyContext& context);

// Each cell as a row of `bench`, with its samples and parameters.
Table cell_table(std::span<const CellResult> cells, std::string name = "cells",
                 std::string title = "Every measured cell");
// Adds the sections that are made from all gathered cells.
void add_step_sections(StudyContext& context);
void add_memory_sections(StudyContext& context);
void add_compile_section(StudyContext& context);
void add_precision_section(StudyContext& context);

struct StudyReport {
  std::vector<Answer> summary;  // lab/study/summary.h
  std::vector<Answer> answers;
  std::vector<StudySection> sections;  // The sections in reading order.
  // The tables of all sections, then summary, answers and readings; no two have the same name.
  std::vector<Table> tables;
};

// Sorts sections by the pages of sections.md, and shows the column of vocabularies in tables where
// models of one size have several.
std::vector<StudySection> in_reading_order(std::vector<StudySection> sections);

// Runs all experiments. Each leaves out cells that do not fit into its share of the time that is
// left of `budget_seconds`. The child of a driver measures what it is asked for, and returns an
// empty report.
StudyReport run_study(const StudyMachine& machine, const StudySizes& sizes, double budget_seconds,
                      const std::function<void(const std::string& what)>& announce);

// Answers all questions from the tables of these sections.
StudyReport with_answers(std::vector<StudySection> sections);
// Makes the whole report: the answers, the charts that can be drawn, and tables of the answers.
StudyReport answered(std::vector<StudySection> sections);

// The schema of study.json, and that document: every table, and how its columns are shown.
inline constexpr const char* kStudySchema = "tracestep.study/2";
Json study_json(const StudyReport& report, const Json& environment);
// The sections of a stored study document, or of a page that carries one, so that a report can be
// made again without measuring. Throws Error{kInput} naming `name` if it is no study.
struct StoredStudy {
  std::vector<StudySection> sections;
  Json environment;
};
StoredStudy stored_study(std::string_view text, const std::string& name);

// The report as study.md, study.tex or study.typ: the first screen and the answers with their
// charts, whose pictures are in the folder `charts` next to the file; in Markdown also the tables.
std::string study_page(const StudyReport& report, const Json& environment, Format format,
                       const std::string& charts);
// The study for a terminal of this width: the first screen and every answer.
std::string summary_text(const StudyReport& report, std::size_t columns);
std::string answers_text(std::span<const Answer> answers);

}  // namespace tracestep
