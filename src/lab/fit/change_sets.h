// The sets of changes that keep a step's task, which a search chooses from.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "lab/fit/remedy.h"

namespace tracestep {

// A set of changes, before its program and after. Its time is guessed as if changes knew nothing
// of each other: what saves time saves its share, what costs time costs as much as alone.
struct ChangeSet {
  Remedy remedy;
  double start_ms = 0;
  std::vector<double> ratios = {};  // of the time with the change of each field alone; 1: none
  double least_ms = 0;              // a lower bound; with figures: the time itself
  bool is_sketched = false;

  double guessed_ms() const;
  // True if the set takes longer, however far its guessed time is off.
  bool is_slower_than(double ms) const;
  // True if the set takes no less time than the other and is no simpler: it differs only in that it
  // computes or moves more, cuts the loss, or has more micro-batches.
  bool is_no_better_than(const ChangeSet& other) const;
};

// Makes all sets, described: each way to share the step and to divide its batch that no other one
// beats in time and bytes, with every choice of each field.
class ChangeSets {
 public:
  // `judge` must outlive it.
  explicit ChangeSets(Judge& judge);

  // Sets that leave the batch whole; the step as asked is the one without changes.
  std::vector<ChangeSet> whole() const { return changed(whole_); }
  // Sets in micro-batches, without those that take longer than `most_ms` in any case.
  std::vector<ChangeSet> divided(double most_ms) const;
  // Why there is no program of any of them; nullptr: there is one.
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
  Remedies ways_;   // with the batch whole, to divide it
  Remedies whole_;  // the ways with the fewest bytes or the least time, undivided
  std::vector<Choices> choices_;
  std::vector<std::vector<double>> time_ratios_;  // of each choice alone
};

// Sorts by guessed time, then by the number of changes.
void sort_by_guess(std::vector<ChangeSet>& sets);

}  // namespace tracestep
