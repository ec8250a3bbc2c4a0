// The battery of memory budgets: --count CELLS [--seed S] takes the cells from (S - 1) * CELLS on.
// Each is a training step of the grid below, by prediction, with ten memory budgets from the least
// to the most that a fixed choice needs, and the peaks of `blocks` and of no choice. Fixed choices
// are blocks, every=N, nested, the parts of all blocks, and the first and the last k blocks and
// every k-th one, for powers of two k.
//
// A budget must be met, at no more modelled time than every fixed choice that meets it and no less
// than the bound, and nothing may run again that could be kept: where a part of a block (its
// attention) can be left out of the choice with the peak still within the budget, that saves at
// most 2 % (of three parts, drawn anew for each budget). One below the least peak must be refused
// with that peak. Prints what does not hold and a table of what choices under a budget take of the
// time of the cheapest fixed one. The last line is a summary in JSON. Status 1 when there was a
// fault.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "analysis/roofline.h"
#include "base/error.h"
#include "exec/executor.h"
#include "ops/functions.h"
#include "passes/recompute.h"
#include "passes/recompute_budget.h"
#include "planning/needs.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr int kBudgets = 10;
constexpr double kMostAboveBest = 1.02;
constexpr std::size_t kPartsTried = 3;  // of each choice: planning a large step takes a while
constexpr const char* kFixed[] = {"none",    "blocks", "every=2",      "every=3",
                                  "every=4", "nested", "layers.*.ffn", "layers.*.attn"};

// The first and the last k blocks and every k-th one, for powers of two, as unions of paths.
std::vector<std::string> sets_of_blocks(std::int64_t layers) {
  std::set<std::string> out;
  const auto add = [&](std::int64_t first, std::int64_t end, std::int64_t step) {
    std::string names;
    for (std::int64_t i = first; i < end; i += step) {
      names += fmt::format("{}layers.{}", names.empty() ? "" : "+", i);
    }
    out.insert(names);
  };
  for (std::int64_t k = 1; k < layers; k *= 2) {
    add(0, k, 1);
    add(layers - k, layers, 1);
    if (k > 1) add(0, layers, k);
  }
  return {out.begin(), out.end()};
}

// "layers.3.attn" for "layers.3.attn.q_proj"; empty outside of blocks.
std::string part_of_block(const std::string& path) {
  if (!path.starts_with("layers.")) return {};
  const std::size_t part = path.find('.', path.find('.') + 1);
  return part == std::string::npos ? path : path.substr(0, path.find('.', part + 1));
}

// In rounds of 24, all sizes and contexts in each, every time with another precision, granularity,
// form of attention and executor; sixteen rounds have all combinations. Half are for a GPU.
std::vector<RunSpec> all_cells() {
  std::vector<RunSpec> out;
  for (unsigned round = 0; round < 16; ++round) {
    unsigned number = 0;
    for (const char* size : {"tiny", "small", "medium", "large", "xl", "2.7B"}) {
      for (std::int64_t context : {128, 256, 512, 1024}) {
        const unsigned bits = (5 * number + round) % 16;
        RunSpec run{.model = preset(size), .shape = {.batch = 4, .context = context}};
        if ((bits & 1) != 0) run.precision.autocast = DType::kBF16;
        if ((bits & 2) != 0) run.ops = Granularity::kPrimitive;
        if ((bits & 4) != 0) run.attention = AttentionForm::kFlash;
        if ((bits & 8) != 0) run.executor = ExecutorKind::kCompiled;
        if ((static_cast<unsigned>(std::popcount(bits)) + number) % 2 == 1) {
          run.place.device = "cuda";
        }
        out.push_back(run);
        ++number;
      }
    }
  }
  return out;
}

struct Outcome {
  std::int64_t peak_bytes = 0;
  double us = 0;
};

class Cell {
 public:
  explicit Cell(const RunSpec& run) : run_(run), traits_(traits_named(run.place.device, 2)) {
    context_.has_kernel = [kind = traits_.kind](const OpDef& op) { return runs_whole(kind, op); };
    context_.traits = traits_;
    context_.stop_after = "offload";
    program_ = run_pipeline(forward_program(run_), run_, context_).program;
    context_.stop_after = "";
    for (const auto& [name, doc] : pipeline_passes()) {
      context_.disabled.insert(name);
      if (name == "offload") break;
    }
  }

  const Program& program() const { return program_; }
  DeviceKind kind() const { return traits_.kind; }

  // The peak of what the passes after `recompute` make of it.
  std::int64_t peak_of(const Program& candidate) const {
    return predicted_peak_bytes(run_.executor, run_pipeline(candidate, run_, context_).program,
                                traits_);
  }
  Outcome outcome_of(const Program& candidate) const {
    return {peak_of(candidate), modelled_us(candidate, Phase::kRecompute, traits_.kind)};
  }

 private:
  const RunSpec run_;
  DeviceTraits traits_;
  PassContext context_;
  Program program_;
};

