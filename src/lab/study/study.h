// `tracestep study`: a list of experiments with their axes and their shares of the time
// (experiments.cpp), run by the driver of all cells (lab/driver/), and the sections that come of
// them.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
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

// Titled tables with a few plain sentences each.
struct StudySection {
  std::string id = {}, title = {};
  std::string reading = {};  // the meaning of the tables, with this run's numbers
  std::vector<Table> tables = {};
};

// The section `id` of sections.md with these tables; "memory-LABEL" is one of its "memory-*". The
// texts in braces are those of `values`.
using SectionValues = std::vector<std::pair<std::string, std::string>>;
StudySection section(const std::string& id, std::vector<Table> tables,
                     const SectionValues& values = {});
// Another sentence of its page, by its label.
std::string text_of_section(std::string_view id, std::string_view label,
                            const SectionValues& values = {});
// Its place in reading order, one for all sections of a kind.
std::size_t place_of(const StudySection& section);

// The result of the study's training, of its smallest model.
struct StudyTraining {
  BatchShape shape;
  std::vector<std::string> texts;  // the paths that were read
  std::int64_t file_count = 0, text_bytes = 0;
  std::vector<TrainStep> steps;
  double seconds = 0.0;
  std::string sample;  // text from the trained model
};

// The services that the caller of a study provides.
struct StudyMachine {
  Driver* driver = nullptr;
  DeviceFactory make_device;
  DeviceFactory make_reference;
  std::function<Ceilings(const RunSpec& run)> ceilings;
  // Trains the smallest model for so many seconds.
  std::function<StudyTraining(double seconds)> train;
  // The section that holds rows of steps and of attention against published ones; if empty, it is
  // left out.
  std::function<StudySection(std::vector<ResultRow> rows, const Json& environment)>
      beside_published = {};
  DeviceTraits traits;
  // Visits of each cell, 0: as many as there is time for; and whether each is by a new process.
  int visits = 0;
  bool in_processes = false;
  bool runs_ranks = true;         // in this process; if not, their bytes are predicted alone
  std::int64_t memory_bytes = 0;  // 0: not known
  Place place;
  std::uint64_t seed = 0;
  Json environment;
};

// The sizes of all experiments.
struct StudySizes {
  std::vector<ModelConfig> models;  // timed in every mode, smallest first; the first is trained
  BatchShape shape;
  int steps = 10;  // timed steps per cell; fewer when time is short
  ModelConfig scaled;
  std::vector<std::int64_t> contexts;  // of `scaled`, each twice the one before
  std::vector<std::int64_t> warmups;
  std::vector<ModelConfig> precise;   // in fp32 and bf16; the first in all precisions, with errors
  std::vector<Precision> precisions;  // of the first
  std::vector<ModelConfig> compiled;  // eager against compiled; the ladder is that of the first
  ErrorSpec error;
  ModelConfig planned;  // predicted only
  std::vector<std::int64_t> planned_contexts;
  std::vector<RunSpec> recorded;  // memory
  std::vector<RunSpec> profiled;  // each also as inference
  AttentionSpec attention;        // batch, steps and time of its cells
  std::vector<std::int64_t> widths, attention_contexts, variant_contexts;
  Parallel parallel = {};       // how ranks share a step; one rank: that part is left out
  bool is_shape_fixed = false;  // asked for: batch and context stay where time is short
};
StudySizes cpu_study_sizes();
StudySizes gpu_study_sizes();
// Adds what a GPU does in more than six minutes: bfloat16 beside float32 up to 2.7B, and the
// kernels of the largest timed model at other contexts.
void add_long_sizes(StudySizes& sizes);
// The sizes of a quick study: fewer and smaller cells.
StudySizes quick_study_sizes();
// Puts all steps at this smaller batch and context, contexts that grow at as many times fewer
// tokens, and what does not depend on them at the sizes of a quick study.
void at_shape(const BatchShape& shape, StudySizes& sizes);
// Puts this model in the place of the larger ones; the small one that is trained stays.
void of_model(const ModelConfig& model, StudySizes& sizes);
// Puts all cells at this context; growing contexts end there.
void at_context(std::int64_t context, StudySizes& sizes);

// A cell that a table shows. A lead, which a headline compares, is in more rounds than others.
template <class Spec>
struct WantedCell {
  Spec spec;
  bool is_lead = false;
};

// Each cell once, the leads first, else in their order: with the most recorded steps that a table
// wants of it.
template <class Spec>
std::vector<WantedCell<Spec>> each_once(std::vector<WantedCell<Spec>> cells) {
  std::vector<WantedCell<Spec>> out;
  std::map<std::string, std::size_t> known;  // by keys
  std::ranges::stable_partition(cells, &WantedCell<Spec>::is_lead);
  for (const WantedCell<Spec>& cell : cells) {
    const auto [at, is_new] = known.try_emplace(key_of(cell.spec).dump(), out.size());
    if (is_new) out.push_back(cell);
    int& recorded = out[at->second].spec.protocol.recorded_steps;
    recorded = std::max(recorded, cell.spec.protocol.recorded_steps);
  }
  return out;
}

// How often cells are visited: in rounds, with two samples at least, or once with six, and again
// where there is time.
enum class Visits { kRounds, kOnce };

