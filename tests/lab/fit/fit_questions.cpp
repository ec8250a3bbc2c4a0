#include "lab/fit/fit_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backends/comm/local/local_group.h"
#include "base/units.h"
#include "exec/executor.h"
#include "lab/fit/plan.h"
#include "lab/fit/search.h"
#include "lab/memory/run.h"
#include "lab/predict/published_times.h"
#include "session/devices.h"
#include "spec/micro_batches.h"
#include "spec/parse_words.h"
#include "support/backends.h"
#include "support/tiny_training.h"

namespace tracestep::testing {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostSets = 48;  // where there are more, more fields are given

// A set of changes that keeps the task.
struct Tried {
  RunSpec step;
  std::int64_t micro_batches = 1;
  int severity = 0;
  bool is_change = true;
  std::int64_t peak_bytes = 0;
  double ms = 0;
};

// Every combination of changes that keep the task, written out again.
class AllSets {
 public:
  explicit AllSets(const FitCase& q) : all_{{.step = q.step, .is_change = false}} {
    share(q);
    const auto again = [](const char* what) {
      return [what](Tried& t) { t.step.recompute = parse_recomputation("test", what); };
    };
    if (q.step.recompute == Recomputation()) {
      widen(0, again("layers.*.ffn"), again("layers.*.attn"), again("blocks"));
      if (q.step.model.layers >= 4) widen(0, again("every=2"));
      if (q.step.model.layers >= 8) widen(0, again("every=4"));
      const auto blocks = [](bool cuts, bool moves) {
        return [=](Tried& t) {
          t.step.recompute = parse_recomputation("test", "blocks");
          if (cuts) t.step.ffn_chunks = 0;
          if (moves) t.step.offload = Offload::kActivations;
        };
      };
      if (q.traits.has_own_memory()) widen(0, blocks(false, true));
      widen(1, blocks(true, false));
      if (q.traits.has_own_memory()) widen(1, blocks(true, true));
    }
    if (q.step.updates != UpdateTime::kEarly) {
      widen(0, [](Tried& t) { t.step.updates = UpdateTime::kEarly; });
      std::erase_if(all_, [](const Tried& t) {
        return t.micro_batches > 1 && t.step.updates == UpdateTime::kEarly;
      });
    }
    if (q.traits.has_own_memory() && q.step.offload == Offload::kNone) {
      widen(0, [](Tried& t) { offload_optimizer(t.step); });
    }
    if (q.step.attention != AttentionForm::kFlash) {
      widen(1, [](Tried& t) { t.step.attention = AttentionForm::kFlash; });
    }
    if (q.step.loss_chunks == 1) widen(1, [](Tried& t) { t.step.loss_chunks = 0; });
    if (!q.step.precision.autocast) {
      widen(2, [](Tried& t) { t.step.precision = {.autocast = DType::kBF16}; });
    }
    narrow_moments(q.step.optimizer.moments);
  }

  std::vector<Tried> take() { return std::move(all_); }

 private:
  void narrow_moments(Moments asked) {
    const auto narrow = [](Tried& t) { t.step.optimizer.moments = Moments::kBF16; };
    const auto code = [](Tried& t) { t.step.optimizer.moments = Moments::k8Bit; };
    if (asked == Moments::kF32) widen(3, narrow, code);
    if (asked == Moments::kBF16) widen(3, code);
    if (asked == Moments::k8Bit) return;
    std::erase_if(all_, [](const Tried& t) {
      return t.step.optimizer.moments == Moments::k8Bit && !t.step.parallel.updates_whole_tensors();
    });
    for (Tried& t : all_) {
      if (t.step.optimizer.moments == Moments::k8Bit) t.severity = 4;
    }
  }

  void share(const FitCase& q) {
    std::vector<Tried> shared;
    for (const Parallel& parallel : q.parallels) {
      shared.push_back(all_.front());
      shared.back().step.parallel = parallel;
      shared.back().is_change = true;
    }
    if (!shared.empty()) all_ = std::move(shared);
    if (!q.has_micro_batches) return;
    const std::size_t whole = all_.size();
    for (std::size_t i = 0; i < whole; ++i) {
      const RunSpec step = all_[i].step;
      const std::int64_t sequences = step.shape.batch / step.parallel.replicas();
      const int ranks = step.parallel.divides_rows ? step.parallel.tensor : 1;
      for (std::int64_t n = 2; n <= sequences && sequences % n == 0; n *= 2) {
        if (sequences / n * step.shape.context % ranks != 0) break;
        all_.push_back({.step = step, .micro_batches = n, .severity = 1});
      }
    }
  }

  template <class... Change>
  void widen(int severity, const Change&... change) {
    const std::size_t before = all_.size();
    const auto add = [&](const auto& one) {
      for (std::size_t i = 0; i < before; ++i) {
        Tried next = all_[i];
        one(next);
        next.severity = std::max(next.severity, severity);
        next.is_change = true;
        all_.push_back(std::move(next));
      }
    };
    (add(change), ...);
  }

  std::vector<Tried> all_;
};

std::int64_t exact_peak(const RunSpec& step, std::int64_t micro_batches,
                        const DeviceTraits& traits) {
  return predicted_peak_bytes(step.executor, parts_of_step(step, micro_batches, traits), traits);
}

std::string name_of(const Remedy& r) {
  return fmt::format("{} ({}, {:.4g} ms)", r.command, format_bytes(r.figures.peak_bytes),
                     r.figures.ms);
}

// Two steps of a training in micro-batches, on devices that have no more than the limit.
bool trains_within(const Remedy& r, std::int64_t limit) {
  TrainOptions options;
  options.run = r.step;
  options.run.shape.batch /= r.micro_batches;
  options.run.accumulate = r.micro_batches;
  const auto device = backend_named("cpu").make({.threads = 2, .memory_limit = limit});
  try {
    const RankDevices devices = make_rank_devices(*device, options.run);
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(4 * (r.step.shape.batch + 1) * (r.step.shape.context + 1)), 1);
    Trainer trainer(devices, options, memory_tokens("tokens", tokens), nullptr);
    for (int i = 0; i < 2; ++i) trainer.step(i);
  } catch (const OutOfMemory&) {
    return false;
  }
  return true;
}

