// The training that `tracestep study` does: the tiny model on the text files of this folder.
#pragma once

#include <filesystem>

#include "lab/study/study.h"

namespace tracestep::cli {

struct StudyTrainingOptions {
  std::filesystem::path folder;  // weights and log go there
  RunSpec run;
  std::optional<std::int64_t> steps;  // none: 200, or as many as the time allows
};

// `seconds`: what there is; `step_ms`: what a step of the model takes, 0 when that is not known.
StudyTraining train_for_study(const StudyTrainingOptions& options, double seconds, double step_ms);

}  // namespace tracestep::cli