// The result of a cell, by its key; nullptr: it was not wanted, or left out.
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
  std::chrono::steady_clock::time_point deadline = {};  // of the experiment that runs
  int begun = 0, left_out = 0;  // cells measured, and cells skipped for lack of time
  // Every step that a table shows, and every attention, by their keys.
  std::map<std::string, CellResult> steps = {};
  std::map<std::string, AttentionResult> attention_cells = {};
  std::map<std::string, StartTimes> starts = {};                // by the keys of runs
  std::map<std::string, std::optional<StepError>> errors = {};  // likewise, against float64
  std::vector<AttentionResult> attention = {};                  // of the table of attention alone
  std::vector<MemoryCell> memory = {}, forward_alone = {};  // the second: forward of the first's
  std::optional<Ceilings> known_ceilings = {};              // of ceilings()
  std::vector<StudySection> sections = {};

  Driver& driver() const { return *machine.driver; }
  double seconds_left() const;
  // True if work of `seconds` may begin; counts the cell as begun or left out.
  bool has_time_for(double seconds);
  // The time of a step like this; if it was not timed itself, that of the slowest of its model and
  // mode, or by the FLOPs of another mode; 0: unknown.
  double seconds_of(const RunSpec& step) const;
  // The device's ceilings, measured at the first call; none where the machine measures none.
  const Ceilings& ceilings();
  // `run` with the machine's place and seed.
  RunSpec here(RunSpec run) const;
  // "step 4x128": the stage of cells at the study's batch and context, by which a new process knows
  // them.
  std::string stage_of(std::string_view what) const;
  // The results of those runs that were measured.
  std::vector<CellResult> measured(std::span<const RunSpec> runs) const;
  // Measures the steps, or attentions, that are not known yet, within the experiment's time. Those
  // that matter most come first.
  template <class Spec, class Result>
  void measure(const std::string& stage, const std::vector<WantedCell<Spec>>& cells,
               std::map<std::string, Result>& results, Visits visits = Visits::kRounds);
};

// --- what is measured ----------------------------------------------------------------------------

// The steps that a table shows, by the list of experiments.cpp: "time", "scaling", "steps", "ways",
// "ladder", "passes" (profiled), "ranks"; those of each model together.
std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table);
// Every way to share the step among ranks, one rank alone first; those that matter most before
// others.
std::vector<RunSpec> shared_steps(const StudyContext& context, const RunSpec& step);
void measure_shared_steps(StudyContext& context);
std::vector<const Rung*> study_rungs();
std::vector<AttentionSpec> attention_ways(const StudyContext& context);
Axis<AttentionSpec> attention_contexts(const std::vector<std::int64_t>& contexts);
bool is_of_first_model(const StudyContext& context, const RunSpec& step);

// The experiments: each adds its sections, or results for those of the last one.
void number_part(StudyContext& context);
void plan_part(StudyContext& context);
void first_memory_part(StudyContext& context);  // of the smallest model
void attention_part(StudyContext& context);
// Every step that a table shows, of the smallest model and of the others.
void step_part(StudyContext& context);
void larger_step_part(StudyContext& context);
void training_part(StudyContext& context);
void warm_up_part(StudyContext& context);
void start_part(StudyContext& context);  // errors of precisions, and starts, which are no samples
void other_memory_part(StudyContext& context);
// Predicts the bytes of each run, on all threads at once; `take(i, run)` is called for each,
// several at the same time.
void predict_each(const StudyContext& context, std::span<const RunSpec> runs,
                  const std::function<void(std::size_t, MemoryRun)>& take);
void plan_ranks(StudyContext& context);  // bytes of the planned model's, of plan_part()
void rank_part(StudyContext& context);   // adds what was measured to them
void profile_part(StudyContext& context);
void review_part(StudyContext& context);  // validity, what was gathered, published tables

// Each cell as `bench` gives it, with its samples and its parameters.
Table cell_table(std::span<const CellResult> cells, std::string name = "cells",
                 std::string title = "Every measured cell");
// Sections of all cells that were gathered.
void add_step_sections(StudyContext& context);
void add_memory_sections(StudyContext& context);
void add_compile_section(StudyContext& context);
void add_precision_section(StudyContext& context);

struct StudyReport {
  std::vector<Answer> summary;  // lab/study/summary.h
  std::vector<Answer> answers;
  std::vector<StudySection> sections;  // in reading order
  std::vector<Table> tables;  // of all sections, then summary, answers and readings; names differ
};

// By the pages of sections.md; tables show what tells models of one size apart.
std::vector<StudySection> in_reading_order(std::vector<StudySection> sections);

// Runs all experiments. One leaves out cells that do not fit into its share of what is left of
// `budget_seconds`. A driver's child measures what it is asked for, and its report is empty.
StudyReport run_study(const StudyMachine& machine, const StudySizes& sizes, double budget_seconds,
                      const std::function<void(const std::string& what)>& announce);

// The report of these sections: what their tables say.
StudyReport answered(std::vector<StudySection> sections);

// study.json: every table, and how columns are shown.
inline constexpr const char* kStudySchema = "tracestep.study/2";
Json study_json(const StudyReport& report, const Json& environment);
// The sections that such a document, or a page that carries one, was made of: a report can be made
// anew without measuring. Error{kInput} naming `name` where it is no study.
struct StoredStudy {
  std::vector<StudySection> sections;
  Json environment;
};
StoredStudy stored_study(std::string_view text, const std::string& name);

// study.md, study.tex or study.typ: the first screen and the answers with their charts, pictures in
// the folder `charts` beside it; in Markdown also the tables.
std::string study_page(const StudyReport& report, const Json& environment, Format format,
                       const std::string& charts);
// The study on a terminal: the first screen, in lines of so many columns, and every answer.
std::string summary_text(const StudyReport& report, std::size_t columns);
std::string answers_text(std::span<const Answer> answers);

}  // namespace tracestep
