// Choices of a run as enums, each with the word that people write for it. Flags, columns and keys
// use the texts of name_of(); passes and executors read the values.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_words.h"

namespace tracestep {

enum class Mode : std::uint8_t { kInference, kForward, kForwardBackward, kStep };
TRACESTEP_WORDS(Mode, "inference", "forward", "forward-backward", "step");

// How attention is computed; the names are those of the op's forms.
enum class AttentionForm : std::uint8_t {
  kNaive,  // two matrix products around a softmax
  kFlash,  // one kernel, tile by tile, without the matrix of scores
};
TRACESTEP_WORDS(AttentionForm, "naive", "flash");

// Where the gradients of a run are stored. No flag sets it: it follows from the command.
enum class GradientKind : std::uint8_t {
  kTransient,   // Outputs "grad.NAME", which are alive until they are read.
  kPersistent,  // State leaves "grad.NAME", which every run overwrites.
  kAccumulate,  // State leaves "grad.NAME", to which every run adds.
};

// When weights are updated.
enum class UpdateTime : std::uint8_t {
  kEnd,    // after backward, all together
  kEarly,  // Each weight as soon as its gradient is there.
};
TRACESTEP_WORDS(UpdateTime, "end", "early");

// Tensors of a step that lie in the host's memory.
enum class Offload : std::uint8_t {
  kNone,
  kOptimizer,    // Tensors that only updates read.
  kActivations,  // Tensors that layers keep for backward.
  kBoth,
};
TRACESTEP_WORDS(Offload, "none", "optimizer", "activations", "optimizer+activations");
constexpr bool has_optimizer(Offload offload) {
  return offload == Offload::kOptimizer || offload == Offload::kBoth;
}
constexpr bool has_activations(Offload offload) {
  return offload == Offload::kActivations || offload == Offload::kBoth;
}
constexpr Offload offload_of(bool optimizer, bool activations) {
  if (activations) return optimizer ? Offload::kBoth : Offload::kActivations;
  return optimizer ? Offload::kOptimizer : Offload::kNone;
}

// How weights follow from gradients.
enum class OptimizerKind : std::uint8_t {
  kAdamw,
  kSgd,   // of callers of the library alone
  kMuon,  // orthogonal steps for matrices of layers, AdamW for all else
};
TRACESTEP_WORDS(OptimizerKind, "adamw", "sgd", "muon");
// The optimizers that a run can be asked for.
inline constexpr OptimizerKind kRunOptimizers[] = {OptimizerKind::kAdamw, OptimizerKind::kMuon};

// How long Muon's orthogonal step of a matrix [out, in] is, in learning rates.
enum class MuonScale : std::uint8_t {
  kMatchAdamw,  // 0.2·√max(out, in): elements change as much as AdamW's do (Liu et al. 2025)
  kOriginal,    // √max(1, out/in) (Jordan et al. 2024)
};
TRACESTEP_WORDS(MuonScale, "match_rms_adamw", "original");

// In which dtype the gradients of micro-batches are added up.
enum class GradientSums : std::uint8_t {
  kF32,
  kLow,  // that of the products that make them
};
TRACESTEP_WORDS(GradientSums, "fp32", "low");

// How the optimizer's m and v are stored.
enum class Moments : std::uint8_t {
  kF32,
  // bfloat16 with stochastic rounding, so that changes below half a rounding step are not lost.
  kBF16,
  k8Bit,  // 8-bit codes with stochastic rounding and a scale for each block of them.
};
TRACESTEP_WORDS(Moments, "fp32", "bf16", "8bit");

// Which tensors weight decay shrinks.
enum class DecayOn : std::uint8_t {
  kAll,
  kMatrices,  // Tensors of two or more axes, so not the gains of norms.
};
TRACESTEP_WORDS(DecayOn, "all", "matrices");

// Which products of the layers `fp8` runs in 8 bits.
enum class Float8Products : std::uint8_t {
  kPaying,  // Products that are large enough to gain by it.
  kAll,
};
TRACESTEP_WORDS(Float8Products, "paying", "all");

// How `fp8` chooses the scale of an operand's codes.
enum class Float8Scaling : std::uint8_t {
  kDelayed,  // By the operand's largest magnitude in the step before, if that still fits.
  kCurrent,  // By the operand's own largest magnitude.
};
TRACESTEP_WORDS(Float8Scaling, "delayed", "current");

// The ways to run a program.
enum class ExecutorKind : std::uint8_t {
  kEager,     // Launches node by node; buffers come from the device's allocator.
  kArena,     // Launches node by node; buffers are at planned offsets in one arena.
  kCompiled,  // As kArena; launches are captured if the device supports that.
};
TRACESTEP_WORDS(ExecutorKind, "eager", "arena", "compiled");
constexpr bool has_arena(ExecutorKind kind) {
  return kind != ExecutorKind::kEager;
}

// When kernels of captured steps start, on a device that can choose.
enum class LaunchOrder : std::uint8_t {
  kSerial,  // Each when all kernels before it have ended.
  // Each may start while the kernel before it still runs, and itself waits for that one's end.
  kDependent,
};
TRACESTEP_WORDS(LaunchOrder, "serial", "dependent");

}  // namespace tracestep
