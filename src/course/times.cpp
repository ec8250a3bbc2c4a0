// Verdicts on published times. The rules are tried in order: times that are impossible, what the
// clock really measured, the same pace as other cells, and only then what would explain a cell that
// is off.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "course/cells.h"
#include "course/modelled.h"
#include "course/ours.h"
#include "course/published.h"
#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

constexpr double kSlack = 1.5;  // cells of one pace differ by less than this factor

using Verdict = std::optional<ReplayVerdict>;

ReplayVerdict agree(std::string code, std::string text) {
  return {Agreement::kAgree, std::move(code), std::move(text)};
}
ReplayVerdict explainable(std::string code, std::string text) {
  return {Agreement::kExplainable, std::move(code), std::move(text)};
}
ReplayVerdict suspicious(std::string code, std::string text) {
  return {Agreement::kSuspicious, std::move(code), std::move(text)};
}

class Judge {
 public:
  Judge(const Published& published, const ReplayInput& ours)
      : published_(published), ours_(ours), cells_(published.times) {
    for (const PublishedTime& t : published.times) {
      const std::string key = pace_key(t);
      if (ratios_.contains(key)) continue;
      ratios_.emplace(key, ratios_like(t, &Judge::measured_ms));
    }
  }

  TimeReplay judge(const PublishedTime& t) const {
    TimeReplay out;
    out.our_ms = t.is_oom ? 0.0 : ours_.find(t);
    out.device_pace = pace_without(nullptr, t, ratios_);
    out.pace = pace_without(&t, t, ratios_);
    out.verdict = verdict_of(t, out);
    return out;
  }

 private:
  ReplayVerdict verdict_of(const PublishedTime& t, TimeReplay& replay) const {
    if (t.is_oom) return judge_out_of_memory(published_, t);
    for (auto rule :
         {&Judge::missing_wait, &Judge::sum_below_its_part, &Judge::short_backward,
          &Judge::faster_than_the_roof, &Judge::host_memory, &Judge::no_warmup,
          &Judge::slow_low_precision, &Judge::profiler, &Judge::host_range, &Judge::device_span}) {
      if (Verdict v = (this->*rule)(t)) return *v;
    }
    return beside_ours(t, replay);
  }

  static std::string pace_key(const PublishedTime& t) {
    return t.study + "|" + t.device + "|" + t.precision;
  }

  // --- verdicts on times that cannot be true -----------------------------------------------------
  // Suspects a time for which products would have to exceed the peak rate of the device.
  Verdict faster_than_the_roof(const PublishedTime& t) const {
    const PublishedDevice* device = known_device(t.device);
    if (device == nullptr || t.context == 0) return {};
    const double reached = cells_.flops(t) / t.ms * 1e-9, roof = device->tflops(t.precision);
    if (reached <= roof) return {};
    if (t.clock == PublishedClock::kHostRange) {
      return suspicious("missing_synchronization",
                        fmt::format("{:.1f} TFLOP/s on a device with {:.1f}: the range ends before "
                                    "the work does",
                                    reached, roof));
    }
    return suspicious("faster_than_the_roof",
                      fmt::format("{:.1f} TFLOP/s on a device with {:.1f}", reached, roof));
  }

  Verdict sum_below_its_part(const PublishedTime& t) const {
    if (t.pass != "forward+backward" && t.pass != "step") return {};
    const PublishedTime* forward = cells_.in_table(t, "forward");
    if (forward == nullptr || t.ms >= forward->ms) return {};
    return suspicious("sum_below_its_part",
                      fmt::format("less than its forward alone, {} ms", forward->ms));
  }

  Verdict short_backward(const PublishedTime& t) const {
    const PublishedTime* forward = cells_.in_table(t, "forward");
    if (forward == nullptr || (t.pass != "backward" && t.pass != "forward+backward")) return {};
    const double backward = t.pass == "backward" ? t.ms : t.ms - forward->ms;
    if (backward >= forward->ms) return {};
    // If either time includes a first step, their difference means nothing.
    if (t.warmup == 0) return {};
    return suspicious("backward_shorter_than_forward",
                      fmt::format("backward takes {:.2f} of forward's time and has twice its work",
                                  backward / forward->ms));
  }

  Verdict host_memory(const PublishedTime& t) const {
    constexpr double kSpill = 20;
    const PublishedTime* forward = cells_.in_table(t, "forward");
    if (forward == nullptr || t.pass == "forward" || t.ms < kSpill * forward->ms) return {};
    return suspicious("host_memory",
                      fmt::format("{:.0f} times its forward: memory of the host in use; this is "
                                  "the status of a run that does not fit, and no time",
                                  t.ms / forward->ms));
  }

