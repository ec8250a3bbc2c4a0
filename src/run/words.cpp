#include "run/words.h"

namespace tracestep {

std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::kInference: return "inference";
    case Mode::kForward: return "forward";
    case Mode::kForwardBackward: return "forward-backward";
    case Mode::kStep: return "step";
  }
  return "?";
}

std::string_view name_of(AttentionForm form) {
  return form == AttentionForm::kNaive ? "naive" : "flash";
}

std::string_view name_of(UpdateTime time) {
  return time == UpdateTime::kEnd ? "end" : "early";
}

std::string_view name_of(Offload offload) {
  return offload == Offload::kNone ? "none" : "optimizer";
}

std::string_view name_of(Moments moments) {
  switch (moments) {
    case Moments::kF32: return "fp32";
    case Moments::kBF16: return "bf16";
    case Moments::k8Bit: return "8bit";
  }
  return "?";
}

std::string_view name_of(DecayOn decay_on) {
  return decay_on == DecayOn::kAll ? "all" : "matrices";
}

std::string_view name_of(Float8Products products) {
  return products == Float8Products::kPaying ? "paying" : "all";
}

std::string_view name_of(Float8Scaling scaling) {
  return scaling == Float8Scaling::kDelayed ? "delayed" : "current";
}

std::string_view name_of(ExecutorKind kind) {
  switch (kind) {
    case ExecutorKind::kEager: return "eager";
    case ExecutorKind::kArena: return "arena";
    case ExecutorKind::kCompiled: return "compiled";
  }
  return "?";
}

std::string_view name_of(LaunchOrder order) {
  return order == LaunchOrder::kSerial ? "serial" : "dependent";
}

}  // namespace tracestep
