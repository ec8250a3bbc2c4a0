#include "passes/recompute_profile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "base/indexed.h"

namespace tracestep {
namespace {

using Again = std::vector<bool>;

}  // namespace

std::int64_t RecomputeProfile::Profile::peak_bytes() const {
  return live_bytes.empty() ? 0 : std::ranges::max(live_bytes);
}

RecomputeProfile::RecomputeProfile(const Program& program, const RecomputeChoices& choices)
    : program_(program),
      choices_(choices),
      reads_(program.nodes.size()),
      makes_(program.nodes.size()),
      bytes_(program.values.size(), 0),
      stays_(program.values.size(), false) {
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    for (ValueId id : program.nodes[i].inputs) {
      const ValueId base = program.value(id).layout.base;
      if (program.value(base).producer == kNoNode) continue;
      if (std::ranges::find(reads_[i], base) == reads_[i].end()) reads_[i].push_back(base);
    }
    for (ValueId id : program.nodes[i].outputs) {
      if (program.value(id).layout.base != id) continue;
      makes_[i].push_back(id);
      if (program.value(id).memory == Memory::kDevice) bytes_[at(id)] = program.type(id).bytes();
    }
  }
  for (const Output& output : program.outputs) {
    stays_[at(program.value(output.value).layout.base)] = true;
  }
  for (const Update& update : program.updates) {
    bytes_[at(program.value(update.value).layout.base)] = 0;
  }
}

// Goes through the step once, with the copies that backward asks for, and notes when each buffer is
// made and read last.
class RecomputeProfile::Walk {
 public:
  Walk(const RecomputeProfile& step, const Again& again)
      : step_(step),
        again_(again),
        originals_(step.bytes_.size()),
        copies_(step.bytes_.size()),
        end_of_(step.makes_.size()) {}

  Profile run() {
    for (std::size_t i = 0; i < step_.makes_.size(); ++i) visit(i);
    Profile out{.us = us_};
    out.live_bytes = live_bytes();
    return out;
  }

 private:
  struct Life {
    int from = -1, to = -1;  // steps of the walk; -1: not made
  };

  void visit(std::size_t node) {
    const bool is_backward = step_.program_.nodes[node].origin().phase == Phase::kBackward;
    for (ValueId id : step_.reads_[node]) {
      if (is_backward) make(id);
    }
    ++now_;
    for (ValueId id : step_.reads_[node]) life_of(id, is_backward).to = now_;
    for (ValueId id : step_.makes_[node]) originals_[at(id)] = {now_, now_};
    end_of_[node] = now_;
  }

  bool is_dropped(ValueId id) const { return again_[at(step_.program_.value(id).producer)]; }

  Life& life_of(ValueId id, bool in_backward) {
    return in_backward && is_dropped(id) ? copies_[at(id)] : originals_[at(id)];
  }

  // Makes the copy of a dropped value, and before it the copies of dropped values that it needs.
  void make(ValueId id) {
    if (!is_dropped(id) || copies_[at(id)].from >= 0) return;
    const NodeId maker = step_.program_.value(id).producer;
    for (ValueId input : step_.reads_[at(maker)]) make(input);
    ++now_;
    us_ += step_.choices_.us_of(maker);
    for (ValueId input : step_.reads_[at(maker)]) life_of(input, true).to = now_;
    for (ValueId output : step_.makes_[at(maker)]) copies_[at(output)] = {now_, now_};
  }

  std::vector<std::int64_t> live_bytes() const {
    std::vector<std::int64_t> change(static_cast<std::size_t>(now_) + 2, 0);
    const auto add = [&](const Life& life, std::int64_t bytes, bool stays) {
      if (life.from < 0 || bytes == 0) return;
      change[at(life.from)] += bytes;
      if (!stays) change[at(life.to) + 1] -= bytes;
    };
    for (std::size_t i = 0; i < originals_.size(); ++i) {
      add(originals_[i], step_.bytes_[i], step_.stays_[i]);
      add(copies_[i], step_.bytes_[i], false);
    }
    std::vector<std::int64_t> out(end_of_.size(), 0);
    std::int64_t live = 0;
    int step = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      while (step < end_of_[i]) {
        live += change[at(++step)];
        out[i] = std::max(out[i], live);
      }
    }
    return out;
  }

  const RecomputeProfile& step_;
  const Again& again_;
  std::vector<Life> originals_, copies_;  // by base value
  std::vector<int> end_of_;               // by node: its step of the walk
  int now_ = -1;
  double us_ = 0.0;
};

RecomputeProfile::Profile RecomputeProfile::of(const Again& again) const {
  return Walk(*this, again).run();
}

namespace {

constexpr double kTooMuch = std::numeric_limits<double>::infinity();

// Returns the largest share, over all nodes, of the bytes free in `now` that `then` takes up.
double share_of_room(const std::vector<std::int64_t>& now, const std::vector<std::int64_t>& then,
                     std::int64_t limit) {
  double out = 0.0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (then[i] <= now[i]) continue;
    if (then[i] > limit) return kTooMuch;
    out =
        std::max(out, static_cast<double>(then[i] - now[i]) / static_cast<double>(limit - now[i]));
  }
  return out;
}

}  // namespace

// Returns the nodes of `again` in groups: those at one place in their blocks; each other one alone.
std::vector<std::vector<NodeId>> RecomputeProfile::by_place(const Again& again) const {
  std::vector<std::vector<NodeId>> out;
  std::map<std::pair<int, int>, std::size_t> places;  // (0, place) or (1, node)
  std::vector<int> counts(static_cast<std::size_t>(choices_.block_count()), 0);
  for (NodeId node : choices_.nodes()) {
    const int block = choices_.block_of(node);
    const auto key =
        block < 0 ? std::pair(1, static_cast<int>(node)) : std::pair(0, counts[at(block)]++);
    if (!again[at(node)]) continue;
    const auto [place, is_new] = places.try_emplace(key, out.size());
    if (is_new) out.emplace_back();
    out[place->second].push_back(node);
  }
  return out;
}

// Removes nodes from `again` while the limit holds. Values that late blocks keep are alive for the
// shortest time: of nodes at the same place, the last is tried first, the others only when it fits.
Again RecomputeProfile::lightened(Again again, std::int64_t limit_bytes) const {
  constexpr double kLeastShare = 1e-6;  // what takes no room comes in the order of its time
  Profile now = of(again), then;
  // Microseconds per share of the room; 0: it does not fit, or saves nothing.
  const auto worth_of = [&](NodeId node) {
    again[at(node)] = false;
    then = of(again);
    again[at(node)] = true;
    const double share = share_of_room(now.live_bytes, then.live_bytes, limit_bytes);
    return (now.us - then.us) / std::max(share, kLeastShare);
  };
  std::vector<std::vector<NodeId>> left = by_place(again);
  std::priority_queue<std::pair<double, std::size_t>> queue;  // worth, place
  for (std::size_t place = 0; place < left.size(); ++place) queue.push({kTooMuch, place});
  // Worths mostly fall while nodes are taken out: one that is still the highest is up to date.
  while (!queue.empty()) {
    const std::size_t place = queue.top().second;
    queue.pop();
    const NodeId node = left[place].back();
    const double worth = worth_of(node);
    if (worth <= 0.0) continue;
    if (!queue.empty() && worth < queue.top().first) {
      queue.push({worth, place});
      continue;
    }
    again[at(node)] = false;
    now = std::move(then);
    left[place].pop_back();
    if (!left[place].empty()) queue.push({worth, place});
  }
  return again;
}

}  // namespace tracestep
