#include "train/step_inputs.h"

#include <algorithm>

#include "base/random.h"
#include "ops/attention_sizes.h"
#include "passes/form_passes.h"
#include "spec/step_program.h"
#include "train/schedule.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

constexpr double kLearningRate = 1e-3;

HostTensor random_tokens(const RunSpec& spec, std::string_view stream) {
  const std::int64_t rows = spec.shape.batch * micro_batches_of(spec);
  HostTensor out = HostTensor::zeros(DType::kI64, {rows, spec.shape.context});
  const CounterRng rng(spec.seed, stream);
  std::uint64_t index = 0;
  for (std::int64_t& token : out.as<std::int64_t>()) {
    token =
        static_cast<std::int64_t>(rng.below(index++, static_cast<std::uint64_t>(spec.model.vocab)));
  }
  return out;
}

// Sets where documents begin and end: kUsualDocuments in a row, or one per position if those are
// fewer. Bounds inside a row are random, up to a quarter of the mean length off an even division.
void set_documents(Executor& executor, const RunSpec& spec) {
  const std::int64_t batch = spec.shape.batch * micro_batches_of(spec),
                     context = spec.shape.context;
  const std::int64_t count = std::min(kUsualDocuments, context);
  const CounterRng rng(spec.seed, "documents");
  HostTensor starts = HostTensor::zeros(DType::kI64, {batch, context}), ends = starts;
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto bound = [&](std::int64_t i) {  // the end of document i - 1
      const double moved =
          i == 0 || i == count ? 0.0 : rng.uniform(static_cast<std::uint64_t>(b * count + i)) - 0.5;
      return static_cast<std::int64_t>((static_cast<double>(i) + moved / 2) *
                                       static_cast<double>(context) / static_cast<double>(count));
    };
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = bound(i), end = bound(i + 1);
      std::fill_n(starts.as<std::int64_t>().begin() + b * context + begin, end - begin, begin);
      std::fill_n(ends.as<std::int64_t>().begin() + b * context + begin, end - begin, end);
    }
  }
  executor.set_input(kDocumentStarts, starts);
  executor.set_input(kDocumentEnds, ends);
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
  if (has(kDocumentStarts)) set_documents(executor, spec);
  if (has(kLossCount)) {
    const auto tokens = static_cast<double>(spec.shape.batch * spec.shape.context);
    executor.set_scalar(kLossCount, tokens / spec.parallel.replicas());
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
    if (batch.is_packed()) {
      executor.set_input(kDocumentStarts, batch.starts);
      executor.set_input(kDocumentEnds, batch.ends);
    }
    if (executor.program().find_leaf(kLossCount) != kNoValue) {
      executor.set_scalar(kLossCount, batch.loss_count > 0 ? batch.loss_count : 1.0);
    }
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
