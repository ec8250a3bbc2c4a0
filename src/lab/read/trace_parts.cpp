// One walk over each thread keeps a stack of what is open: modules, ops, ranges. A call, and
// through it a kernel, belongs to what is open where it begins. A gradient belongs to the module of
// the forward op with its sequence number.
#include "lab/read/trace_parts.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace tracestep {
namespace {

constexpr std::string_view kProfilerStep = "ProfilerStep#";
constexpr std::string_view kOptimizerStep = "Optimizer.step#";
constexpr std::string_view kOptimizerZero = "Optimizer.zero_grad#";
constexpr std::string_view kEngine = "autograd::engine::evaluate_function";
constexpr std::string_view kSystemRanges[] = {kProfilerStep, kOptimizerStep, kOptimizerZero,
                                              "PyTorch Profiler", "## Call CompiledFxGraph"};

bool is_system_range(std::string_view name) {
  return std::ranges::any_of(kSystemRanges, [&](auto known) { return name.starts_with(known); });
}
bool is_loading(std::string_view name) {
  return name.find("DataLoader") != std::string_view::npos;
}
bool is_wait(std::string_view name) {
  return name.find("Synchronize") != std::string_view::npos;
}

// Where a moment of the host lies in the program.
struct Place {
  std::uint32_t module = 0;
  std::uint32_t op = kNoNumber;
  TracePass pass = TracePass::kForward;
};

class PartsWalk {
 public:
  explicit PartsWalk(const TraceRecording& recording) : from_(recording) {
    out_.modules.number_of("");
    out_.is_of_device = !recording.kernels.empty();
    out_.has_modules = !recording.modules.empty();
  }

  TraceParts run() {
    find_steps();
    walk(Find::kModulesOfForward);
    if (out_.is_of_device) {
      call_places_.resize(from_.calls.size());
      walk(Find::kPlaces);
      place_kernels();
    } else {
      walk(Find::kPlaces);
    }
    find_host_time();
    std::ranges::sort(out_.pieces, {},
                      [](const WorkPiece& p) { return std::tuple(p.start_ns, p.end_ns, p.name); });
    if (out_.is_of_device) {
      place_unlinked();
      share_moments();
    }
    return std::move(out_);
  }

 private:
  enum class Find { kModulesOfForward, kPlaces };

  struct Open {
    std::int64_t end_ns = 0;
    Place place;
    std::size_t piece = SIZE_MAX;  // of an op, in a recording without kernels
  };

  const std::string& name(std::uint32_t number) const { return from_.names[number]; }

  // --- steps

  void find_steps() {
    Intervals marked, optimized;
    for (const HostSlice& range : from_.annotations) {
      if (name(range.name).starts_with(kProfilerStep)) {
        marked.push_back({range.start_ns, range.end_ns});
      } else if (name(range.name).starts_with(kOptimizerStep)) {
        optimized.push_back({range.start_ns, range.end_ns});
      }
    }
    const auto by_start = [](const TimeSpan& a, const TimeSpan& b) {
      return a.start_ns < b.start_ns;
    };
    std::ranges::sort(marked, by_start);
    std::ranges::sort(optimized, by_start);
    if (!marked.empty()) {
      out_.marks = StepMarks::kProfiler;
      // A step lasts until the next one begins: what lies between is its own.
      for (std::size_t i = 0; i + 1 < marked.size(); ++i) marked[i].end_ns = marked[i + 1].start_ns;
      out_.steps = std::move(marked);
    } else if (!optimized.empty()) {
      out_.marks = StepMarks::kOptimizer;
      std::int64_t from = from_.first_ns;
      for (const TimeSpan& span : optimized) {
        if (span.end_ns > from) out_.steps.push_back({from, span.end_ns});
        from = std::max(from, span.end_ns);
      }
    } else {
      out_.steps = {{from_.first_ns, from_.last_ns}};
    }
  }

  std::int32_t step_at(std::int64_t moment) const {
    const auto after = std::ranges::upper_bound(out_.steps, moment, {}, &TimeSpan::start_ns);
    if (after == out_.steps.begin()) return -1;
    const auto found = after - 1;
    const bool is_in = moment < found->end_ns || out_.marks == StepMarks::kNone;
    return is_in ? static_cast<std::int32_t>(found - out_.steps.begin()) : -1;
  }

  // --- the walk

