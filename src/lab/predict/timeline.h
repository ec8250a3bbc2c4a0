// Tells when the launches of a step run, from how long each takes: collectives beside other
// kernels, and what waits for them.
#pragma once

#include <span>
#include <vector>

#include "analysis/lanes.h"
#include "ir/program.h"

namespace tracestep {

// The connection of a rank to the others.
struct Link {
  double gb_s = 0;     // received by a rank from the others in a collective: comm's bus bandwidth
  double call_us = 0;  // fixed time of a collective, once for those in one batch
  // Ranks on several nodes: the rate at which a rank receives from other nodes, and how many
  // neighbouring ranks a node has; 0: all of them.
  double network_gb_s = 0;
  int of_node = 0;

  // The time of a collective, in rank 0; `is_first`: of its batch. One whose ranks are on several
  // nodes takes the network's rate.
  double us(const Program& program, const Node& node, bool is_first) const;
};

// Microseconds of a step.
struct Timeline {
  double span = 0;         // from the first launch to the end of the last
  double collectives = 0;  // of these alone, one after the other
  double exposed = 0;      // of the span, while no other kernel runs
};

// `turns`, `us`: by node, when it runs and how long it takes; 0 for what launches nothing. A node
// starts when its lane and what it waits for have ended; nothing is slower for what runs beside it.
Timeline timeline_of(const Program& program, std::span<const Turn> turns,
                     std::span<const double> us);

}  // namespace tracestep
