#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "exec/executor.h"
#include "session/session.h"
#include "spec/step_program.h"
#include "train/loop.h"
#include "train/model_store.h"
#include "train/sampling.h"
#include "train/weights.h"

namespace tracestep {
namespace {

HostTensor integer_tensor(std::int64_t value, const Shape& shape) {
  return HostTensor::of<std::int64_t>(DType::kI64, shape, std::span(&value, 1));
}

void load(Store& store, const GenerateOptions& options) {
  if (options.init.empty()) return initialize_parameters(store, options.run.seed);
  const SavedTensors file = open_weights(options.init).tensors;
  load_parameters(store, file);
  if (const auto bad = find_not_finite(file)) {
    throw Error(ErrorCode::kNotFinite, options.init.string(), bad->str(), "take other weights");
  }
}

void check_finite(const HostTensor& logits, std::int64_t position) {
  if (const auto bad = find_not_finite("the vector of logits", logits)) {
    throw Error(ErrorCode::kNotFinite, fmt::format("token {}", position + 1), bad->str(),
                "the weights are finite, what they compute is not");
  }
}

void check(const GenerateOptions& o) {
  if (o.prompt.empty()) fail_usage("prompt", "is empty; at least one token is needed");
  if (o.sampling.temperature < 0.0) {
    fail_usage("temperature", "{} is negative", o.sampling.temperature);
  }
  if (o.sampling.top_p <= 0.0 || o.sampling.top_p > 1.0) {
    fail_usage("top_p", "{} is not in (0, 1]", o.sampling.top_p);
  }
  if (static_cast<std::int64_t>(o.prompt.size()) > o.run.shape.context) {
    fail_usage("prompt", "{} tokens do not fit into a context of {}", o.prompt.size(),
               o.run.shape.context);
  }
  for (std::int64_t id : o.prompt) {
    if (id < 0 || id >= o.run.model.vocab) {
      fail_usage("prompt", "token {} is beyond the vocabulary of {}", id, o.run.model.vocab);
    }
  }
}

// A program of `count` tokens per run, which computes and keeps no gradients.
Program decoding_program(RunSpec run, std::int64_t count, const Device& device) {
  run.mode = Mode::kInference;
  return program_for(decode_program(run, count), run, device);
}

// Runs tokens one after another through the model, as many at a time as they are asked for.
class Decoder {
 public:
  Decoder(const RankStores& stores, const RunSpec& run) : stores_(stores), run_(run) {}

  // The logits after `tokens`, the first of which is at `position`.
  HostTensor run(std::span<const std::int64_t> tokens, std::int64_t position) {
    const std::int64_t count = std::ssize(tokens);
    if (count != count_) make(count);
    executor_->set_input("tokens", HostTensor::of<std::int64_t>(DType::kI64, {1, count}, tokens));
    executor_->set_input("position", integer_tensor(position, {}));
    if (count > 1) {
      std::vector<std::int64_t> all(tokens.size());
      std::iota(all.begin(), all.end(), position);
      executor_->set_input("positions", HostTensor::of<std::int64_t>(
                                            DType::kI64, {count}, std::span(std::as_const(all))));
    }
    executor_->run();
    return executor_->output("logits");
  }

  // To be called before the weights are loaded, as it makes their place.
  void make(std::int64_t count) {
    executor_.reset();  // its memory goes first
    executor_ =
        stores_.executor_of_first(run_, decoding_program(run_, count, stores_.first().device()));
    count_ = count;
  }

 private:
  const RankStores& stores_;
  const RunSpec& run_;
  std::unique_ptr<Executor> executor_;
  std::int64_t count_ = 0;
};

// How many tokens of the prompt are next: all runs but the first are as long as they may be.
std::size_t next_count(std::size_t left) {
  constexpr std::size_t kMost = 128;  // their scores are held, against the whole context
  return left <= 1 ? 1 : (left - 1) % kMost + 1;
}

}  // namespace

std::vector<std::int64_t> generate(Device& device, const GenerateOptions& options,
                                   const StopSignal* stop,
                                   const std::function<void(std::int64_t)>& emit,
                                   const std::function<void(Store&)>& load_weights) {
  check(options);
  const RankStores stores(device);
  Decoder decoder(stores, options.run);
  decoder.make(static_cast<std::int64_t>(next_count(options.prompt.size())));
  load_weights ? load_weights(stores.first()) : load(stores.first(), options);
  const CounterRng rng(options.run.seed, "sampling");
  std::vector<std::int64_t> text = options.prompt, out;
  std::vector<float> numbers;  // the logits
  std::size_t done = 0;        // tokens of the text
  while (std::ssize(out) < options.tokens && std::ssize(text) <= options.run.shape.context) {
    if (stop != nullptr && stop->requested()) break;
    const std::size_t count = next_count(text.size() - done);
    const HostTensor logits =
        decoder.run(std::span(text).subspan(done, count), static_cast<std::int64_t>(done));
    done += count;
    if (done < text.size()) continue;  // still reading the prompt
    const auto last = static_cast<std::int64_t>(done) - 1;
    if (!read_logits(logits, numbers)) check_finite(logits, last);
    out.push_back(sample(numbers, options.sampling, rng.uniform(static_cast<std::uint64_t>(last))));
    text.push_back(out.back());
    if (emit) emit(out.back());
  }
  return out;
}

}  // namespace tracestep
