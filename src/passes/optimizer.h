// Turns gradients into parameter updates, as nodes of the same program.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "passes/loss_scaling.h"
#include "run/optimizer_options.h"

namespace tracestep {

struct RunSpec;

// Gradients with at least this norm count as infinite: AdamW averages their squares, and the square
// of 2^64 is infinite in float32. The limit is the same on every back end, also on those that add
// squares in a wider type.
inline constexpr double kGradNormLimit = 0x1p64;

// The prefixes of AdamW's states, which are followed by the parameter's name:
// "adamw.m.lm_head.weight".
inline constexpr std::string_view kAdamwStates = "adamw.", kFirstMoment = "adamw.m",
                                  kSecondMoment = "adamw.v";
// The suffix of the scales of 8-bit moments: the codes have the moment's name, and the scales of
// their blocks add this, as in "adamw.m.lm_head.weight.scale".
inline constexpr std::string_view kMomentScales = "scale";
// The prefixes of Muon's state, the mean of a matrix's gradients; the matrix's name follows.
inline constexpr std::string_view kMuonStates = "muon.", kMuonMomentum = "muon.m";
// True for the name of a state in which the optimizer keeps what it knows of earlier steps.
bool is_optimizer_state(std::string_view state);
// The name of the state that counts steps, rank-0 float32 (exact up to 2^24); stochastic
// rounding depends on it.
inline constexpr std::string_view kStepCount = "adamw.steps";

// Factors on the run's learning rate and weight decay for a parameter.
struct UpdateShare {
  double rate = 1.0, decay = 1.0;
};

// Returns the factors by name; a parameter without an entry has 1 and 1. Entries are there only
// if the run has a captured module with groups of parameters, or if only matrices decay: then
// the decay of vectors is 0.
std::map<std::string, UpdateShare> update_shares(const RunSpec& run);

// Returns, by name, the shapes of the matrices that Muon updates: those of the layers that products
// read, adapters too, whole on every rank. Embeddings, head, norms and biases are AdamW's.
std::map<std::string, Shape> muon_matrices(const RunSpec& run);

// Parameters that share a learning rate and the numbers of their update rule.
struct UpdateGroup {
  std::set<std::string> parameters = {};
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  // Weight decay: decoupled under AdamW; under SGD, the parameter times this is added to the
  // gradient.
  double weight_decay = 0.0;
};

// What the updates depend on besides the options of the run.
struct UpdateContext {
  // The factors of parameters that do not have the run's full rate and decay. They are given by
  // name, because a rank may hold a vector of what is a matrix. Their rates are rank-0 values,
  // computed at the end from "lr" and "step_size".
  std::map<std::string, UpdateShare> shares = {};
  // The number of replicas among which gradients are divided (passes/reduce.cpp); 1: they are
  // whole.
  int shards = 1;
  // The number of ranks in a replica, each of which has its part of the parameters that
  // passes/split.cpp divides.
  int tensor = 1;
  // True if updated bfloat16 parameters are rounded stochastically.
  bool rounds_weights = false;
  // What Muon updates, as of muon_matrices(), and the dtype of the products of its steps.
  std::map<std::string, Shape> matrices = {};
  DType products = DType::kF32;
  // True: the steps of matrices of one shape are made together, in batches of at most
  // kMostInBatch elements.
  bool in_batches = false;
  // Groups that contain every parameter, whose numbers replace those of the options and of
  // `shares`; for a caller that changes each group's rate from step to step. Group k reads the
  // inputs rate_name("lr", k) and rate_name("step_size", k). The latter is [2]: the step size, and
  // √(1-β2ᵗ), which multiplies eps, so that eps is added to the corrected root. Empty: there are no
  // groups.
  std::vector<UpdateGroup> groups = {};
};
// The most elements in a batch of Muon's matrices, unless it is a single larger matrix: from
// this size on, the products of one matrix fill a device.
inline constexpr std::int64_t kMostInBatch = std::int64_t{1} << 24;

// Returns the name of a rate input of a group: "lr" for group 0, "lr.1" for the next one.
std::string rate_name(std::string_view rate, std::size_t group);

// The name of an input that replaces the output "loss" if other programs computed the loss: the
// sum over a step's micro-batches.
inline constexpr std::string_view kAccumulatedLoss = "accumulated.loss";

// Consumes the outputs "grad.NAME" (or reads the state leaves of that name) and updates every
// parameter NAME. Adds the rank-0 float32 inputs "lr" and, for AdamW, "step_size" =
// lr·√(1-β2ᵗ)/(1-β1ᵗ), and the states "adamw.m.NAME" and "adamw.v.NAME".
//
// Under loss scaling gradients are divided by the scale where they are used (clipping and
// "grad_norm" see the true ones), and a step with an infinite or NaN gradient leaves parameters, m
// and v as they are. Such a step does not count in t: the caller must subtract the state
// "loss_scale.skipped_steps" from the number of steps.
//
// With `guard_finite`, steps are skipped without loss scaling too: when the gradient norm is not
// below kGradNormLimit, or the output "loss" (if the program has it) is infinite or NaN. The caller
// learns of it by is_applied(), from the outputs "grad_norm" and "loss".
//
// With moments in bfloat16 or in 8 bits, and with weights that are rounded at random, the program
// also has the state kStepCount, which every step adds 1 to. Those in 8 bits are of whole tensors:
// Error{kUsage} with `shards` or `tensor`.
//
// With `shards`, states are parts as the gradients are; each rank updates its part of a parameter
// that is whole, and gathers the others. The norm is that of all ranks' parts, and with `tensor` of
// all parts of a replica.
Program optimizer(const Program& program, const OptimizerOptions& options,
                  const UpdateContext& context = {});
// True if a guarded step with these outputs was applied; false: it was skipped.
bool is_applied(double grad_norm, double loss);

}  // namespace tracestep
