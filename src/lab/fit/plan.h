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
  std::string device = {};   // as people call it: "H100 SXM"; empty: not known
  int devices = 1;           // devices that share the step
  std::int64_t tokens = 0;   // 0: what `days` allow
  double days = 0;           // 0: as many as `tokens` need
  double cost_per_hour = 0;  // of one device; 0: not known
};

// Tokens a second of a step; 0: no time is predicted.
double tokens_per_s(const FitQuestion& question, const Remedy& remedy);
// How long the training takes; 0: no time is predicted, or no number of tokens is given.
double days_of(const Training& training, double tokens_per_s);

// Rows: the step as asked where it fits (`asked`), and each remedy; columns: devices, how they
// share the step, bytes of each, tokens a second, MFU, days, device hours and cost, as far as they
// are known.
Table plan_table(const FitQuestion& question, const std::vector<Remedy>& plans,
                 const Training& training);

// The ways in which so many devices can share a step: every choice of --parallel for so many ranks,
// of replicas that divide the batch, each of neighbouring ranks of one node (at most `of_node`)
// that divide the model and the rows between its products, with each stage of shards. Choices that
// the model or the batch does not allow are left out; so it may be empty.
std::vector<Parallel> parallel_choices(const RunSpec& step, int ranks, int of_node);
// Tells which command has micro-batches, where a remedy has any.
void note_micro_batches(const std::vector<Remedy>& remedies, Table& table);

}  // namespace tracestep
