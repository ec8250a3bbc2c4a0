// Plans a training from its step: how many tokens in how many days on so many devices, at what
// price.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/fit/search.h"
#include "lab/report/table.h"
#include "run/run_spec.h"

namespace tracestep {

struct Training {
  std::string device = {};   // The device's name as people use it: "H100 SXM"; empty: not known.
  int devices = 1;           // The number of devices that share the step.
  std::int64_t tokens = 0;   // The tokens to train on; 0: as many as fit into `days`.
  double days = 0;           // The days to train; 0: as many as `tokens` need.
  double cost_per_hour = 0;  // The price of one device for an hour; 0: not known.
};

// The tokens per second of a step; 0 if no time is predicted.
double tokens_per_s(const FitQuestion& question, const Remedy& remedy);
// Returns how many days training takes; without tokens, the given days; 0: no time is predicted.
double days_of(const Training& training, double tokens_per_s);

// Returns a table with a row for each plan, the smallest change first. Columns, as far as they are
// known: devices, how they share the step, bytes on each, tokens per second of all, MFU, days,
// device hours and cost.
Table plan_table(const FitQuestion& question, const std::vector<Remedy>& plans,
                 const Training& training);

// The ways in which this many devices can share a step: every --parallel choice for that number of
// ranks whose replicas divide the batch. The ranks of a replica are neighbours in one node (at most
// `of_node`), and divide the model and the rows between its products; each choice comes with each
// ZeRO stage. Choices that the model or the batch does not allow are left out, so the list may be
// empty.
std::vector<Parallel> parallel_choices(const RunSpec& step, int ranks, int of_node);
// If a remedy has micro-batches, adds a note that names the command which runs them.
void note_micro_batches(const std::vector<Remedy>& remedies, Table& table);

}  // namespace tracestep