  // --- verdicts on what the clock really measured ------------------------------------------------
  // Explains a time without warm-up that is longer than the warm one or spreads widely.
  Verdict no_warmup(const PublishedTime& t) const {
    constexpr double kCostsMore = 1.1, kSpread = 0.5;
    if (t.warmup != 0) return {};
    if (const PublishedTime* warm = cells_.reference(t);
        warm != nullptr && t.ms > kCostsMore * warm->ms) {
      return explainable("no_warmup",
                         fmt::format("its first step is in the mean: {:.2f} times the {} ms that "
                                     "it has after a warm-up",
                                     t.ms / warm->ms, warm->ms));
    }
    if (t.std_ms > kSpread * t.ms) {
      return explainable("no_warmup", fmt::format("its first step is in the mean: the standard "
                                                  "deviation is {:.0f} % of it",
                                                  100 * t.std_ms / t.ms));
    }
    return {};
  }

  Verdict missing_wait(const PublishedTime& t) const {
    constexpr double kShort = 1 / kSlack;
    if (t.clock != PublishedClock::kHostRange) return {};
    const PublishedTime* waited = cells_.reference(t);
    if (waited != nullptr && t.ms < kShort * waited->ms) {
      return suspicious("missing_synchronization",
                        fmt::format("{:.2f} of the {} ms that the same study finds when it waits",
                                    t.ms / waited->ms, waited->ms));
    }
    if (t.pass != "backward") return {};
    const PublishedTime* forward = cells_.in_table(t, "forward");
    if (forward == nullptr) return {};
    if (!missing_wait(*forward) && !faster_than_the_roof(*forward)) return {};
    return suspicious("missing_synchronization",
                      "its forward range ends before forward does: the rest is counted here");
  }

  Verdict profiler(const PublishedTime& t) const {
    constexpr double kInflated = 1.15;
    if (t.clock != PublishedClock::kProfiled) return {};
    if (const PublishedTime* plain = cells_.reference(t)) {
      if (t.ms < kInflated * plain->ms) return {};
      return explainable("profiler",
                         fmt::format("{:.2f} times the {} ms that it has without a profiler",
                                     t.ms / plain->ms, plain->ms));
    }
    // The cell has no time without a profiler. Its fp32 partner has one, and takes about as long as
    // this cell under the profiler.
    const PublishedTime* partner = cells_.in_fp32(t);
    if (partner == nullptr || t.ms < partner->ms / kSlack || !profiler(*partner)) return {};
    return explainable("profiler", fmt::format("as long as its fp32 partner, {} ms, of which most "
                                               "is the profiler's",
                                               partner->ms));
  }

  Verdict slow_low_precision(const PublishedTime& t) const {
    constexpr double kSlower = 1.5;
    const PublishedTime* partner = cells_.in_fp32(t);
    if (partner == nullptr || t.ms < kSlower * partner->ms) return {};
    return suspicious("slower_in_low_precision",
                      fmt::format("{:.1f} times its own fp32 time, {} ms: a run to repeat",
                                  t.ms / partner->ms, partner->ms));
  }

  Verdict host_range(const PublishedTime& t) const {
    if (t.clock != PublishedClock::kHostRange) return {};
    return explainable("host_range",
                       "what the host took inside the range, not what the device took");
  }

  Verdict device_span(const PublishedTime& t) const {
    if (t.clock != PublishedClock::kDeviceSpan) return {};
    const PublishedTime* wall = cells_.reference(t);
    if (wall == nullptr) return {};
    return explainable("device_span",
                       fmt::format("from the first kernel to the last: {:.2f} of the {} ms of wall "
                                   "clock in the same table",
                                   t.ms / wall->ms, wall->ms));
  }

  // --- compared with ours -----------------------------------------------------------------------
  // The ratio of each published time to ours.
  using Ratios = std::map<const PublishedTime*, double>;

  double measured_ms(const PublishedTime& t) const { return ours_.find(t); }
  // The time by a roofline of t's device, else of an A100, which scales all cells alike.
  double modelled_ms(const PublishedTime& t) const {
    const PublishedDevice* device = known_device(t.device);
    if (device == nullptr) device = known_device("A100 SXM 80 GB");
    return modelled_pass({t.size, t.context, t.precision, t.pass}, *device).ms();
  }

  // Returns the ratio of the published time to ours for each cell of t's study, device and
  // precision that neither launches, a profiler nor a first step slow down.
  Ratios ratios_like(const PublishedTime& t,
                     double (Judge::*our_ms)(const PublishedTime&) const) const {
    Ratios out;
    for (const PublishedTime& other : published_.times) {
      if (other.study != t.study || other.device != t.device || other.precision != t.precision) {
        continue;
      }
      if (other.is_oom || other.clock == PublishedClock::kHostRange || other.warmup == 0) continue;
      if (other.context == 0 || other.size.empty() || profiler(other) ||
          slow_low_precision(other) || !cells_.launch_bound(other).empty()) {
        continue;
      }
      if (const double ours = (this->*our_ms)(other); ours > 0) out[&other] = other.ms / ours;
    }
    return out;
  }