bool runs_within(const Remedy& r, std::int64_t limit) {
  if (r.micro_batches > 1) return trains_within(r, limit);
  const auto make = [&](const RunSpec&) {
    return backend_named("cpu").make({.threads = 2, .memory_limit = limit});
  };
  const MemoryRun run = run_memory(make, {.step = r.step});
  return run.status == Status::kOk && run.peak_bytes == r.figures.peak_bytes;
}

std::string fault_of(const FitQuestion& question, const Advice& advice,
                     const std::vector<Tried>& all) {
  for (const Remedy& r : advice.remedies) {
    const std::int64_t peak = exact_peak(r.step, r.micro_batches, question.traits);
    if (r.figures.peak_bytes != peak) return fmt::format("{} holds {}", name_of(r), peak);
    if (peak > question.within_bytes()) return name_of(r) + " does not fit";
  }
  double best = kNone, found = kNone;
  for (int severity = 0; severity < 4; ++severity) {
    for (const Tried& t : all) {
      const bool fits = t.is_change && t.peak_bytes <= question.within_bytes();
      if (fits && t.severity <= severity) best = std::min(best, t.ms);
    }
    for (const Remedy& r : advice.remedies) {
      if (static_cast<int>(r.severity) <= severity) found = std::min(found, r.figures.ms);
    }
    if (best < kNone && found > best * 1.02) {
      return fmt::format("severity {}: {:.5g} ms, and {:.5g} are enough", severity, found, best);
    }
  }
  for (const Remedy& r : advice.remedies) {
    if (!r.keeps_task() && best < kNone) return name_of(r) + " is another task";
  }
  const bool runs = question.traits.kind == DeviceKind::kCpu && !advice.remedies.empty();
  if (runs && !runs_within(advice.remedies.front(), question.within_bytes())) {
    return name_of(advice.remedies.front()) + " does not run within the limit";
  }
  return {};
}

void give_fields(std::mt19937& random, FitCase& q) {
  for (int field = static_cast<int>(random() % 5), given = 0;
       given < 5 && AllSets(q).take().size() > kMostSets; ++given, field = (field + 1) % 5) {
    if (field == 0) q.step.updates = UpdateTime::kEarly;
    if (field == 1) q.step.attention = AttentionForm::kFlash;
    if (field == 2) q.step.loss_chunks = 0;
    if (field == 3) q.step.optimizer.moments = Moments::kBF16;
    if (field == 4) q.step.precision = {.autocast = DType::kBF16};
  }
}

}  // namespace

void register_fit_devices() {
  register_device("cpu", [](const RunSpec& run) {
    return backend_named("cpu").make({.threads = run.place.threads});
  });
  register_group([](Device&, int ranks) { return make_local_group(ranks); });
}

FitCase random_case(std::mt19937& random) {
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[std::uniform_int_distribution<std::size_t>(0, sizeof...(values) - 1)(random)];
  };
  FitCase out;
  out.step.model = {.vocab = one_of(50, 700, 3000),
                    .d_model = one_of(32, 64),
                    .d_ff = one_of(64, 200),
                    .layers = one_of(1, 2, 3, 5, 8),
                    .heads = one_of(2, 4)};
  out.step.shape = {.batch = one_of(1, 3, 4, 8), .context = one_of(16, 100, 300)};
  out.step.place.threads = 2;
  out.step.attention = one_of(AttentionForm::kNaive, AttentionForm::kFlash);
  out.step.executor = one_of(ExecutorKind::kEager, ExecutorKind::kArena);
  if (one_of(0, 1) == 1) out.step.precision = {.autocast = DType::kBF16};
  out.traits = {.kind = one_of(DeviceKind::kCpu, DeviceKind::kCuda), .threads = 2};
  if (one_of(0, 0, 1) == 1) out.parallels = parallel_choices(out.step, one_of(2, 4), 4);
  out.has_micro_batches = one_of(0, 1) == 1;
  out.fill = std::uniform_real_distribution<>(-0.1, 1)(random);
  out.margin = one_of(0.0, 0.05, 0.1);
  give_fields(random, out);
  return out;
}

std::string fault_of(const FitCase& q) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  const Predictor times{*model, {}, Link{.gb_s = 20, .call_us = 10}};
  std::vector<Tried> all = AllSets(q).take();
  for (Tried& t : all) {
    const std::vector<StepPart> parts = parts_of_step(t.step, t.micro_batches, q.traits);
    t.peak_bytes = predicted_peak_bytes(t.step.executor, parts, q.traits);
    for (const auto& [program, runs] : parts) {
      t.ms += static_cast<double>(runs) * predict_program(t.step, program, q.traits, times).time.ms;
    }
  }
  const auto [least, most] = std::ranges::minmax(all, {}, &Tried::peak_bytes);
  const auto room = static_cast<double>(most.peak_bytes - least.peak_bytes);
  const FitQuestion question{
      .step = q.step,
      .traits = q.traits,
      .limit_bytes = least.peak_bytes + static_cast<std::int64_t>(q.fill * room),
      .margin = q.margin,
      .times = &times,
      .parallels = q.parallels,
      .division = q.has_micro_batches ? BatchDivision::kFreely : BatchDivision::kNever};
  return fault_of(question, advise(question), all);
}

}  // namespace tracestep::testing