  void walk(Find find) {
    std::size_t op = 0, call = 0, module = 0, range = 0;
    for (std::uint32_t thread = 0; thread < from_.threads.size(); ++thread) {
      open_.assign(1, {INT64_MAX, {}, SIZE_MAX});
      for (;;) {
        // The next of the four lists; where several begin at once, the outer kind first.
        const auto start = [&](const auto& list, std::size_t i) {
          return i < list.size() && list[i].thread == thread ? list[i].start_ns : INT64_MAX;
        };
        const std::int64_t at_range = start(from_.annotations, range),
                           at_module = start(from_.modules, module), at_op = start(from_.ops, op),
                           at_call = start(from_.calls, call);
        const std::int64_t next = std::min({at_range, at_module, at_op, at_call});
        if (next == INT64_MAX) break;
        while (open_.back().end_ns <= next) open_.pop_back();
        if (at_range == next) {
          enter_range(from_.annotations[range++]);
        } else if (at_module == next) {
          enter_module(from_.modules[module++]);
        } else if (at_op == next) {
          enter_op(from_.ops[op++], find);
        } else {
          if (find == Find::kPlaces && out_.is_of_device) call_places_[call] = open_.back().place;
          ++call;
        }
      }
    }
  }

  void enter_range(const HostSlice& slice) {
    Place place = open_.back().place;
    const std::string& label = name(slice.name);
    if (label.starts_with(kOptimizerStep) || label.starts_with(kOptimizerZero)) {
      place.pass = TracePass::kOptimizer;
      place.module = 0;
    } else if (!out_.has_modules && !is_system_range(label) && !is_loading(label)) {
      place.module = inner(place.module, slice.name);
    }
    open_.push_back({slice.end_ns, place, open_.back().piece});
  }

  void enter_module(const HostSlice& slice) {
    Place place = open_.back().place;
    place.module = inner(place.module, slice.name);
    open_.push_back({slice.end_ns, place, open_.back().piece});
  }

  std::uint32_t inner(std::uint32_t outer, std::uint32_t label) {
    const auto [found, is_new] = inner_.try_emplace(std::pair(outer, label), 0);
    if (is_new) {
      const std::string& before = out_.modules[outer];
      found->second =
          out_.modules.number_of(before.empty() ? name(label) : before + "/" + name(label));
    }
    return found->second;
  }

  void enter_op(const HostOp& op, Find find) {
    Open next{op.end_ns, open_.back().place, open_.back().piece};
    Place& place = next.place;
    place.op = op.name;
    if (op.is_gradient || name(op.name).starts_with(kEngine)) {
      place.pass = TracePass::kBackward;
      if (const auto of = modules_of_forward_.find(op.sequence);
          op.sequence != kNoNumber && of != modules_of_forward_.end()) {
        place.module = of->second;
      }
    } else if (find == Find::kModulesOfForward && op.sequence != kNoNumber &&
               place.pass == TracePass::kForward) {
      modules_of_forward_.try_emplace(op.sequence, place.module);
    }
    if (find == Find::kPlaces && !out_.is_of_device) next.piece = add_op(op, place);
    open_.push_back(next);
  }

  // The op as a piece of work; its time is taken out of that of the op around it.
  std::size_t add_op(const HostOp& op, const Place& place) {
    const std::int64_t length = op.end_ns - op.start_ns;
    if (open_.back().piece != SIZE_MAX) out_.pieces[open_.back().piece].own_ns -= length;
    out_.pieces.push_back({.start_ns = op.start_ns,
                           .end_ns = op.end_ns,
                           .own_ns = length,
                           .name = op.name,
                           .op = op.name,
                           .module = place.module,
                           .step = step_at(op.start_ns),
                           .launched_ns = op.start_ns,
                           .work = class_of(op.name, place.pass),
                           .pass = place.pass});
    return out_.pieces.size() - 1;
  }

  WorkClass class_of(std::uint32_t label, TracePass pass) {
    const auto [found, is_new] = classes_.try_emplace(label, WorkClass::kMemoryBound);
    if (is_new) found->second = work_class_of(name(label));
    // The optimizer's own kernels are elementwise ones like any others.
    const bool is_optimizer =
        pass == TracePass::kOptimizer &&
        (found->second == WorkClass::kMemoryBound || found->second == WorkClass::kOptimizer);
    return is_optimizer ? WorkClass::kOptimizer : found->second;
  }

  // --- kernels

