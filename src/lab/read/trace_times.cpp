// Walks once through the events of host and devices in the order of their begin. A kernel belongs
// to what was open on the host when its call began; only the latest calls are remembered, because
// their numbers rise.
#include "lab/read/trace_times.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/indexed.h"
#include "lab/measure/statistics.h"
#include "lab/read/host_walk.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostDelays = 1'000'000;
constexpr std::size_t kMostCollectives = 1'000'000;
constexpr std::size_t kMostReplays = 8;  // that run beside each other
constexpr std::size_t kForgetEvery = 1 << 14;
constexpr std::size_t kMostKept = 20'000;

class DeviceWalk {
 public:
  DeviceWalk(const TraceFacts& facts, TraceTimes& times, HostWalk& host, EagerKernels& eager)
      : times_(times),
        host_(host),
        eager_(eager),
        begins_(times.count(), INT64_MAX),
        keeps_eager_(eager.is_empty()),
        calls_(facts.is_of_device() ? facts.ring_size() : 1) {}

  void note_call(const TraceEvent& event, const HostPlace& place) {
    if (event.link == kNoNumber) return;
    calls_[event.link % calls_.size()] = {event.start_ns, event.link, place,
                                          times_.steps.at(event.start_ns),
                                          host_.is_graph_launch(event.name)};
  }

  void add(const TraceEvent& event) {
    WorkPiece piece{.start_ns = event.start_ns,
                    .end_ns = event.end_ns,
                    .name = event.name,
                    .device = static_cast<std::uint16_t>(event.thread >> 16),
                    .is_copy = event.kind == EventKind::kCopy};
    if (times_.pieces++ == 0) times_.device = piece.device;
    Device& device = devices_[piece.device];
    const Call& call = calls_[event.link % calls_.size()];
    if (event.link != kNoNumber && call.link == event.link) {
      piece.launched_ns = call.start_ns;
      piece.place = call.place;
      piece.step = device.step = call.step;
      piece.is_replayed = call.is_graph_launch;
    } else {
      // The piece counts in the step of the piece before it, as a device may run a piece many steps
      // later than the host launches it.
      ++times_.unlinked;
      piece.step = device.step;
    }
    set_work(piece);
    add_gap(piece, device);
    share(piece, device);
    if (piece.is_replayed && piece.work != WorkClass::kCollectives) {
      add_replayed(event.link, piece);
    } else {
      if (piece.is_replayed) piece.place = {.pass = TracePass::kGraph};
      if (keeps_eager_ && !piece.is_replayed && piece.launched_ns != INT64_MIN)
        eager_.add(piece.name, piece.place);
      settle(piece, device);
    }
    if (times_.pieces % kForgetEvery == 0) forget();
  }

  void finish() {
    while (!replays_.empty()) name_replay();
    for (auto& [number, device] : devices_) end_collectives(device, INT64_MAX);
    end_steps();
  }

 private:
  struct Call {
    std::int64_t start_ns = 0;
    std::uint32_t link = kNoNumber;
    HostPlace place = {};
    std::int32_t step = -1;
    bool is_graph_launch = false;
  };
  struct Device {
    std::int32_t step = -1;              // of the last kernel
    std::int64_t until = INT64_MIN;      // of all work
    std::int64_t covered = INT64_MIN;    // of all but collectives
    std::int64_t sent = INT64_MIN;       // of collectives
    std::vector<WorkPiece> collectives;  // that may still run; own_ns is what is not yet hidden
  };
  struct Replay {
    std::uint32_t link;
    std::vector<WorkPiece> pieces;
  };

  void set_work(WorkPiece& piece) {
    piece.work = piece.is_copy ? WorkClass::kCopies : host_.class_of(piece.name, piece.place.pass);
  }

  // --- the time of each piece --------------------------------------------------------------------
  // Sets a piece's own time. A moment of a device belongs to the piece that began first, to a
  // collective only where nothing else runs: own times add up to the time that a device is busy.
  void share(WorkPiece& piece, Device& device) {
    end_collectives(device, piece.start_ns);
    if (piece.work == WorkClass::kCollectives) {
      const std::int64_t from = std::max(piece.start_ns, device.sent);
      piece.own_ns = std::max<std::int64_t>(0, piece.end_ns - std::max(from, device.covered));
      device.sent = std::max(device.sent, piece.end_ns);
      return;
    }
    const std::int64_t from = std::max(piece.start_ns, device.covered);
    piece.own_ns = std::max<std::int64_t>(0, piece.end_ns - from);
    device.covered = std::max(device.covered, piece.end_ns);
    for (WorkPiece& sent : device.collectives) {
      const std::int64_t both = std::min(sent.end_ns, piece.end_ns) - std::max(from, sent.start_ns);
      sent.own_ns -= std::clamp<std::int64_t>(both, 0, sent.own_ns);
    }
  }

