// Searches the sets of changes that make a step fit, in order of severity and, within one severity,
// of time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lab/fit/remedy.h"

namespace tracestep {

struct Advice {
  // Remedies within the margin, the least severe first. For each severity: the fastest set of
  // changes (of sets within 2 % of it, the one with the fewest changes), and slower sets that hold
  // much less; for the first severity also the set with the least peak. A more severe remedy is
  // listed only if it is faster than all before it, and one of another task only if nothing else
  // fits. Peaks are of whole programs.
  std::vector<Remedy> remedies;
  // A remedy that fits the limit but leaves less than the margin; only if it is faster than every
  // remedy of `remedies` that is at most as severe.
  std::optional<Remedy> tight;
  // The remedies with the least peaks, if none that keeps the task fits: for the batch as asked,
  // and for one sequence for each replica.
  std::optional<Remedy> least = {}, least_sequence = {};
  // The reason why neither the step nor any way to share it has a program; nullptr: there is a
  // program. If it is set, the other members are empty.
  std::shared_ptr<const Error> refusal = {};
};
Advice advise(const FitQuestion& question);

}  // namespace tracestep
