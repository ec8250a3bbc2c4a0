// The study's list of experiments, and the cells that each of them measures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/study/study.h"

namespace tracestep {

// The models of StudySizes, or its profiled steps; kAny: every model of these.
enum class Of { kAny, kModels, kScaled, kPrecise, kCompiled, kProfiled, kShared };
enum class Which { kAll, kFirst, kOthers };  // of these

// The values of each axis, the first of which varies slowest; none: as usual.
struct Axes {
  bool has_contexts = false;  // those of the sizes
  std::vector<Mode> modes = {};
  bool has_precisions = false;  // those of the sizes
  std::vector<Precision> precisions = {};
  std::vector<Granularity> ops = {};
  std::vector<ExecutorKind> executors = {};
};

// The steps that a table shows of each of some models.
struct StepCells {
  std::string_view table;  // empty: what the first screen compares, in more rounds than others
  Of models;
  Which which;
  Axes axes;
  int recorded = 0;  // steps whose kernels are recorded
  std::vector<RunSpec> (*more)(const StudyContext&, const RunSpec& base) = nullptr;  // instead
};

struct Experiment {
  const char* name;
  double share;  // of the time; 0: it is exact, and is never left out
  void (*run)(StudyContext& context);
  const char* tables = "";            // that lack rows where it had no time
  std::vector<StepCells> cells = {};  // steps; where time is short the last ones are left out
  bool has_cells = !cells.empty();    // which another process can measure one by one
};

// All experiments, in running order.
const std::vector<Experiment>& all_experiments();
// The experiment that `run` is of, which must be in the list.
const Experiment& experiment_of(void (*run)(StudyContext& context));

// True if the two have one name and one vocabulary: the study then has one set of cells for both.
bool is_same_model(const ModelConfig& a, const ModelConfig& b);
// Every model whose steps are timed, the smallest first.
std::vector<ModelConfig> models_of(const StudySizes& sizes);
// " BxT", the end of the names of the stages whose cells have this batch and context.
std::string words_of(const BatchShape& shape);

}  // namespace tracestep
