#include "lab/read/trace_times.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "lab/measure/statistics.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostDelays = 1'000'000;

template <class Enum>
std::size_t place_of(Enum value) {
  return static_cast<std::size_t>(value);
}

// The moments at which a device's steps begin, and where the last one ends.
std::vector<std::int64_t> device_bounds(const TraceParts& parts) {
  std::vector<std::int64_t> begins(parts.steps.size(), INT64_MAX);
  std::int64_t last = INT64_MIN;
  for (const WorkPiece& piece : parts.pieces) {
    if (piece.step < 0) continue;
    std::int64_t& begin = begins[static_cast<std::size_t>(piece.step)];
    begin = std::min(begin, piece.start_ns);
    last = std::max(last, piece.end_ns);
  }
  // A step without kernels begins where the next one does.
  for (std::size_t i = begins.size(); i-- > 0;) {
    if (begins[i] == INT64_MAX) begins[i] = i + 1 < begins.size() ? begins[i + 1] : last;
  }
  begins.push_back(std::max(last, begins.back()));
  return begins;
}

class TimesBuilder {
 public:
  explicit TimesBuilder(const TraceParts& parts) : parts_(parts) {
    out_.steps = parts.steps.size();
    TRACESTEP_CHECK(out_.steps > 0);
  }

  TraceTimes build() {
    for (const TimeSpan& step : parts_.steps) {
      out_.host_ms.push_back(1e-6 * static_cast<double>(step.end_ns - step.start_ns));
    }
    for (const WorkPiece& piece : parts_.pieces) add(piece);
    if (parts_.is_of_device) {
      bounds_ = device_bounds(parts_);
      for (std::size_t i = 0; i < out_.steps; ++i) {
        out_.step_ms.push_back(1e-6 * static_cast<double>(bounds_[i + 1] - bounds_[i]));
      }
      find_gaps();
    } else {
      out_.step_ms = out_.host_ms;
      find_idle_host();
    }
    std::ranges::sort(out_.kernels, [](const KernelTimes& a, const KernelTimes& b) {
      return a.whole.total_ns() > b.whole.total_ns();
    });
    return std::move(out_);
  }

 private:
  void add(const WorkPiece& piece) {
    if (piece.step < 0) return;
    out_.kinds[place_of(piece.work)].add(piece.step, piece.own_ns);
    const std::int64_t length = piece.end_ns - piece.start_ns;
    if (piece.work == WorkClass::kCollectives && length > piece.own_ns) {
      out_.hidden_collectives.add(piece.step, length - piece.own_ns);
    }
    out_.passes[place_of(piece.pass)].add(piece.step, piece.own_ns);
    KernelTimes& kernel = kernel_of(piece);
    kernel.whole.add(piece.step, parts_.is_of_device ? length : piece.own_ns);
    ModuleTimes& module = module_of(piece.module);
    module.own.add(piece.step, piece.own_ns);
    module.passes[place_of(piece.pass)].add(piece.step, piece.own_ns);
    const bool has_delay = parts_.is_of_device && piece.launched_ns != INT64_MIN &&
                           piece.pass != TracePass::kGraph &&
                           out_.launch_delays_us.size() < kMostDelays;
    if (has_delay) {
      out_.launch_delays_us.push_back(1e-3 *
                                      static_cast<double>(piece.start_ns - piece.launched_ns));
    }
  }

  KernelTimes& kernel_of(const WorkPiece& piece) {
    const std::uint64_t key = std::uint64_t{piece.name} << 8 | place_of(piece.work);
    const auto [found, is_new] = kernels_.try_emplace(key, out_.kernels.size());
    if (is_new) {
      out_.kernels.push_back(
          {.name = piece.name, .work = piece.work, .op = piece.op, .module = piece.module});
    }
    return out_.kernels[found->second];
  }

  ModuleTimes& module_of(std::uint32_t path) {
    const auto [found, is_new] = modules_.try_emplace(path, out_.modules.size());
    if (is_new) out_.modules.push_back({.path = path});
    return out_.modules[found->second];
  }

  // --- gaps

