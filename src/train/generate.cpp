#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "exec/executor.h"
#include "session/session.h"
#include "spec/step_program.h"
#include "train/generate.h"
#include "train/sampling.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"
#include "weights/weights.h"

namespace tracestep {
namespace {

HostTensor integer_tensor(std::int64_t value, const Shape& shape) {
  return HostTensor::of<std::int64_t>(DType::kI64, shape, std::span(&value, 1));
}

void load(Store& store, const GenerateOptions& options) {
  if (options.init.empty()) {
    initialize_parameters(store, options.run.seed);
    return start_adapters(WholeTensors(store), options.run);
  }
  const SavedTensors file = open_weights(options.init).tensors;
  load_weights(WholeTensors(store), options.run, file);
  if (const auto bad = find_not_finite(file)) {
    throw Error(ErrorCode::kNotFinite, options.init, bad->str(), "take other weights");
  }
}

void check_finite(const HostTensor& logits, std::int64_t position) {
  if (const auto bad = find_not_finite("the vector of logits", logits)) {
    throw Error(ErrorCode::kNotFinite, fmt::format("token {}", position + 1), bad->str(),
                "the weights are finite, what they compute is not");
  }
}

void check(const GenerateOptions& o) {
  if (o.prompt.empty()) fail_usage("prompt"_field, "is empty; at least one token is needed");
  if (o.sampling.temperature < 0.0) {
    fail_usage("temperature"_field, "{} is negative", o.sampling.temperature);
  }
  if (o.sampling.top_p <= 0.0 || o.sampling.top_p > 1.0) {
    fail_usage("top_p"_field, "{} is not in (0, 1]", o.sampling.top_p);
  }
  if (static_cast<std::int64_t>(o.prompt.size()) > o.run.shape.context) {
    fail_usage("prompt"_field, "{} tokens do not fit into a context of {}", o.prompt.size(),
               o.run.shape.context);
  }
  for (std::int64_t id : o.prompt) {
    if (id < 0 || id >= o.run.model.vocab) {
      fail_usage("prompt"_field, "token {} is beyond the vocabulary of {}", id, o.run.model.vocab);
    }
  }
}

// Returns `program` after the passes of inference, so that nothing is kept for gradients.
Program without_gradients(RunSpec run, const Program& program, const Device& device) {
  run.mode = Mode::kInference;
  return program_for(program, run, device);
}

// The KV caches of layers with an attention window. Full ones move their last tokens to the front.
class WindowedCaches {
 public:
  WindowedCaches(const RankStores& stores, const RunSpec& run)
      : stores_(stores), run_(run), cache_(windowed_cache(run.model, run.shape.context)) {}

  bool slide() const { return cache_.slides(); }
  // Returns the row of the caches for the token at `position`, the next one of the text. If the
  // caches are full, their last tokens are moved to the front first, which frees rows.
  std::int64_t place_of(std::int64_t position) {
    if (slide() && position - before_ == cache_.length) {
      if (executor_ == nullptr) {
        executor_ = stores_.executor_of_first(
            run_, without_gradients(run_, slide_program(run_), stores_.first().device()));
      }
      executor_->run();
      before_ = position - cache_.kept;
    }
    return position - before_;
  }
  // How many tokens from `position` on still fit into the caches.
  std::int64_t room_at(std::int64_t position) { return cache_.length - place_of(position); }

 private:
  const RankStores& stores_;
  const RunSpec& run_;
  const WindowedCache cache_;
  std::unique_ptr<Executor> executor_;
  std::int64_t before_ = 0;  // tokens of the text that are no longer there
};

// Decodes with KV caches: a run passes its tokens through the model at once and returns logits.
class Decoder {
 public:
  Decoder(const RankStores& stores, const RunSpec& run, WindowedCaches& caches)
      : stores_(stores), run_(run), caches_(caches) {}

  // Runs `tokens`, the first of which is at `position`; returns the logits after the last one.
  HostTensor run(std::span<const std::int64_t> tokens, std::int64_t position) {
    const std::int64_t count = std::ssize(tokens);
    if (count != count_) make(count);
    const std::int64_t place = caches_.place_of(position);
    executor_->set_input("tokens", HostTensor::of<std::int64_t>(DType::kI64, {1, count}, tokens));
    executor_->set_input("position", integer_tensor(position, {}));
    if (caches_.slide()) executor_->set_input("windowed_position", integer_tensor(place, {}));
    if (count > 1) {
      std::vector<std::int64_t> all(tokens.size());
      std::iota(all.begin(), all.end(), position);
      executor_->set_input("positions", HostTensor::of<std::int64_t>(
                                            DType::kI64, {count}, std::span(std::as_const(all))));
    }
    executor_->run();
    return executor_->output("logits");
  }

  // Makes the program. Must be called before the weights are loaded, because it allocates their
  // memory.
  void make(std::int64_t count) {
    executor_.reset();  // frees its memory first
    executor_ = stores_.executor_of_first(
        run_, without_gradients(run_, decode_program(run_, count), stores_.first().device()));
    count_ = count;
  }

  // Frees the decoder's memory, except for the weights and the caches.
  void clear() { executor_.reset(); }