  void place_kernels() {
    std::vector<std::uint32_t> by_number(from_.calls.size());
    for (std::uint32_t i = 0; i < by_number.size(); ++i) by_number[i] = i;
    const auto number = [&](std::uint32_t i) { return from_.calls[i].correlation; };
    std::ranges::sort(by_number, {}, number);
    out_.pieces.reserve(from_.kernels.size());
    for (const DeviceSlice& kernel : from_.kernels) {
      WorkPiece piece{.start_ns = kernel.start_ns,
                      .end_ns = kernel.end_ns,
                      .own_ns = kernel.end_ns - kernel.start_ns,
                      .name = kernel.name,
                      .device = kernel.device,
                      .collective = kernel.collective};
      const auto found = std::ranges::lower_bound(by_number, kernel.correlation, {}, number);
      const bool is_linked = kernel.correlation != kNoNumber && found != by_number.end() &&
                             number(*found) == kernel.correlation;
      if (is_linked) {
        const HostCall& call = from_.calls[*found];
        const Place& place = call_places_[*found];
        piece.launched_ns = call.start_ns;
        piece.module = place.module;
        piece.op = place.op;
        piece.pass = place.pass;
        if (name(call.name).find("GraphLaunch") != std::string::npos) {
          piece.pass = TracePass::kGraph;
        }
      } else {
        ++out_.unlinked;
      }
      if (is_linked) piece.step = step_at(piece.launched_ns);
      piece.work = kernel.is_copy ? WorkClass::kCopies : class_of(kernel.name, piece.pass);
      out_.pieces.push_back(piece);
    }
  }

  // A kernel without a call belongs to the step of the one before it on its device: by its own time
  // it may be many steps behind its host.
  void place_unlinked() {
    std::map<std::uint16_t, std::int32_t> step;
    for (WorkPiece& piece : out_.pieces) {
      std::int32_t& last = step.try_emplace(piece.device, -1).first->second;
      if (piece.launched_ns == INT64_MIN) {
        piece.step = last;
      } else {
        last = piece.step;
      }
    }
  }

  // Each moment of a device belongs to one piece: to the one that began first, and to a collective
  // only where nothing else runs. So own times add up to the time that a device is busy.
  void share_moments() {
    std::map<std::uint16_t, std::int64_t> covered;
    std::map<std::uint16_t, Intervals> others;
    for (WorkPiece& piece : out_.pieces) {
      if (piece.work == WorkClass::kCollectives) continue;
      std::int64_t& until = covered.try_emplace(piece.device, INT64_MIN).first->second;
      piece.own_ns = std::max<std::int64_t>(0, piece.end_ns - std::max(piece.start_ns, until));
      until = std::max(until, piece.end_ns);
      Intervals& spans = others[piece.device];
      if (!spans.empty() && piece.start_ns <= spans.back().end_ns) {
        spans.back().end_ns = std::max(spans.back().end_ns, piece.end_ns);
      } else {
        spans.push_back({piece.start_ns, piece.end_ns});
      }
    }
    std::map<std::uint16_t, std::int64_t> sent;  // by collectives alone
    for (WorkPiece& piece : out_.pieces) {
      if (piece.work != WorkClass::kCollectives) continue;
      std::int64_t& until = sent.try_emplace(piece.device, INT64_MIN).first->second;
      const std::int64_t from = std::max(piece.start_ns, until);
      piece.own_ns = from < piece.end_ns ? piece.end_ns - from -
                                               covered_ns(others[piece.device], from, piece.end_ns)
                                         : 0;
      until = std::max(until, piece.end_ns);
    }
  }

  // How much of a span `spans`, which are apart and in order, cover.
  static std::int64_t covered_ns(const Intervals& spans, std::int64_t from, std::int64_t to) {
    auto at = std::ranges::upper_bound(spans, from, {}, &TimeSpan::end_ns);
    std::int64_t out = 0;
    for (; at != spans.end() && at->start_ns < to; ++at) {
      out += std::min(to, at->end_ns) - std::max(from, at->start_ns);
    }
    return out;
  }

  // --- the host

  void find_host_time() {
    for (const HostCall& call : from_.calls) {
      if (is_wait(name(call.name))) out_.waits.push_back({call.start_ns, call.end_ns});
      out_.busy.push_back({call.start_ns, call.end_ns});
    }
    for (const HostSlice& range : from_.annotations) {
      if (is_loading(name(range.name))) out_.loading.push_back({range.start_ns, range.end_ns});
    }
    for (const HostOp& op : from_.ops) out_.busy.push_back({op.start_ns, op.end_ns});
    out_.waits = united(std::move(out_.waits));
    out_.loading = united(std::move(out_.loading));
    out_.busy = united(std::move(out_.busy));
  }

  const TraceRecording& from_;
  TraceParts out_;
  std::vector<Open> open_;
  std::vector<Place> call_places_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> inner_;
  std::unordered_map<std::uint32_t, std::uint32_t> modules_of_forward_;  // by sequence number
  std::unordered_map<std::uint32_t, WorkClass> classes_;                 // by name
};

}  // namespace

std::string_view name_of(TracePass pass) {
  switch (pass) {
    case TracePass::kForward: return "forward";
    case TracePass::kBackward: return "backward";
    case TracePass::kOptimizer: return "optimizer";
    case TracePass::kGraph: return "CUDA graph";
  }
  return "?";
}

TraceParts parts_of(const TraceRecording& recording) {
  return PartsWalk(recording).run();
}

}  // namespace tracestep
