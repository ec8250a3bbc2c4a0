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

// AdamW's states are called by one of these and the parameter: "adamw.m.lm_head.weight".
inline constexpr std::string_view kAdamwStates = "adamw.", kFirstMoment = "adamw.m",
                                  kSecondMoment = "adamw.v";
// Moments in 8 bits: codes by these names, and behind them the scales of their blocks, as in
// "adamw.m.lm_head.weight.scale".
inline constexpr std::string_view kMomentScales = "scale";
// Muon's mean of the gradients of a matrix.
inline constexpr std::string_view kMuonStates = "muon.", kMuonMomentum = "muon.m";
// True for what the optimizer knows of the steps before, by a state's name.
bool is_optimizer_state(std::string_view state);
// Rank-0 float32: the steps so far (exact up to 2^24), which random rounding depends on.
inline constexpr std::string_view kStepCount = "adamw.steps";

// A parameter's shares of the run's rate and of its decay.
struct UpdateShare {
  double rate = 1.0, decay = 1.0;
};

// Shares by name of a run's parameters that have not all of both: groups are a captured module's
// own, and decay that is for matrices spares vectors.
std::map<std::string, UpdateShare> update_shares(const RunSpec& run);

// The shapes by name of what Muon updates of a run: the matrices of the layers that products read,
// adapters too, whole on every rank. Embeddings, head, norms and biases are AdamW's.
std::map<std::string, Shape> muon_matrices(const RunSpec& run);

// Parameters that share a learning rate, and the numbers of their rule.
struct UpdateGroup {
  std::set<std::string> parameters = {};
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  // Decoupled under AdamW; under SGD it is added to the gradient, times the parameter.
  double weight_decay = 0.0;
};

// Facts, besides the options of the run, on which the updates depend.
struct UpdateContext {
  // Names parameters that have not all of both, as ranks may hold vectors of what is a
  // matrix. Their rates are rank-0 values, made at the end from "lr" and "step_size".
  std::map<std::string, UpdateShare> shares = {};
  // Gradients are the parts of so many replicas (passes/reduce.cpp); 1: they are whole.
  int shards = 1;
  // Ranks of a replica, each with its part of the parameters that passes/split.cpp divides.
  int tensor = 1;
  // True if updated parameters in bfloat16 are rounded at random.
  bool rounds_weights = false;
  // muon_matrices(), and the dtype of the products that make their steps orthogonal.
  std::map<std::string, Shape> matrices = {};
  DType products = DType::kF32;
  // Every parameter is in one of these groups, whose numbers stand for the options' and for the
  // shares: a caller's rates, which change from step to step each for itself. Group k reads
  // the inputs rate_name("lr", k) and rate_name("step_size", k), of which the second is [2]: with
  // √(1-β2ᵗ), which multiplies eps, behind the step size. So eps is added to the corrected root.
  // Empty: there are none.
  std::vector<UpdateGroup> groups = {};
};
// "lr" of group 0, "lr.1" of the next one.
std::string rate_name(std::string_view rate, std::size_t group);

// The input that stands for the output "loss" where other programs computed it: the sum of those of
// a step's micro-batches.
inline constexpr std::string_view kAccumulatedLoss = "accumulated.loss";

// Consumes the outputs "grad.NAME" (or reads the state leaves of that name) and updates every
// parameter NAME. Adds the rank-0 float32 inputs "lr" and, for AdamW, "step_size" =
// lr·√(1-β2ᵗ)/(1-β1ᵗ), and the states "adamw.m.NAME" and "adamw.v.NAME".
//
// Muon updates `matrices` otherwise, by one state "muon.m.NAME": m ← μ·m + (1-μ)·g, and
// p ← p(1 - lr·decay) - lr·s·O, where O is nearly the orthogonal factor of (1-μ)·g + μ·m (the op
// newton_schulz) and s is options.muon_scale of the matrix. Ranks that hold parts gather what O is
// made of, make it each for itself and keep their part. Source: Jordan et al. 2024;
// torch.optim.Muon.
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
