// Computes when each launch of a step runs, from how long each takes: collectives overlap other
// kernels, and nodes wait for their results.
#pragma once

#include <span>
#include <vector>

#include "analysis/lanes.h"
#include "ir/program.h"

namespace tracestep {

// The connection from a rank to the other ranks.
struct Link {
  // The GB/s that a rank receives from the others in a collective (the bus bandwidth of `comm`).
  double gb_s = 0;
  double call_us = 0;  // The fixed time of a collective; collectives in one batch pay it once.
  // For ranks on several nodes: the GB/s at which a rank receives from other nodes, and how many
  // neighbouring ranks a node has; 0: all of them.
  double network_gb_s = 0;
  int of_node = 0;

  // Returns the time of a collective in rank 0. `is_first`: it is the first one of its batch. If
  // its ranks are on several nodes, the network's rate applies.
  double us(const Program& program, const Node& node, bool is_first) const;
};

// The times of a step in microseconds.
struct Timeline {
  double span = 0;         // From the first launch to the end of the last one.
  double collectives = 0;  // The sum of the collectives' times.
  // The part of the span during which collectives run and no other kernel does.
  double exposed = 0;
};

// Simulates a step. `turns` and `us` give, by node, when it runs and how long it takes; 0 for a
// node that launches nothing. A node starts when the node before it on its lane and everything it
// waits for have ended. Overlap is assumed to slow nothing down.
Timeline timeline_of(const Program& program, std::span<const Turn> turns,
                     std::span<const double> us);

}  // namespace tracestep