 private:
  const RankStores& stores_;
  const RunSpec& run_;
  WindowedCaches& caches_;
  std::unique_ptr<Executor> executor_;
  std::int64_t count_ = 0;
};

// Runs the most likely tokens through the model, several at a time: each run leaves its token on
// the device for the next one, so that the device does not wait for the host in between.
class GreedyDecoder {
 public:
  GreedyDecoder(const RankStores& stores, const RunSpec& run, WindowedCaches& caches)
      : store_(stores.first()),
        caches_(caches),
        executor_(stores.executor_of_first(
            run, without_gradients(run, greedy_program(run), store_.device()))) {}

  // Decodes up to `count` tokens that follow `token`, which is at `position`.
  std::vector<std::int64_t> run(std::int64_t token, std::int64_t position, std::int64_t count) {
    begin(token, position);
    count = std::min(count, caches_.room_at(position));
    for (std::int64_t i = 0; i < count; ++i) executor_->run();
    const HostTensor text = store_.get(kGreedyText);
    const auto all = text.as<std::int64_t>().subspan(static_cast<std::size_t>(position),
                                                     static_cast<std::size_t>(count));
    const auto bad = std::ranges::find(all, -1);
    if (bad != all.end()) {
      explain(bad == all.begin() ? token : *(bad - 1), position + (bad - all.begin()));
    }
    next_ = position + count;
    return {all.begin(), all.end()};
  }

 private:
  void begin(std::int64_t token, std::int64_t position) {
    if (caches_.slide()) {
      store_.set(kGreedyWindowedPosition, integer_tensor(caches_.place_of(position), {}));
    }
    if (position == next_) return;  // the other states are there
    store_.set(kGreedyToken, integer_tensor(token, {1, 1}));
    store_.set(kGreedyPosition, integer_tensor(position, {}));
  }
  // Throws an error that says what is wrong with the logits after `token`.
  void explain(std::int64_t token, std::int64_t position) {
    next_ = -1;
    begin(token, position);
    executor_->run();
    check_finite(executor_->output("logits"), position);
    throw Error(ErrorCode::kNotFinite, fmt::format("token {}", position + 1),
                "a logit was infinite or NaN; computed again, all are finite",
                "the device or its memory may be faulty");
  }

  Store& store_;
  WindowedCaches& caches_;
  const std::unique_ptr<Executor> executor_;
  std::int64_t next_ = -1;  // the position that the states are at; -1: none
};

// Chooses how many tokens are decoded before the host looks at them: one at first, then twice as
// many while that takes less than 12.5 ms, at most 16; half as many if it takes more than 25 ms.
class Stride {
 public:
  std::int64_t next(std::int64_t most) const { return std::min(count_, most); }
  void took(std::chrono::steady_clock::duration time) {
    constexpr std::int64_t kMost = 16;
    constexpr std::chrono::milliseconds kLong{25};
    if (time < kLong / 2) count_ = std::min(2 * count_, kMost);
    if (time > kLong) count_ = std::max<std::int64_t>(count_ / 2, 1);
  }

 private:
  std::int64_t count_ = 1;
};

// The count of tokens of the prompt that the next run reads: as many as one run may, or the rest.
// More are not read at once, since a run holds the scores of each of its tokens against the whole
// context.
std::size_t next_count(std::size_t left) {
  return std::min(left, static_cast<std::size_t>(kDecodedAtOnce));
}

}  // namespace

std::vector<std::int64_t> generate(Device& device, const GenerateOptions& options,
                                   const StopSignal* stop,
                                   const std::function<void(std::int64_t)>& emit,
                                   const std::function<void(Store&)>& load_weights) {
  check(options);
  const RankStores stores(device);
  WindowedCaches caches(stores, options.run);
  Decoder decoder(stores, options.run, caches);
  decoder.make(static_cast<std::int64_t>(next_count(options.prompt.size())));
  load_weights ? load_weights(stores.first()) : load(stores.first(), options);
  const CounterRng rng(options.run.seed, "sampling");
  std::vector<std::int64_t> text = options.prompt, out;
  const auto add = [&](std::int64_t token) {
    out.push_back(token);
    text.push_back(token);
    if (emit) emit(token);
  };
  const auto is_done = [&] {
    return std::ssize(out) >= options.tokens || std::ssize(text) > options.run.shape.context ||
           (stop != nullptr && stop->requested());
  };
  std::vector<float> numbers;  // the logits
  std::size_t done = 0;        // tokens of the text
  const bool is_greedy = options.sampling.temperature == 0.0;
  while (!is_done() && (!is_greedy || out.empty())) {
    const std::size_t count = next_count(text.size() - done);
    const HostTensor logits =
        decoder.run(std::span(text).subspan(done, count), static_cast<std::int64_t>(done));
    done += count;
    if (done < text.size()) continue;  // still reading the prompt
    const auto last = static_cast<std::int64_t>(done) - 1;
    if (!read_logits(logits, numbers)) check_finite(logits, last);
    add(sample(numbers, options.sampling, rng.uniform(static_cast<std::uint64_t>(last))));
  }
  if (is_done()) return out;
  decoder.clear();
  GreedyDecoder greedy(stores, options.run, caches);
  for (Stride stride; !is_done();) {
    const auto start = std::chrono::steady_clock::now();
    const std::int64_t position = std::ssize(text) - 1;
    const std::int64_t most =
        std::min(options.tokens - std::ssize(out), options.run.shape.context - position);
    for (const std::int64_t token : greedy.run(text.back(), position, stride.next(most))) {
      add(token);
    }
    stride.took(std::chrono::steady_clock::now() - start);
  }
  return out;
}

}  // namespace tracestep
