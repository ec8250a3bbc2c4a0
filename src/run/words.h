// The choices that a run is made of, each with the word that people write for it. Flags, columns
// and keys take their texts from name_of(); passes and executors read the values.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class Mode : std::uint8_t { kInference, kForward, kForwardBackward, kStep };
inline constexpr Mode kAllModes[] = {Mode::kInference, Mode::kForward, Mode::kForwardBackward,
                                     Mode::kStep};
std::string_view name_of(Mode mode);

// How attention is computed; the names are those of the op's forms.
enum class AttentionForm : std::uint8_t {
  kNaive,  // two matrix products around a softmax
  kFlash,  // one kernel, tile by tile, without the matrix of scores
};
inline constexpr AttentionForm kAllAttentionForms[] = {AttentionForm::kNaive,
                                                       AttentionForm::kFlash};
std::string_view name_of(AttentionForm form);

// Where the gradients of a run go; no word of a flag: it follows from the command.
enum class GradientKind : std::uint8_t {
  kTransient,   // outputs "grad.NAME", alive until read
  kPersistent,  // state leaves "grad.NAME", overwritten by every run
  kAccumulate,  // state leaves "grad.NAME", added to by every run
};

// When weights are updated.
enum class UpdateTime : std::uint8_t {
  kEnd,    // after backward, all together
  kEarly,  // each as soon as its gradient is there
};
inline constexpr UpdateTime kAllUpdateTimes[] = {UpdateTime::kEnd, UpdateTime::kEarly};
std::string_view name_of(UpdateTime time);

// Tensors of a step that lie in the host's memory.
enum class Offload : std::uint8_t {
  kNone,
  kOptimizer,    // what only updates read
  kActivations,  // what layers keep for backward
  kBoth,
};
inline constexpr Offload kAllOffloads[] = {Offload::kNone, Offload::kOptimizer,
                                           Offload::kActivations, Offload::kBoth};
std::string_view name_of(Offload offload);
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

// In which dtype the gradients of micro-batches are added up.
enum class GradientSums : std::uint8_t {
  kF32,
  kLow,  // that of the products that make them
};
inline constexpr GradientSums kAllGradientSums[] = {GradientSums::kF32, GradientSums::kLow};
std::string_view name_of(GradientSums sums);  // "fp32", "low"

// How AdamW's m and v are stored.
enum class Moments : std::uint8_t {
  kF32,
  kBF16,  // rounded at random, so that changes below half a rounding are not lost
  k8Bit,  // codes of 8 bits, rounded at random, with a scale for each block of them
};
inline constexpr Moments kAllMoments[] = {Moments::kF32, Moments::kBF16, Moments::k8Bit};
std::string_view name_of(Moments moments);  // "fp32", "bf16", "8bit"

// Tensors that weight decay shrinks.
enum class DecayOn : std::uint8_t {
  kAll,
  kMatrices,  // tensors of two or more axes: not the gains of norms
};
inline constexpr DecayOn kAllDecayOn[] = {DecayOn::kAll, DecayOn::kMatrices};
std::string_view name_of(DecayOn decay_on);  // "all", "matrices"

// Which products of the layers `fp8` runs in 8 bits.
enum class Float8Products : std::uint8_t {
  kPaying,  // those large enough to gain by it
  kAll,
};
inline constexpr Float8Products kAllFloat8Products[] = {Float8Products::kPaying,
                                                        Float8Products::kAll};
std::string_view name_of(Float8Products products);  // "paying", "all"

// Where `fp8` takes the scale of an operand's codes from.
enum class Float8Scaling : std::uint8_t {
  kDelayed,  // the operand's largest magnitude in the step before, where that still fits
  kCurrent,  // its largest magnitude
};
inline constexpr Float8Scaling kAllFloat8Scaling[] = {Float8Scaling::kDelayed,
                                                      Float8Scaling::kCurrent};
std::string_view name_of(Float8Scaling scaling);  // "delayed", "current"

// The ways to run a program.
enum class ExecutorKind : std::uint8_t {
  kEager,     // launch by launch; buffers from the device's allocator
  kArena,     // launch by launch; buffers at planned offsets in one arena
  kCompiled,  // the same, and launches are captured where the device supports it
};
inline constexpr ExecutorKind kAllExecutors[] = {ExecutorKind::kEager, ExecutorKind::kArena,
                                                 ExecutorKind::kCompiled};
std::string_view name_of(ExecutorKind kind);
constexpr bool has_arena(ExecutorKind kind) {
  return kind != ExecutorKind::kEager;
}

// When a device that can choose launches the kernels of captured steps.
enum class LaunchOrder : std::uint8_t {
  kSerial,     // each when all before it have ended
  kDependent,  // while the one before it still runs, where the kernel itself waits for its end
};
inline constexpr LaunchOrder kAllLaunchOrders[] = {LaunchOrder::kSerial, LaunchOrder::kDependent};
std::string_view name_of(LaunchOrder order);

}  // namespace tracestep
