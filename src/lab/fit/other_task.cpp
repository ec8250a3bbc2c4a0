// Changes of the task: a smaller batch, everything stored narrow, a shorter context, adapters
// alone.
#include <numeric>
#include <optional>

#include "base/integers.h"
#include "lab/fit/remedy.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr std::int64_t kTokenUnit = 64;  // odd lengths are slow

double ms_per_token(const Remedy& r) {
  return r.figures.ms / static_cast<double>(r.step.shape.batch * r.step.shape.context);
}

class OtherTask {
 public:
  explicit OtherTask(Judge& judge) : judge_(judge), q_(judge.question()) {}

  // Finds all changes of the task; adapters come last, as all others train the whole model.
  std::vector<Remedy> find(const std::vector<Remedy>& from) {
    find_whole(from);
    add_best(from, [&](const Remedy& r) { return adapters(r); });
    return found_;
  }

 private:
  void find_whole(const std::vector<Remedy>& from) {
    add_best(from, [&](const Remedy& r) { return smaller_batch(r); });
    add_best(from, [&](const Remedy& r) { return all_narrow(r); });
    add_best(from, [&](const Remedy& r) { return shorter_context(r); });
    if (!found_.empty()) return;
    std::vector<Remedy> one;
    for (const Remedy& r : from) one.push_back(with_batch(judge_, r, 1));
    add_best(one, [&](const Remedy& r) { return all_narrow(r); });
    add_best(one, [&](const Remedy& r) { return shorter_context(r); });
    if (!found_.empty()) return;
    for (Remedy& r : one) {
      if (!is_pure(r.step.precision)) r = pure(r);
    }
    add_best(one, [&](const Remedy& r) { return shorter_context(r); });
  }

  Remedy with_context(const Remedy& r, std::int64_t units) {
    Remedy out = r;
    out.severity = ChangeSeverity::kOtherTask;
    out.step.shape.context = units * context_unit(r);
    judge_.sketch(out);
    return out;
  }

  Remedy pure(const Remedy& r) {
    Remedy out = r;
    out.severity = ChangeSeverity::kOtherTask;
    out.step.precision = {.parameters = DType::kBF16};
    judge_.sketch(out);
    return out;
  }

  // Returns the unit of contexts in tokens: 64 or 1, and a multiple of the ranks that share it.
  std::int64_t context_unit(const Remedy& r) const {
    const Parallel& parallel = r.step.parallel;
    const std::int64_t unit = q_.step.shape.context > kTokenUnit ? kTokenUnit : 1;
    return parallel.divides_rows ? std::lcm(unit, std::int64_t{parallel.tensor}) : unit;
  }

  // Returns `with(n)` for the largest n of [1, most] that fits; nullopt if none does. Programs of
  // few layers find n, as peaks grow with it, and the whole program confirms it or one below.
  template <class With>
  std::optional<Remedy> largest(std::int64_t most, const With& with) {
    std::int64_t fits = 0, fails = most + 1;
    while (fails - fits > 1) {
      const std::int64_t middle = fits + (fails - fits) / 2;
      (is_within(with(middle).figures, q_.within_bytes()) ? fits : fails) = middle;
    }
    for (; fits > 0; --fits) {
      Remedy out = with(fits);
      judge_.look_at(out);
      if (is_within(out.figures, q_.within_bytes())) return out;
    }
    return std::nullopt;
  }

  std::optional<Remedy> smaller_batch(const Remedy& r) {
    const std::int64_t unit = least_sequences(r.step);
    return largest((r.step.shape.batch / r.step.parallel.replicas() - 1) / unit,
                   [&](std::int64_t n) { return with_batch(judge_, r, n * unit); });
  }
  std::optional<Remedy> shorter_context(const Remedy& r) {
    return largest((q_.step.shape.context - 1) / context_unit(r),
                   [&](std::int64_t n) { return with_context(r, n); });
  }
  std::optional<Remedy> all_narrow(const Remedy& r) {
    if (is_pure(r.step.precision)) return std::nullopt;
    Remedy out = pure(r);
    if (!may_fit(out.figures.peak_bytes, q_.within_bytes())) return std::nullopt;
    judge_.look_at(out);
    return is_within(out.figures, q_.within_bytes()) ? std::optional(out) : std::nullopt;
  }

  // Returns the remedy with LoRA beside every product; nullopt if not possible or not fitting.
  std::optional<Remedy> adapters(const Remedy& r) {
    // Ranks that divide rows between products have no adapters.
    if (r.step.mode != Mode::kStep || trains_part(r.step) || r.step.parallel.divides_rows) {
      return std::nullopt;
    }
    Remedy out = r;
    out.severity = ChangeSeverity::kOtherTask;
    out.step.lora = {.rank = 16, .alpha = 32, .targets = {"all"}};
    judge_.sketch(out);
    if (!may_fit(out.figures.peak_bytes, q_.within_bytes())) return std::nullopt;
    judge_.look_at(out);
    return is_within(out.figures, q_.within_bytes()) ? std::optional(out) : std::nullopt;
  }

  template <class Make>
  void add_best(const std::vector<Remedy>& from, const Make& make) {
    std::optional<Remedy> best;
    for (const Remedy& r : from) {
      std::optional<Remedy> next = make(r);
      if (next && (!best || is_less_of_a_change(*next, *best))) best = std::move(next);
    }
    if (best) found_.push_back(std::move(*best));
  }

  static bool is_less_of_a_change(const Remedy& a, const Remedy& b) {
    const std::int64_t now = a.step.shape.context, other = b.step.shape.context;
    return now != other ? now > other : ms_per_token(a) * (1 + kAlike) < ms_per_token(b);
  }

  Judge& judge_;
  const FitQuestion& q_;
  std::vector<Remedy> found_;
};

}  // namespace

std::int64_t least_sequences(const RunSpec& step) {
  const std::int64_t ranks = step.parallel.divides_rows ? step.parallel.tensor : 1;
  return ranks / std::gcd(ranks, step.shape.context);
}

Remedy with_batch(Judge& judge, const Remedy& remedy, std::int64_t sequences) {
  const std::int64_t least = least_sequences(remedy.step), units = ceil_div(sequences, least);
  Remedy out = remedy;
  out.severity = ChangeSeverity::kOtherTask;
  // The batch must be shared equally by the replicas.
  out.step.shape.batch = units * least * out.step.parallel.replicas();
  out.micro_batches = std::gcd(out.micro_batches, units);
  judge.sketch(out);
  return out;
}

std::vector<Remedy> of_another_task(Judge& judge, const std::vector<Remedy>& from) {
  return OtherTask(judge).find(from);
}

}  // namespace tracestep