  // The pace of t's study, device and precision without `left_out`, which is to be judged by it.
  Pace pace_without(const PublishedTime* left_out, const PublishedTime& t,
                    const std::map<std::string, Ratios>& all) const {
    std::vector<double> ratios;
    for (const auto& [cell, ratio] : all.at(pace_key(t))) {
      if (cell != left_out) ratios.push_back(ratio);
    }
    Pace out{.cells = ratios.size()};
    if (ratios.size() >= 2) out.ratio = median_of(ratios);
    const PublishedDevice *theirs = known_device(t.device), *mine = known_device(ours_.gpu());
    if (theirs != nullptr && mine != nullptr) {
      const double flops = mine->tflops(t.precision) / theirs->tflops(t.precision);
      const double bytes = mine->bandwidth_gb_s / theirs->bandwidth_gb_s;
      out.by_low = std::min(flops, bytes);
      out.by_high = std::max(flops, bytes);
    }
    return out;
  }

  ReplayVerdict beside_ours(const PublishedTime& t, TimeReplay& replay) const {
    const std::string& held_up = cells_.launch_bound(t);
    const auto not_compared = [&](std::string why) {
      if (!held_up.empty()) why += "; launch-bound: " + held_up;
      return ReplayVerdict{Agreement::kNotCompared, "not_compared", std::move(why)};
    };
    if (t.size.empty()) return not_compared("its model is not stated");
    if (t.context == 0) return not_compared("its context is not stated");
    if (!held_up.empty()) return explainable("launch_bound", held_up);
    if (replay.our_ms <= 0 || replay.pace.ratio <= 0) return beside_roofline(t, replay);
    const Pace& pace = replay.pace;
    const double ratio = t.ms / replay.our_ms;
    const auto against = [&](double expected) {
      return fmt::format("{:.2f} times ours where {:.2f} is expected", ratio, expected);
    };
    replay.is_compared = true;
    if (pace.by_high > 0 &&
        (pace.ratio > 2 * kSlack * pace.by_high || pace.ratio < pace.by_low / (2 * kSlack))) {
      return suspicious("off_the_peaks",
                        fmt::format("its table as a whole is {:.2f} times ours; the devices' peaks "
                                    "give {:.2f} to {:.2f}",
                                    pace.ratio, pace.by_low, pace.by_high));
    }
    const double off = ratio / pace.ratio;
    if (off <= kSlack && off >= 1 / kSlack) return agree("same_pace", against(pace.ratio));
    for (double unit : {1000.0, 1e-3}) {
      if (off > unit / kSlack && off < unit * kSlack) {
        return explainable(
            "unit", against(pace.ratio) + ": seconds for milliseconds, or the other way round");
      }
    }
    if (off > 1) {
      if (Verdict v = more_than_its_label(t)) return *v;
    }
    return suspicious("unexplained", against(pace.ratio) + ", and nothing in its table says why");
  }

  // Judges a cell that this run has not measured: it agrees when it reaches the same part of a
  // roofline as the study's other cells. A roofline has neither launches nor caches, so another
  // part proves nothing.
  ReplayVerdict beside_roofline(const PublishedTime& t, TimeReplay& replay) const {
    replay.modelled_ms = modelled_ms(t);
    const auto [ratios, is_new] = modelled_ratios_.try_emplace(pace_key(t));
    if (is_new) ratios->second = ratios_like(t, &Judge::modelled_ms);
    const Pace pace = pace_without(&t, t, modelled_ratios_);
    const std::string missing = replay.our_ms <= 0 ? "no row of ours measured this cell"
                                                   : "too few other cells tell the devices' pace";
    const double ratio = t.ms / replay.modelled_ms;
    if (pace.ratio <= 0) {
      return {Agreement::kNotCompared, "not_compared",
              missing + ", nor do enough others of the study tell its part of a roofline"};
    }
    const std::string text = fmt::format(
        "{:.2f} times the time by a roofline where the study's other cells have {:.2f}; {}", ratio,
        pace.ratio, missing);
    const double off = ratio / pace.ratio;
    if (off > kSlack || off < 1 / kSlack) return {Agreement::kNotCompared, "not_compared", text};
    replay.is_predicted = true;
    return agree("predicted", text);
  }

  // Doubts the label if the time beyond forward is longer, compared with forward, than backward's
  // work explains: more than backward was timed.
  Verdict more_than_its_label(const PublishedTime& t) const {
    constexpr double kMost = 3;  // backward has twice the products, and kernels of its own
    const PublishedTime* forward = cells_.in_table(t, "forward");
    if (forward == nullptr || t.pass != "forward+backward") return {};
    const double backward = (t.ms - forward->ms) / forward->ms;
    if (backward <= kMost) return {};
    return explainable("more_than_its_label",
                       fmt::format("what follows forward takes {:.1f} times its time, and backward "
                                   "has twice its work: an optimizer, or launches",
                                   backward));
  }

  const Published& published_;
  OurTimes ours_;
  PublishedCells cells_;
  std::map<std::string, Ratios> ratios_;                   // by pace_key()
  mutable std::map<std::string, Ratios> modelled_ratios_;  // the same, where they were needed
};

}  // namespace

std::vector<TimeReplay> judge_times(const Published& published, const ReplayInput& ours) {
  const Judge judge(published, ours);
  std::vector<TimeReplay> out;
  out.reserve(published.times.size());
  for (const PublishedTime& t : published.times) out.push_back(judge.judge(t));
  return out;
}

}  // namespace tracestep
