#include "lab/measure/rounds.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace tracestep {

namespace {

// Runs the rounds of a grid: knows which cells are left, and how long the last visit of each took.
class Rounds {
 public:
  Rounds(std::span<const double> weights, const RoundLimits& limits,
         const std::function<bool(std::size_t, int)>& visit, const StopSignal* stop)
      : limits_(limits), visit_(visit), stop_(stop), seconds_(weights.begin(), weights.end()) {
    for (std::size_t i = 0; i < weights.size(); ++i) cells_.push_back(i);
    kept_.assign(weights.size(), false);
  }

  std::vector<bool> run() {
    if (cells_.empty()) return kept_;
    if (limits_.seconds <= 0) {
      for (int round = 0; round < limits_.most; ++round) {
        if (!visit_all(cells_, round)) break;
      }
      return kept_;
    }
    // The weights of other cells are scaled by the first visit that measures.
    const auto is_new = [&](std::size_t cell) {
      return !limits_.is_known || !limits_.is_known(cell);
    };
    const auto found = std::ranges::find_if(cells_, is_new);
    const std::size_t first = found == cells_.end() ? 0 : *found;
    const double weight = seconds_[first];
    if (!visit_all({first}, 0)) return kept_;
    const double per_weight = seconds_[first] / std::max(weight, 1e-300);
    for (const std::size_t cell : cells_) {
      if (cell != first) seconds_[cell] *= is_new(cell) ? per_weight : 0;
    }
    keep(limits_.seconds);
    std::vector<std::size_t> others = cells_;
    std::erase(others, first);
    if (!visit_all(others, 0)) return kept_;
    // Some overtime costs less than a table without its cells.
    constexpr double kOvertime = 1.15;
    keep(kOvertime * limits_.seconds);
    for (int round = 1; round < limits_.most && !cells_.empty(); ++round) {
      if (round == (is_short_ ? 1 : limits_.least) && !visit_dropped()) break;
      const bool has_time = passed() + passed() / round <= limits_.seconds;
      if (!has_time) std::erase_if(cells_, [&](std::size_t cell) { return round >= least(cell); });
      if (!visit_all(cells_, round)) break;
    }
    return kept_;
  }

 private:
  int least(std::size_t cell) const {
    const bool is_late = passed() > limits_.seconds;  // their time was guessed by fewer visits
    const bool is_lead = cell < limits_.leads && leads_have_time_ && !is_late;
    if (is_short_) return is_lead ? limits_.least : 1;
    return is_lead ? std::max(limits_.least, limits_.least_of_leads) : limits_.least;
  }
  double passed() const { return static_cast<double>(limits_.clock() - start_ns_) * 1e-9; }

  // Keeps the cells whose least number of rounds fits into `seconds`; drops others, from the last
  // one on. If most cells would be dropped, it keeps those of which one visit fits, since their
  // rows say that samples are few. The first cell always stays.
  void keep(double seconds) {
    const std::vector<std::size_t> all = std::exchange(cells_, {});
    double of_leads = 0;
    for (std::size_t cell = 0; cell < limits_.leads; ++cell) of_leads += seconds_[cell];
    leads_have_time_ = of_leads * limits_.least_of_leads <= seconds / 2;
    is_short_ = false;
    cells_ = fitting(all, seconds);
    if (2 * cells_.size() < all.size()) {
      is_short_ = true;
      leads_have_time_ = of_leads * limits_.least <= seconds / 2;
      cells_ = fitting(all, seconds);
    }
    for (const std::size_t cell : all) {
      const bool is_left = !std::ranges::binary_search(cells_, cell);
      if (is_left && !kept_[cell]) dropped_.push_back(cell);
    }
    if (cells_.empty()) cells_ = {all.front()};
  }

  // Returns the cells whose least numbers of rounds fit into `seconds` together, taken in order.
  std::vector<std::size_t> fitting(std::span<const std::size_t> all, double seconds) const {
    std::vector<std::size_t> out;
    double sum = 0;
    for (const std::size_t cell : all) {
      const double wanted = seconds_[cell] * least(cell);
      if (sum + wanted > seconds) continue;
      sum += wanted;
      out.push_back(cell);
    }
    return out;
  }

  // Visits each dropped cell once if that fits into the time left: a row of few samples says so,
  // and a missing row says nothing. Returns false if visit_all() says that visiting must end.
  bool visit_dropped() {
    for (const std::size_t cell : dropped_) {
      if (passed() + seconds_[cell] > limits_.seconds) continue;
      if (!visit_all({cell}, 0)) return false;
    }
    return true;
  }

  // Visits each cell once, in random order; with a time limit, the first round has the order of the
  // list, which begins with what matters most. Returns false if a signal to stop came, or if more
  // than 1.5 times the time limit has passed.
  bool visit_all(std::vector<std::size_t> order, int round) {
    constexpr double kFarOver = 1.5;
    const bool is_limited = limits_.seconds > 0;
    for (std::size_t left = order.size(); left > 1 && (round > 0 || !is_limited); --left) {
      std::swap(order[left - 1], order[lot_.below(drawn_++, left)]);
    }
    for (const std::size_t cell : order) {
      if (stop_ != nullptr && stop_->requested()) return false;
      if (is_limited && passed() > kFarOver * limits_.seconds) return false;
      const double begin = passed();
      kept_[cell] = true;
      if (!visit_(cell, round)) std::erase(cells_, cell);
      seconds_[cell] = passed() - begin;
    }
    return true;
  }

  const RoundLimits& limits_;
  const std::function<bool(std::size_t, int)>& visit_;
  const StopSignal* const stop_;
  const std::int64_t start_ns_ = limits_.clock();
  const CounterRng lot_{limits_.seed, "rounds"};
  std::uint64_t drawn_ = 0;
  std::vector<std::size_t> cells_ = {};
  std::vector<std::size_t> dropped_ = {};  // cells without a visit
  std::vector<double> seconds_;            // of a visit: weights until the first cell was visited
  std::vector<bool> kept_ = {};            // those that were visited
  bool leads_have_time_ = false, is_short_ = false;  // short: not half of the cells fit into rounds
};

}  // namespace

std::vector<bool> run_rounds(std::span<const double> weights, const RoundLimits& limits,
                             const std::function<bool(std::size_t cell, int round)>& visit,
                             const StopSignal* stop) {
  return Rounds(weights, limits, visit, stop).run();
}

void join_visits(HostAround& host, const HostAround& later) {
  const auto leave_out_between = [&](auto member) {
    auto& start = host.before.*member;
    const auto &end = host.after.*member, &next = later.before.*member;
    if (start && end && next) *start += *next - *end;
  };
  leave_out_between(&HostFacts::busy_s);
  leave_out_between(&HostFacts::stolen_s);
  leave_out_between(&HostFacts::own_s);
  host.before.at_s += later.before.at_s - host.after.at_s;
  host.after = later.after;
}

void join_visits(DeviceFacts& before, DeviceFacts& after, const DeviceFacts& later_before,
                 const DeviceFacts& later_after) {
  const auto leave_out_between = [&](auto member) {
    auto& start = before.*member;
    const auto &end = after.*member, &next = later_before.*member;
    if (start && end && next) *start += *next - *end;
  };
  leave_out_between(&DeviceFacts::energy_j);
  leave_out_between(&DeviceFacts::power_limited_ns);
  leave_out_between(&DeviceFacts::heat_limited_ns);
  after = later_after;
}

}  // namespace tracestep
