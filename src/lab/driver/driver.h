// The driver of experiments: visits cells in rounds (lab/measure/rounds.h) and joins the results of
// each cell's visits. The result of one visit is a row, identified by stage, cell and round. This
// class measures every row in this process and stores none; the command line's subclass finds rows
// in a file, or has new processes measure them (cli/cells.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/signals.h"
#include "lab/driver/stored_results.h"
#include "lab/measure/rounds.h"
#include "spec/fields.h"

namespace tracestep {

inline std::string label_of(const MemoryRunSpec& spec) {
  return label_of(spec.step);
}
inline double visit_weight(const MemoryRunSpec&) {
  return 1;
}

// Returns all fields of a run that differ from their defaults, also those that no result shows.
Json full_key(const RunSpec& run);
inline Json full_key(const CellSpec& spec) {
  Json out = full_key(spec.step);
  if (spec.copy > 1) out["copy"] = spec.copy;
  out["warmup"] = spec.protocol.warmup;
  return out;
}
Json full_key(const AttentionSpec& spec);
Json full_key(const CollectiveSpec& spec);
Json full_key(const OpSpec& spec);
inline Json full_key(const MemoryRunSpec& spec) {
  return full_key(spec.step);
}

class Driver {
 public:
  virtual ~Driver() = default;

  // Measures the cells and returns a result for each, in order, joined from its visits; nullopt:
  // there was no time for it, a signal came first, or another process measures it. `stage`: the
  // name of these cells' rows. `measure_one(spec, observer)`: measures a visit; if it is
  // interrupted, measuring ends. `is_apart`: a new process measures each visit.
  template <class Result, class Spec, class MeasureOne>
  std::vector<std::optional<Result>> visit_cells(const std::string& stage,
                                                 const std::vector<Spec>& specs,
                                                 const RoundLimits& limits,
                                                 const MeasureOne& measure_one,
                                                 bool is_apart = false);
  // Returns a value that is measured once and stored as a row of `stage` with the key `cell`: the
  // stored value, or else that of make().
  template <class Value, class Make>
  Value besides(const std::string& stage, const Json& cell, const Make& make);

  // Returns the signal that ends measuring; nullptr: there is none.
  virtual const StopSignal* stop_signal() const { return nullptr; }
  bool is_stopped() const { return stop_signal() != nullptr && stop_signal()->requested(); }
  // Returns the only cells that this process measures, on behalf of another process: "step:3/1";
  // empty: all cells.
  virtual std::string asked() const { return {}; }
  // True if this process measures for another one, which then writes the tables and files.
  bool is_child() const { return !asked().empty(); }
  // Computes the members of a result that stored rows do not keep, if they are missing.
  virtual void complete(CellResult&) const {}
  // Called before each visit that measures, with the cell's label and the round, from 1.
  std::function<void(const std::string& label, int round)> on_visit = {};

 protected:
  // Returns the stored row with this key; nullptr: it was not measured yet.
  virtual const Json* row(const Json&) const { return nullptr; }
  virtual bool keeps_rows() const { return false; }
  virtual void keep(const Json& /*key*/, Json /*row*/) {}
  virtual Json key_of_row(const std::string& stage, Json key, std::optional<int> round = {}) const;
  // Returns the indices of the cells of this stage that this process measures.
  virtual std::vector<std::size_t> chosen(const std::string& stage, std::size_t count) const;
  // Returns the order of visits for cells that are visited once.
  virtual std::vector<std::size_t> order_of(std::size_t count) const;
  virtual bool must_stop() const { return is_stopped(); }
  // True if visits can be measured in new processes. measure_in_process() has a new process measure
  // the cell and store its row; it returns false if a signal came.
  virtual bool has_child_processes() const { return false; }
  virtual bool measure_in_process(const std::string&, std::size_t, const Json&) { return false; }
  // Announces visits: the rows of all rounds, and the weights of those that are not known yet. If
  // time is limited, the number of rounds is not known in advance.
  virtual void begin_visits(std::span<const Json>, std::span<const double>) {}
  virtual void begin_visit(double, const std::string&, int, int) {}
  virtual void end_visit() {}
  virtual void end_visits() {}
  virtual StepObserver observer() { return {}; }

