// `tracestep study`: which experiments it runs, at which sizes and within which time, and the
// sections that come of them. Every part is one of the experiments of this folder.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/attention/run.h"
#include "lab/compile/ladder.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/profile/tables.h"
#include "lab/report/html.h"
#include "lab/study/answers.h"
#include "lab/time/cell.h"
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

// The result of the study's training.
struct StudyTraining {
  ModelConfig model;
  BatchShape shape;
  std::vector<std::string> texts;  // the paths that were read
  std::int64_t file_count = 0, text_bytes = 0;
  std::vector<TrainStep> steps;
  double seconds = 0.0;
  std::string sample;  // text from the trained model
};

// The services that the caller of a study provides.
struct StudyMachine {
  DeviceFactory make_device;
  DeviceFactory make_reference;
  std::function<Ceilings(const RunSpec& run)> ceilings;
  // Trains a small model for about so many seconds.
  std::function<StudyTraining(double seconds)> train;
  // The warm-up study of one cell, each row from a separate process; if empty, it is left out.
  std::function<Table(const RunSpec& step, const std::vector<std::int64_t>& warmups)> warm_up;
  // The section that holds rows of steps and of attention against published ones; if empty, it is
  // left out.
  std::function<StudySection(std::vector<ResultRow> rows, const Json& environment)>
      beside_published = {};
  DeviceTraits traits;
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
// The sizes of a quick study: fewer and smaller cells.
StudySizes quick_study_sizes();
// Puts all steps at this batch and context, and contexts that grow at as many times fewer tokens.
void at_shape(const BatchShape& shape, StudySizes& sizes);
// Puts this model in the place of the larger ones; the small one that is trained stays.
void of_model(const ModelConfig& model, StudySizes& sizes);
// Puts all cells at this context; growing contexts end there.
void at_context(std::int64_t context, StudySizes& sizes);

// The state that the parts of a study share and add to.
struct StudyContext {
  const StudyMachine& machine;
  const StudySizes& sizes;
  std::function<void(const std::string& what)> announce;
  std::chrono::steady_clock::time_point deadline = {};  // of the part that runs
  int begun = 0, left_out = 0;  // cells measured, and cells skipped for lack of time
  // Every step that a table shows, and every attention: each measured once, in the rounds of its
  // model, whichever tables show it.
  StepRounds steps = {};
  AttentionRounds attention_cells = {};
  std::map<std::string, StartTimes> starts = {};                // by the keys of runs
  std::map<std::string, std::optional<StepError>> errors = {};  // likewise, against float64
  std::vector<AttentionResult> attention = {};                  // of the table of attention alone
  std::vector<MemoryCell> memory = {}, forward_alone = {};  // the second: forward of the first's
  std::optional<Ceilings> known_ceilings = {};              // of ceilings()
  std::vector<StudySection> sections = {};

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
  // The results of those runs that were measured.
  std::vector<CellResult> measured(std::span<const RunSpec> runs) const;
  // Measures the steps, or attentions, that are wanted by now, within the part's time.
  template <class Spec, class Result>
  void measure(CellRounds<Spec, Result>& cells,
               const std::function<std::string(const Spec& spec)>& name);
};

// --- what is measured ----------------------------------------------------------------------------

// The steps that a table shows, by the requests of requests.cpp: "time", "scaling", "steps",
// "ways", "ladder", "passes" (profiled), "ranks"; of one model, whatever else the study has.
std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table);
std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table,
                             const ModelConfig& model);
// Every way to share the step among ranks, one rank alone first.
std::vector<RunSpec> shared_steps(const StudyContext& context, const RunSpec& step);
void measure_shared_steps(StudyContext& context);
std::vector<const Rung*> study_rungs();
std::vector<AttentionSpec> attention_ways(const StudyContext& context);

// The parts: each adds its sections, or cells for those of the last part.
void number_part(StudyContext& context);
void plan_part(StudyContext& context);
void attention_part(StudyContext& context);
void first_step_part(StudyContext& context);  // of the smallest model, whatever table shows it
void other_step_part(StudyContext& context);  // of the others
void training_part(StudyContext& context);
void warm_up_part(StudyContext& context);
void start_part(StudyContext& context);  // errors of precisions, and starts, which are no samples
void plan_ranks(StudyContext& context);  // bytes of the planned model's, of plan_part()
void rank_part(StudyContext& context);   // adds what was measured to them
void first_memory_part(StudyContext& context);
void other_memory_part(StudyContext& context);
void profile_part(StudyContext& context);
void review_part(StudyContext& context);  // validity, what was gathered, published tables

// Every cell as `bench` gives it, with its samples and its parameters.
Table cell_table(std::span<const CellResult> cells);
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

// Runs all parts. A part leaves out cells that do not fit into its share of `budget_seconds`, or
// into a quarter of that when it begins late.
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