class Battery {
 public:
  void check(const RunSpec& run) {
    label_ = fmt::format("{} {}", run.place.device, label_of(run));
    const Cell cell(run);
    BudgetSolver solver(cell.program(), cell.kind(),
                        [&](const Program& p) { return cell.peak_of(p); });
    std::map<std::string, Outcome> fixed;
    std::vector<std::string> choices = sets_of_blocks(run.model.layers);
    choices.insert(choices.end(), std::begin(kFixed), std::end(kFixed));
    for (const std::string& choice : choices) {
      const Recomputation wanted = parse_recomputation("recompute", choice);
      fixed[choice] = cell.outcome_of(recompute(cell.program(), wanted));
    }
    std::set<std::int64_t> budgets;
    for (const char* choice : {"none", "blocks"}) budgets.insert(fixed[choice].peak_bytes);
    std::int64_t least = fixed["none"].peak_bytes;
    const std::int64_t most = least;
    for (const auto& [choice, outcome] : fixed) least = std::min(least, outcome.peak_bytes);
    for (int i = 0; i < kBudgets; ++i) budgets.insert(least + (most - least) * i / kBudgets);
    for (std::int64_t budget : budgets) check_budget(cell, solver, fixed, budget, run.model.name);
    check_refusal(solver);
  }

  void print_table() const {
    fmt::print("| size | budgets | median (%) | least (%) | most (%) |\n|---|---|---|---|---|\n");
    for (auto [size, shares] : shares_) {
      std::ranges::sort(shares);
      fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} |\n", size, shares.size(),
                 100 * shares[shares.size() / 2], 100 * shares.front(), 100 * shares.back());
    }
  }

  std::int64_t budgets() const { return budgets_; }
  std::int64_t improvable() const { return improvable_; }
  std::int64_t faults() const { return faults_; }

 private:
  void fault(const std::string& what) {
    ++faults_;
    fmt::print("{}: {}\n", label_, what);
    std::fflush(stdout);
  }

  void check_budget(const Cell& cell, BudgetSolver& solver,
                    const std::map<std::string, Outcome>& fixed, std::int64_t budget,
                    const std::string& size) {
    ++budgets_;
    const WithinBudget found = solver.within(budget);
    const Outcome truth = cell.outcome_of(found.program);
    if (truth.peak_bytes != found.peak_bytes || truth.peak_bytes > budget) {
      fault(fmt::format("{} B: says {} B, is {} B", budget, found.peak_bytes, truth.peak_bytes));
    }
    constexpr double kSame = 1 + 1e-9;
    if (found.least_us > truth.us * kSame) {
      fault(fmt::format("{} B: {} us, below the bound of {}", budget, truth.us, found.least_us));
    }
    const Outcome* cheapest = nullptr;
    for (const auto& [choice, outcome] : fixed) {
      if (outcome.peak_bytes > budget) continue;
      if (cheapest == nullptr || outcome.us < cheapest->us) cheapest = &outcome;
      if (found.least_us > outcome.us * kSame) {
        fault(fmt::format("{} B: {} takes {} us, below the bound", budget, choice, outcome.us));
      }
      if (truth.us > outcome.us * kSame) {
        fault(fmt::format("{} B: {} us, and {} takes {}", budget, truth.us, choice, outcome.us));
      }
    }
    check_needed(cell, found, budget);
    if (cheapest->us > 0) shares_[size].push_back(truth.us / cheapest->us);
  }

  // Checks that no part of a block runs again for nothing.
  void check_needed(const Cell& cell, const WithinBudget& found, std::int64_t budget) {
    std::map<std::string, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < found.again.size(); ++i) {
      const std::string part = part_of_block(cell.program().nodes[i].origin().path);
      if (found.again[i] && !part.empty()) parts[part].push_back(i);
    }
    std::vector<std::string> tried;
    for (const auto& [part, nodes] : parts) tried.push_back(part);
    std::ranges::shuffle(tried, random_);
    if (tried.size() > kPartsTried) tried.resize(kPartsTried);
    for (const std::string& part : tried) {
      const std::vector<std::size_t>& nodes = parts[part];
      std::vector<bool> again = found.again;
      for (std::size_t node : nodes) again[node] = false;
      const Outcome without = cell.outcome_of(recompute_nodes(cell.program(), again));
      if (without.peak_bytes > budget || without.us >= found.again_us) continue;
      ++improvable_;
      if (without.us * kMostAboveBest >= found.again_us) continue;
      fault(
          fmt::format("{} B: {} us, and {} without {}", budget, found.again_us, without.us, part));
    }
  }

  void check_refusal(BudgetSolver& solver) {
    const auto refusal = [&](std::int64_t budget) -> std::string {
      try {
        solver.within(budget);
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    const std::string text = refusal(1 << 20);
    const std::size_t least_at = text.rfind('(');
    if (least_at == std::string::npos) return fault("1 MiB: " + text);
    const std::int64_t least = std::atoll(text.c_str() + least_at + 1);
    if (!refusal(least).empty()) fault(fmt::format("the least peak, {} B, is not met", least));
    if (refusal(least - 1).empty()) fault(fmt::format("less than the least, {} B, is met", least));
  }

  std::string label_;
  std::mt19937 random_{0};
  std::int64_t budgets_ = 0, faults_ = 0, improvable_ = 0;
  std::map<std::string, std::vector<double>> shares_;  // by size
};

int run(std::size_t seed, std::size_t count) {
  ops::register_all();
  const std::vector<RunSpec> cells = all_cells();
  Battery battery;
  for (std::size_t i = 0; i < count; ++i)
    battery.check(cells[((seed - 1) * count + i) % cells.size()]);
  battery.print_table();
  fmt::print(
      R"({{"battery": "recompute_budgets", "runs": {}, "improvable": {}, "faults": {}, "ok": {}}})"
      "\n",
      battery.budgets(), battery.improvable(), battery.faults(), battery.faults() == 0);
  return battery.faults() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tracestep

int main(int argc, char** argv) {
  std::size_t seed = 1, count = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--count") == 0) count = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return tracestep::run(seed, count);
}
