// The training that `tracestep study` does: the tiny model on the text files of this folder.
#pragma once

#include <filesystem>

#include "lab/study/study.h"

namespace tracestep::cli {

inline constexpr const char *kStudyWeights = "tiny.safetensors", *kStudyLog = "train.jsonl";

struct StudyTrainingOptions {
  std::filesystem::path folder;  // for weights and log
  RunSpec run;
  std::optional<std::int64_t> steps;  // none: 200, or as many as the time allows
  const StopSignal* stop = nullptr;
};

// Trains for `seconds`, which end the steps; how many these will be is guessed by one just before.
// No steps: a signal came.
StudyTraining train_for_study(const StudyTrainingOptions& options, double seconds);

}  // namespace tracestep::cli
