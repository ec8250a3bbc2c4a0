// Enumerates the sets of changes to a step that leave its training task the same, for a search to
// choose from.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "lab/fit/remedy.h"

namespace tracestep {

// A set of changes to a step, with its time: guessed until its program is built, exact afterwards.
// The guess treats changes as independent: their savings multiply, and their costs add up.
struct ChangeSet {
  Remedy remedy;
  double start_ms = 0;
  // For each field, the step's time with only this field changed, relative to the time as asked; 1:
  // unchanged.
  std::vector<double> ratios = {};
  double least_ms = 0;  // A lower bound on the time; once figures are known, the time itself.
  bool is_sketched = false;

  double guessed_ms() const;
  // True if the set takes longer than `ms`, even allowing for the error of the guess.
  bool is_slower_than(double ms) const;
  // True if no field of this set saves more time than in the other, with at least as many changes
  // and micro-batches, and with the same sharing, kernels, updates and precision.
  bool is_no_better_than(const ChangeSet& other) const;
};

// Builds all sets with their descriptions: each way to share the step among ranks and to divide its
// batch that no other way beats in both time and bytes, combined with every choice of each field.
class ChangeSets {
 public:
  // Builds the sets of the question that `judge` has; `judge` must outlive this.
  explicit ChangeSets(Judge& judge);

  // Sets that do not divide the batch. The step as asked is the set without changes.
  std::vector<ChangeSet> whole() const { return changed(whole_); }
  // Sets with micro-batches, without those that certainly take longer than `most_ms`.
  std::vector<ChangeSet> divided(double most_ms) const;
  // The reason why no set has a program; nullptr if one has.
  const std::shared_ptr<const Error>& refusal() const { return refusal_; }

 private:
  using Remedies = std::vector<Remedy>;

  Remedies shared();
  void find_choices();
  std::vector<ChangeSet> changed(const Remedies& ways) const;
  std::int64_t most_parts(const Remedy& way) const;
  Remedy sketched_in(const Remedy& way, std::int64_t parts) const;

  const FitQuestion& q_;
  Judge& judge_;
  std::shared_ptr<const Error> refusal_;
  Remedies ways_;   // Ways to share the step, from which divided sets are made.
  Remedies whole_;  // The ways with the fewest bytes or the least time, with the batch whole.
  std::vector<Choices> choices_;
  // The relative time of each choice alone, by field and choice.
  std::vector<std::vector<double>> time_ratios_;
};

// Sorts by guessed time, then by the number of changes.
void sort_by_guess(std::vector<ChangeSet>& sets);

}  // namespace tracestep