  void settle(const WorkPiece& piece, Device& device) {
    if (piece.work == WorkClass::kCollectives) {
      device.collectives.push_back(piece);
    } else {
      add_piece(piece, true, times_);
    }
  }

  void end_collectives(Device& device, std::int64_t until) {
    std::erase_if(device.collectives, [&](const WorkPiece& piece) {
      if (piece.end_ns > until) return false;
      add_piece(piece, true, times_);
      std::vector<std::int64_t>& all = times_.collectives[piece.name];
      if (piece.step >= 0 && all.size() < kMostCollectives) {
        all.push_back(piece.end_ns - piece.start_ns);
      }
      return true;
    });
  }

  // --- replays of CUDA graphs: their kernels wait until all of them are there
  // Adds a piece to its replay; beyond kMostReplays the oldest replay gets its names.
  void add_replayed(std::uint32_t link, const WorkPiece& piece) {
    auto found = std::ranges::find(replays_, link, &Replay::link);
    if (found == replays_.end()) {
      if (replays_.size() == kMostReplays) name_replay();
      replays_.push_back({link, {}});
      found = replays_.end() - 1;
    }
    found->pieces.push_back(piece);
  }

  void name_replay() {
    Replay replay = std::move(replays_.front());
    replays_.erase(replays_.begin());
    std::vector<std::uint32_t> names;
    for (const WorkPiece& piece : replay.pieces) names.push_back(piece.name);
    const std::vector<const HostPlace*> places = eager_.places_of(names);
    for (std::size_t i = 0; i < names.size(); ++i) {
      WorkPiece& piece = replay.pieces[i];
      piece.place = {.pass = TracePass::kGraph};
      if (places[i] != nullptr) piece.place = *places[i];
      times_.named += places[i] != nullptr;
      ++times_.replayed;
      set_work(piece);
      settle(piece, devices_[piece.device]);
    }
  }

  // --- gaps

  // Adds the gap before a piece, in which the device did nothing, by cause: what the host did until
  // it launched the piece, and after that the launch itself or the device.
  void add_gap(const WorkPiece& piece, Device& device) {
    const std::int64_t before = device.until;
    device.until = std::max(device.until, piece.end_ns);
    last_ = std::max(last_, piece.step >= 0 ? piece.end_ns : INT64_MIN);
    if (piece.step < 0) return;
    std::int64_t& begin = begins_[static_cast<std::size_t>(piece.step)];
    // A gap before a step's first kernel ends the step before it, as steps of a device begin there.
    const std::int32_t step = begin == INT64_MAX ? std::max(0, piece.step - 1) : piece.step;
    begin = std::min(begin, piece.start_ns);
    first_ = std::min(first_, piece.start_ns);
    const std::int64_t from = std::max(before, first_);
    if (before == INT64_MIN || piece.start_ns <= from) return;
    const std::int64_t late = std::clamp(piece.launched_ns, from, piece.start_ns);
    std::int64_t left = late - from;
    const auto take = [&](GapCause cause, std::int64_t ns) {
      ns = std::min(ns, left);
      if (ns <= 0) return;
      times_.parts.times(PartLevel::kGap, cause).add(step, ns);
      left -= ns;
    };
    const std::int64_t waits = host_.waits().within(from, late);
    take(GapCause::kWait, waits);
    take(GapCause::kLoading, host_.loading().within(from, late));
    take(GapCause::kHostWork, host_.busy().within(from, late) - waits);
    take(GapCause::kPython, left);
    left = piece.start_ns - late;
    take(piece.launched_ns >= from ? GapCause::kLaunch : GapCause::kDevice, left);
  }

  void forget() {
    std::int64_t needed = INT64_MAX;
    for (const auto& [number, device] : devices_) needed = std::min(needed, device.until);
    host_.forget(needed);
  }

