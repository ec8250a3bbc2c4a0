// The training in `tracestep study`: the tiny model on the text files of the current folder.
#pragma once

#include <filesystem>

#include "lab/study/study.h"

namespace tracestep::cli {

inline constexpr const char *kStudyWeights = "tiny.safetensors", *kStudyLog = "train.jsonl";

struct StudyTrainingOptions {
  std::filesystem::path folder;  // The folder for weights and log.
  RunSpec run;
  // The number of steps; nullopt: 200, or as many as the time allows.
  std::optional<std::int64_t> steps;
  const StopSignal* stop = nullptr;
};

// Trains for at most `seconds`; the number of steps is estimated from a first step. The result has
// no steps if a signal came.
StudyTraining train_for_study(const StudyTrainingOptions& options, double seconds);

}  // namespace tracestep::cli
