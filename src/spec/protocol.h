// How a run is measured: warm-up steps, timed steps, and when timing ends.
#pragma once

#include <span>

#include "spec/spec_field.h"

namespace tracestep {

struct Protocol {
  int warmup = 5;  // Steps that run before timing begins.
  // Timed steps, with one sample each; with a noise criterion, the least number of them.
  int steps = 10;
  // Further steps with a record of every kernel, from which the busy time comes.
  int recorded_steps = 3;
  // Unless 0: a visit of the cell by the driver (lab/driver/driver.h) ends after this many seconds
  // of timed steps, or after `steps` of them.
  double visit_seconds = 0;
  // Further steps that wait for the device between forward, backward and optimizer.
  int part_steps = 0;
  // Timing ends when half the 95 % interval of the median, in percent of the median, is at most
  // this; 0: no noise criterion, exactly `steps`.
  double max_noise_percent = 0;
  // The limits with a noise criterion.
  int max_steps = 0;          // 0: 100 times `steps`.
  double max_seconds = 60.0;  // The limit on the seconds of all timed steps.

  int most_steps() const { return max_steps > 0 ? max_steps : 100 * steps; }
};

using ProtocolField = SpecField<Protocol>;

// Returns the fields of a protocol that flags can set.
std::span<const ProtocolField> protocol_fields();

// Adds every field that decides how the run is measured to the key of its row.
void add_key(const Protocol& protocol, Json& key);

}  // namespace tracestep
