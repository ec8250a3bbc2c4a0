// The ways in which so many devices can share a step.
#pragma once

#include <vector>

#include "run/run_spec.h"

namespace tracestep {

// Every choice of --parallel for so many ranks: replicas that divide the batch, each of
// neighbouring ranks of one node (at most `of_node`) that divide the model and the rows between its
// products, with each stage of shards. Without those that the model or the batch cannot be divided
// by; empty where all of them are such.
std::vector<Parallel> parallel_choices(const RunSpec& step, int ranks, int of_node);

}  // namespace tracestep
