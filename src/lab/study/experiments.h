// The study's list of experiments, and the cells that each of them measures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/study/study.h"

namespace tracestep {

// The list of models in StudySizes that cells belong to; kProfiled: the list of profiled steps.
enum class Of { kModels, kScaled, kPrecise, kCompiled, kProfiled, kShared };
// Which models of the list that `Of` names are meant: all, the first one, or all but the first.
enum class Which { kAll, kFirst, kOthers };

// The values of each axis of the cells; the first axis varies slowest. Empty: the run's default.
struct Axes {
  bool has_contexts = false;  // True: the contexts of StudySizes.
  std::vector<Mode> modes = {};
  bool has_precisions = false;  // True: the precisions of StudySizes.
  std::vector<Precision> precisions = {};
  std::vector<Granularity> ops = {};
  std::vector<ExecutorKind> executors = {};
};

// The steps of some models that a table shows.
struct StepCells {
  // The table; empty: the steps that the first screen compares, which are measured in more rounds
  // than others.
  std::string_view table;
  Of models;
  Which which;
  Axes axes;
  int recorded = 0;  // The number of steps whose kernels are recorded.
  std::vector<RunSpec> (*more)(const StudyContext&, const RunSpec& base) = nullptr;  // instead
};

struct Experiment {
  const char* name;
  // The experiment's share of the study's time; 0: it measures no times, and is never left out.
  double share;
  // The share on a device with its own memory, which times larger models and shares no steps.
  double gpu_share;
  void (*run)(StudyContext& context);
  const char* tables = "";  // The tables that lack rows if the experiment had too little time.
  // The steps to measure; if time is short, the last ones are left out.
  std::vector<StepCells> cells = {};
  // True if it has cells that another process can measure one by one.
  bool has_cells = !cells.empty();
};

// All experiments, in the order in which they run.
const std::vector<Experiment>& all_experiments();
// Returns the experiment that has this function; it must be in the list.
const Experiment& experiment_of(void (*run)(StudyContext& context));

// True if the two have the same name and vocabulary, so that the study measures them once.
bool is_same_model(const ModelConfig& a, const ModelConfig& b);
// Every model whose steps are timed: the first one of the sizes, then the others by size.
std::vector<ModelConfig> models_of(const StudySizes& sizes);
// Returns batch and context as " BxT", with which the names of stages of measuring cells end.
std::string words_of(const BatchShape& shape);

}  // namespace tracestep
