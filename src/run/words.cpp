#include "run/words.h"

#include "base/indexed.h"

namespace tracestep {

std::string_view name_of(Mode mode) {
  return word_of<Mode::kStep>(mode, {"inference", "forward", "forward-backward", "step"});
}

std::string_view name_of(AttentionForm form) {
  return form == AttentionForm::kNaive ? "naive" : "flash";
}

std::string_view name_of(UpdateTime time) {
  return time == UpdateTime::kEnd ? "end" : "early";
}

std::string_view name_of(Offload offload) {
  return word_of<Offload::kBoth>(offload,
                                 {"none", "optimizer", "activations", "optimizer+activations"});
}

std::string_view name_of(OptimizerKind kind) {
  return word_of<OptimizerKind::kMuon>(kind, {"adamw", "sgd", "muon"});
}

std::string_view name_of(MuonScale scale) {
  return scale == MuonScale::kMatchAdamw ? "match_rms_adamw" : "original";
}

std::string_view name_of(GradientSums sums) {
  return sums == GradientSums::kF32 ? "fp32" : "low";
}

std::string_view name_of(Moments moments) {
  return word_of<Moments::k8Bit>(moments, {"fp32", "bf16", "8bit"});
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
  return word_of<ExecutorKind::kCompiled>(kind, {"eager", "arena", "compiled"});
}

std::string_view name_of(LaunchOrder order) {
  return order == LaunchOrder::kSerial ? "serial" : "dependent";
}

}  // namespace tracestep
