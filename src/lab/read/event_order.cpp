#include "lab/read/event_order.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <queue>
#include <tuple>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kPartEvents = 1 << 13;

std::int64_t moment_of(const TraceEvent& event) {
  // Stamps are anything that a file says.
  std::int64_t out = 0;
  const bool is_late = event.is_of_device() &&
                       !__builtin_add_overflow(event.start_ns, EventOrder::kKernelLagNs, &out);
  return is_late ? out : event.start_ns;
}

bool comes_before(const TraceEvent& a, const TraceEvent& b) {
  const std::int64_t at_a = moment_of(a), at_b = moment_of(b);
  if (at_a != at_b) return at_a < at_b;
  // Where two begin and end together, the outer one stands first in the file.
  return std::tie(a.kind, b.end_ns, a.order) < std::tie(b.kind, a.end_ns, b.order);
}

[[noreturn]] void fail_temporary(const char* what) {
  throw Error(ErrorCode::kInput, "temporary file", std::string(what) + ": " + std::strerror(errno),
              "a large recording needs a seventh of its text in the folder for temporary files");
}

}  // namespace

void EventOrder::add(const TraceEvent& event) {
  if (held_.size() == room_) put_away();
  held_.push_back(event);
}

void EventOrder::sort_held() {
  std::ranges::sort(held_, comes_before);
}

void EventOrder::put_away() {
  if (!file_) file_.reset(std::tmpfile());
  if (!file_) fail_temporary("cannot be made");
  sort_held();
  if (std::fwrite(held_.data(), sizeof(TraceEvent), held_.size(), file_.get()) != held_.size()) {
    fail_temporary("cannot be written");
  }
  runs_.push_back(stored_);
  stored_ += held_.size();
  held_.clear();
}

std::vector<TraceEvent> EventOrder::part(std::size_t run, std::uint64_t at) const {
  const std::uint64_t end = run + 1 < runs_.size() ? runs_[run + 1] : stored_;
  std::vector<TraceEvent> out(std::min<std::uint64_t>(kPartEvents, end - at));
  if (out.empty()) return out;
  const bool is_read =
      fseeko(file_.get(), static_cast<off_t>(at * sizeof(TraceEvent)), SEEK_SET) == 0 &&
      std::fread(out.data(), sizeof(TraceEvent), out.size(), file_.get()) == out.size();
  if (!is_read) fail_temporary("cannot be read");
  return out;
}

void EventOrder::for_each(const std::function<void(const TraceEvent&)>& visit) {
  if (runs_.empty()) {
    sort_held();
    for (const TraceEvent& event : held_) visit(event);
    return;
  }
  if (!held_.empty()) put_away();
  held_.shrink_to_fit();
  struct Source {
    std::vector<TraceEvent> events;
    std::size_t at = 0;
    std::uint64_t next = 0;  // in the file
  };
  std::vector<Source> sources(runs_.size());
  const auto comes_later = [&](std::size_t a, std::size_t b) {
    return comes_before(sources[b].events[sources[b].at], sources[a].events[sources[a].at]);
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(comes_later)> first(
      comes_later);
  const auto refill = [&](std::size_t run) {
    Source& source = sources[run];
    source.events = part(run, source.next);
    source.next += source.events.size();
    source.at = 0;
  };
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    sources[run].next = runs_[run];
    refill(run);
    first.push(run);
  }
  while (!first.empty()) {
    const std::size_t run = first.top();
    first.pop();
    Source& source = sources[run];
    visit(source.events[source.at]);
    if (++source.at == source.events.size()) refill(run);
    if (!source.events.empty()) first.push(run);
  }
}

}  // namespace tracestep
