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
};

// `seconds`: the available time; `step_ms`: the time of one step of the model, 0 when unknown.
StudyTraining train_for_study(const StudyTrainingOptions& options, double seconds, double step_ms);

}  // namespace tracestep::cli