  void end_steps() {
    // A step without kernels begins where the next one does.
    std::int64_t next = last_;
    for (std::size_t i = begins_.size(); i-- > 0;) {
      if (begins_[i] == INT64_MAX) begins_[i] = next;
      next = begins_[i];
    }
    for (std::size_t i = 0; i < begins_.size(); ++i) {
      const std::int64_t end =
          i + 1 < begins_.size() ? begins_[i + 1] : std::max(last_, begins_[i]);
      times_.step_ms.push_back(1e-6 * static_cast<double>(end - begins_[i]));
    }
  }

  TraceTimes& times_;
  HostWalk& host_;
  EagerKernels& eager_;
  std::vector<std::int64_t> begins_;  // of the steps on devices
  std::int64_t first_ = INT64_MAX, last_ = INT64_MIN;
  bool keeps_eager_;
  std::vector<Call> calls_;  // by the last bits of their numbers
  std::map<std::uint16_t, Device> devices_;
  std::vector<Replay> replays_;
};

}  // namespace

void add_piece(const WorkPiece& piece, bool is_of_device, TraceTimes& times) {
  if (piece.step < 0) return;
  if (piece.step == times.kept_step && times.kept.size() < kMostKept) times.kept.push_back(piece);
  const std::int64_t length = piece.end_ns - piece.start_ns, own = piece.own_ns;
  const auto add = [&](PartLevel level, auto which, std::int64_t ns) {
    times.parts.times(level, which).add(piece.step, ns);
  };
  add(PartLevel::kKind, piece.work, own);
  if (is_of_device && piece.work == WorkClass::kCollectives && length > own) {
    add(PartLevel::kHidden, 0, length - own);
  }
  add(PartLevel::kPass, piece.place.pass, own);
  const int module = static_cast<int>(piece.place.module);
  add(PartLevel::kModule, module, own);
  if (piece.place.pass == TracePass::kForward) add(PartLevel::kModuleForward, module, own);
  if (piece.place.pass == TracePass::kBackward) add(PartLevel::kModuleBackward, module, own);
  Part& kernel = times.parts.at(PartLevel::kKernel, piece.name, piece.work);
  if (kernel.times.count() == 0) kernel.place = piece.place;
  kernel.times.add(piece.step, is_of_device ? length : own);
  const bool has_delay = piece.launched_ns != INT64_MIN && !piece.is_replayed &&
                         times.launch_delays_us.size() < kMostDelays;
  if (has_delay) {
    times.launch_delays_us.push_back(1e-3 *
                                     static_cast<double>(piece.start_ns - piece.launched_ns));
  }
}

TraceTimes::TraceTimes() {
  paths.number_of("");
  // Parts that no step has are shown as nothing, and in this order.
  for (const WorkClass work : kAll<WorkClass>) parts.times(PartLevel::kKind, work);
  for (const TracePass pass : kAll<TracePass>) parts.times(PartLevel::kPass, pass);
}

double TraceTimes::mean_step_ms() const {
  return mean_of(step_ms);
}

std::int32_t TraceTimes::middle_step() const {
  const double median = median_of(step_ms);
  const auto distance = [&](double ms) { return std::abs(ms - median); };
  return static_cast<std::int32_t>(std::ranges::min_element(step_ms, {}, distance) -
                                   step_ms.begin());
}

std::vector<double> TraceTimes::ms_of(PartLevel level, std::uint32_t but) const {
  std::vector<double> out(count(), 0.0);
  for (const Part* part : parts.of(level)) {
    if (part->number != but) part->times.add_to(out);
  }
  return out;
}

TraceTimes times_of(const TraceFacts& facts, EventOrder& events, EagerKernels& eager,
                    TraceTimes times) {
  times.steps = steps_of(facts, events);
  TRACESTEP_CHECK(times.count() > 0);
  for (const TimeSpan& step : times.steps.spans) {
    times.host_ms.push_back(1e-6 * static_cast<double>(step.end_ns - step.start_ns));
  }
  HostWalk host(facts, times);
  DeviceWalk devices(facts, times, host, eager);
  events.for_each([&](const TraceEvent& event) {
    if (event.is_of_device()) return devices.add(event);
    const HostPlace place = host.enter(event);
    if (event.kind == EventKind::kCall) devices.note_call(event, place);
  });
  host.finish();
  if (facts.is_of_device()) {
    devices.finish();
  } else {
    times.step_ms = times.host_ms;
    times.pieces = facts.count(EventKind::kOp);
  }
  return times;
}

}  // namespace tracestep
