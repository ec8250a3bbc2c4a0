// Searches the changes that make a step fit, over sets of all of them: the least severe first and,
// among those of one severity, the fastest.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lab/fit/remedy.h"

namespace tracestep {

struct Advice {
  // Each within the margin, least severe first: of every severity the fastest set of changes (of
  // those within 2 % of it the one with the fewest) and slower ones that hold much less; of the
  // first severity also the set with the least peak. A severer one is there only if it is faster
  // than all before it; one of another task only if nothing else fits. Peaks are of whole programs.
  std::vector<Remedy> remedies;
  // Fits the limit and leaves less than the margin, where no remedy is as little severe.
  std::optional<Remedy> tight;
  // Where no remedy keeps the task, the least peaks that were found: of the task, and of one
  // sequence for each replica.
  std::optional<Remedy> least = {}, least_sequence = {};
  // Why there is no program of the step, nor of any way to share it; nullptr: there is one. Then
  // there is nothing else.
  std::shared_ptr<const Error> refusal = {};
};
Advice advise(const FitQuestion& question);

}  // namespace tracestep
