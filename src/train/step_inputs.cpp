#include "train/step_inputs.h"

#include "base/random.h"
#include "passes/form_passes.h"
#include "train/schedule.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

constexpr double kLearningRate = 1e-3;

HostTensor random_tokens(const RunSpec& spec, std::string_view stream) {
  HostTensor out = HostTensor::zeros(DType::kI64, {spec.shape.batch, spec.shape.context});
  const CounterRng rng(spec.seed, stream);
  std::uint64_t index = 0;
  for (std::int64_t& token : out.as<std::int64_t>()) {
    token =
        static_cast<std::int64_t>(rng.below(index++, static_cast<std::uint64_t>(spec.model.vocab)));
  }
  return out;
}

}  // namespace

void set_step_inputs(Executor& executor, const RunSpec& spec) {
  const Program& program = executor.program();
  const auto has = [&](std::string_view name) { return program.find_leaf(name) != kNoValue; };
  if (spec.model.captured != nullptr) {
    set_captured_inputs(executor, spec);
  } else {
    executor.set_input("tokens", random_tokens(spec, "tokens"));
    if (has("targets")) executor.set_input("targets", random_tokens(spec, "targets"));
  }
  set_batch_number(executor, spec, 0);
  if (has("lr")) executor.set_scalar("lr", kLearningRate);
  if (has("step_size")) {
    const OptimizerOptions& o = spec.optimizer;
    executor.set_scalar("step_size", step_size(kLearningRate, o.beta1, o.beta2, 1));
  }
}

void set_batch_number(Executor& executor, const RunSpec& spec, std::int64_t number) {
  const bool drops = executor.program().find_leaf(kAdapterBatch) != kNoValue;
  if (drops) executor.set_input(kAdapterBatch, batch_numbers(spec, number));
  if (spec.model.captured == nullptr) return;
  for (const CapturedInput& input : spec.model.captured->inputs) {
    const bool is_read = executor.program().find_leaf(input.name) != kNoValue;
    if (input.role != InputRole::kBatch || !is_read) continue;
    executor.set_input(input.name, batch_numbers(spec, number));
  }
}

void set_batch(Executor& executor, const RunSpec& spec, const Batch& batch) {
  const CapturedModel* const module = spec.model.captured.get();
  if (module == nullptr) {
    executor.set_input("tokens", batch.tokens);
    executor.set_input("targets", batch.targets);
    return;
  }
  for (const CapturedInput& input : module->inputs) {
    if (executor.program().find_leaf(input.name) == kNoValue) continue;
    if (input.role == InputRole::kBatch) continue;
    executor.set_input(input.name, input.role == InputRole::kTokens ? batch.tokens : batch.targets);
  }
}

void fill_for_timing(Session& session) {
  for (int rank = 0; rank < session.ranks(); ++rank) {
    Store& store = session.store(rank);
    if (store.device().computes()) initialize_for_timing(store, session.spec().seed);
    load_captured_constants(WholeTensors(store), session.spec());
  }
  set_step_inputs(session.executor(), session.spec());
}

}  // namespace tracestep
