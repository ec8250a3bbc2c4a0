// How a run is measured: steps before the clock counts, timed steps, and when to stop timing.
#pragma once

#include <span>

#include "spec/spec_field.h"

namespace tracestep {

struct Protocol {
  int warmup = 5;          // steps before the clock counts
  int steps = 10;          // timed, one sample each; the least with a noise criterion
  int recorded_steps = 3;  // separate steps with spans, for the busy clock
  // Where it is not 0 a driver's visit ends after so many seconds of timed steps, at `steps` at
  // most.
  double visit_seconds = 0;
  int part_steps = 0;  // separate steps that stop between forward, backward and optimizer
  // Timing ends when half the 95 % interval of the median, in percent of the median, is at most
  // this; 0: no noise criterion, exactly `steps`.
  double max_noise_percent = 0;
  // The limits with a noise criterion.
  int max_steps = 0;          // 0: 100 times `steps`
  double max_seconds = 60.0;  // in timed steps

  int most_steps() const { return max_steps > 0 ? max_steps : 100 * steps; }
};

using ProtocolField = SpecField<Protocol>;

// The fields that flags can set.
std::span<const ProtocolField> protocol_fields();

// Adds every field that decides how the run is measured to the key of its row.
void add_key(const Protocol& protocol, Json& key);

}  // namespace tracestep