  template <class Result, class Spec>
  std::optional<Result> found(const Json& key, const Spec& spec) const;
};

template <class Result, class Spec>
std::optional<Result> Driver::found(const Json& key, const Spec& spec) const {
  const Json* json = row(key);
  if (json == nullptr) return std::nullopt;
  try {
    Result out = stored::value_of<Result>(*json);
    out.spec = spec;
    if constexpr (std::same_as<Result, CellResult>) {
      // Joining visits reads the collectives of a result.
      if (spec.step.parallel.is_on()) complete(out);
    }
    return out;
  } catch (const Error&) {  // The row was stored by a build whose results have other members.
    return std::nullopt;
  }
}

template <class Result, class Spec, class MeasureOne>
std::vector<std::optional<Result>> Driver::visit_cells(const std::string& stage,
                                                       const std::vector<Spec>& specs,
                                                       const RoundLimits& limits,
                                                       const MeasureOne& measure_one,
                                                       bool is_apart) {
  // The indices of the chosen specs in the whole list.
  const std::vector<std::size_t> numbers = chosen(stage, specs.size());
  const int rounds = limits.most;
  const auto key = [&](std::size_t i, int round) {
    return key_of_row(stage, full_key(specs[numbers[i]]),
                      rounds > 1 ? std::optional<int>(round) : std::nullopt);
  };
  std::vector<double> weights, missing;
  std::vector<Json> keys;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    weights.push_back(visit_weight(specs[numbers[i]]));
    for (int round = 0; round < rounds; ++round) {
      keys.push_back(key(i, round));
      if (row(keys.back()) == nullptr) missing.push_back(weights.back());
    }
  }
  if (limits.seconds <= 0) begin_visits(keys, missing);
  std::vector<std::optional<Result>> out(specs.size());
  // Measures a visit and joins its result; returns false if the cell is not to be visited again.
  const auto visit_one = [&](std::size_t i, int round) {
    const Json here = key(i, round);
    const Spec& spec = specs[numbers[i]];
    std::optional<Result> seen = found<Result>(here, spec);
    if (!seen) {
      if (must_stop()) return false;
      begin_visit(weights[i], label_of(spec), round, rounds);
      if (on_visit) on_visit(label_of(spec), round + 1);
      if (is_apart && has_child_processes()) {
        if (!measure_in_process(stage, numbers[i], here)) return false;
        seen = found<Result>(here, spec);
      } else {
        Spec visited = spec;
        if constexpr (requires { visited.protocol.recorded_steps; }) {
          int& recorded = visited.protocol.recorded_steps;
          if (rounds > 1) recorded = round < recorded ? 1 : 0;
        }
        seen = measure_one(visited, observer());
        if (seen->status == Status::kInterrupted) return false;
        if (keeps_rows()) keep(here, stored::json_of(*seen));
        seen->spec = spec;
      }
      end_visit();
    }
    const bool is_ok = seen->status == Status::kOk;
    std::optional<Result>& joined = out[numbers[i]];
    if (!joined) {
      joined = std::move(seen);
    } else if constexpr (requires(Result & result) { add_visit(result, result); }) {
      if (is_ok) add_visit(*joined, *seen);
    }
    return is_ok;
  };
  if (rounds > 1 || limits.seconds > 0) {
    RoundLimits here = limits;
    here.is_known = [&](std::size_t i) { return row(key(i, 0)) != nullptr; };
    const std::vector<bool> kept = run_rounds(weights, here, visit_one, stop_signal());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) out[numbers[i]].reset();
    }
  } else {
    for (const std::size_t i : order_of(numbers.size())) visit_one(i, 0);
  }
  end_visits();
  return out;
}

template <class Value, class Make>
Value Driver::besides(const std::string& stage, const Json& cell, const Make& make) {
  const Json key = key_of_row(stage, cell);
  if (const Json* known = row(key)) return stored::value_of<Value>(*known);
  Value out = make();
  if (keeps_rows() && !is_stopped()) keep(key, stored::json_of(out));
  return out;
}

}  // namespace tracestep