  void find_gaps() {
    std::map<std::uint16_t, std::int64_t> until;  // of each device, what it did last
    for (const WorkPiece& piece : parts_.pieces) {
      const auto [busy, is_first] = until.try_emplace(piece.device, piece.end_ns);
      if (!is_first && piece.start_ns > busy->second) {
        add_gap(busy->second, piece);
      }
      busy->second = std::max(busy->second, piece.end_ns);
    }
  }

  // From `from` on the device did nothing until the piece began. Until it was launched the host is
  // the cause, by what it did then.
  void add_gap(std::int64_t from, const WorkPiece& next) {
    from = std::max(from, bounds_.front());
    // A gap before a step's first kernel ends the step before it, as steps of a device begin there.
    std::int32_t step = next.step;
    if (step > 0 && next.start_ns == bounds_[static_cast<std::size_t>(step)]) --step;
    if (step < 0 || next.start_ns <= from) return;
    const std::int64_t late = std::clamp(next.launched_ns, from, next.start_ns);
    std::int64_t left = late - from;
    const auto take = [&](GapCause cause, std::int64_t ns) {
      ns = std::min(ns, left);
      if (ns <= 0) return;
      out_.gaps[place_of(cause)].add(step, ns);
      left -= ns;
    };
    take(GapCause::kWait, within(parts_.waits, from, late));
    take(GapCause::kLoading, within(parts_.loading, from, late));
    take(GapCause::kHostWork, within(parts_.busy, from, late) - within(parts_.waits, from, late));
    take(GapCause::kPython, left);
    left = next.start_ns - late;
    take(next.launched_ns >= from ? GapCause::kLaunch : GapCause::kDevice, left);
  }

  static std::int64_t within(const Intervals& spans, std::int64_t from, std::int64_t to) {
    std::int64_t out = 0;
    auto at = std::ranges::upper_bound(spans, from, {}, &TimeSpan::end_ns);
    for (; at != spans.end() && at->start_ns < to; ++at) {
      out += std::min(to, at->end_ns) - std::max(from, at->start_ns);
    }
    return out;
  }

  void find_idle_host() {
    for (std::size_t i = 0; i < out_.steps; ++i) {
      const TimeSpan& step = parts_.steps[i];
      const std::int64_t busy = within(parts_.busy, step.start_ns, step.end_ns);
      const std::int64_t loading = within(parts_.loading, step.start_ns, step.end_ns);
      const std::int64_t idle = std::max<std::int64_t>(0, step.end_ns - step.start_ns - busy);
      const std::int64_t for_data = std::min(idle, loading);
      const auto number = static_cast<std::int32_t>(i);
      if (for_data > 0) out_.gaps[place_of(GapCause::kLoading)].add(number, for_data);
      out_.gaps[place_of(GapCause::kPython)].add(number, idle - for_data);
    }
  }

  const TraceParts& parts_;
  TraceTimes out_;
  std::vector<std::int64_t> bounds_;
  std::unordered_map<std::uint64_t, std::size_t> kernels_;
  std::unordered_map<std::uint32_t, std::size_t> modules_;
};

}  // namespace

std::string_view name_of(GapCause cause) {
  switch (cause) {
    case GapCause::kWait: return "the host waits for the device";
    case GapCause::kLoading: return "the host gets data";
    case GapCause::kHostWork: return "the host is in ops and calls";
    case GapCause::kPython: return "Python, or nothing recorded";
    case GapCause::kLaunch: return "the launch itself";
    case GapCause::kDevice: return "launched long before, not begun";
  }
  return "?";
}

double TraceTimes::mean_step_ms() const {
  return mean_of(step_ms);
}

std::vector<double> TraceTimes::gap_ms() const {
  std::vector<double> out(steps, 0.0);
  for (const PerStep& cause : gaps) {
    const std::vector<double> ms = cause.ms_of(steps);
    for (std::size_t i = 0; i < steps; ++i) out[i] += ms[i];
  }
  return out;
}

TraceTimes times_of(const TraceParts& parts) {
  return TimesBuilder(parts).build();
}

}  // namespace tracestep
