#include "backends/random_checks.h"

#include <algorithm>
#include <set>

#include "analysis/plan.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/form_passes.h"
#include "passes/recompute.h"
#include "planning/needs.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

constexpr double kFloat64Share = 1e-9;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

std::unique_ptr<Device> make_cpu(const RandomChecks::Wish& wish) {
  return make_cpu_device({.threads = wish.threads, .guarded = wish.guarded});
}

void check_text(const std::string& pass, const Program& program) {
  const std::string text = print(program, {.origins = true, .locations = true});
  if (!(parse_program(text) == program)) fail("text and back differ after " + pass);
}

// Saved tensors are numbered in order: where a program keeps others, a number means another tensor.
bool is_saved(const std::string& name) {
  return name.starts_with("saved.");
}
bool save_alike(const Tensors& a, const Tensors& b) {
  return std::ranges::all_of(a, [&](const auto& one) {
    const auto other = b.find(one.first);
    return !is_saved(one.first) ||
           (other != b.end() && other->second.bytes.size() == one.second.bytes.size());
  });
}

void expect_same_bits(const std::string& what, const Tensors& found, const Tensors& expected) {
  const bool are_alike = save_alike(found, expected) && save_alike(expected, found);
  for (const auto& [name, tensor] : expected) {
    if (!are_alike && is_saved(name)) continue;
    const auto other = found.find(name);
    if (other == found.end()) continue;  // a result that only one of the programs has
    if (other->second.bytes != tensor.bytes) {
      fail(fmt::format("{}: {} has other bits, off by {}", what, name,
                       max_difference(to_doubles(other->second), to_doubles(tensor))));
    }
  }
}

// Compares values in float64, after passes that may add them up in another order.
void check_values(const std::string& pass, const Tensors& after, const Tensors& before) {
  for (const auto& [name, tensor] : after) {
    const auto found = before.find(name);
    if (found == before.end()) continue;
    const std::vector<double> a = to_doubles(tensor), b = to_doubles(found->second);
    if (max_difference(a, b) <= kFloat64Share * std::max(max_abs(b), 1.0)) continue;
    fail(fmt::format("{} changes {} by {} of {}", pass, name, max_difference(a, b), max_abs(b)));
  }
}

// No two buffers that are needed at the same time share a byte of the arena.
void check_arena(const Program& program, const DeviceTraits& traits) {
  const Plan plan = plan_step(program, traits);
  for (std::size_t i = 0; i < plan.places.size(); ++i) {
    const Plan::Place& a = plan.places[i];
    if (a.offset < 0 || a.offset + a.bytes > plan.arena_bytes) fail("a place outside the arena");
    for (std::size_t j = 0; j < i; ++j) {
      const Plan::Place& b = plan.places[j];
      const bool shared = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (shared && plan.overlap_in_time(a, b)) fail("two living buffers overlap in the arena");
    }
  }
  if (plan.least_arena_bytes > plan.arena_bytes) fail("an arena below its lower bound");
}

std::function<bool(const OpDef&)> kernels_of(DeviceKind kind) {
  return [kind](const OpDef& op) { return runs_whole(kind, op); };
}

// The program of a compiled run on a device that has kernels for fused nodes, as a GPU with NVRTC.
Program compiled(const RandomCase& random, std::set<std::string> disabled, DeviceKind kind) {
  RunSpec run = random.run;
  run.executor = ExecutorKind::kCompiled;
  return run_pipeline(random.program, run,
                      {.has_kernel = kernels_of(kind), .disabled = std::move(disabled)})
      .program;
}

}  // namespace

RandomChecks::RandomChecks(DeviceMaker make)
    : device_((make ? make : make_cpu)({})),
      three_threads_((make ? make : make_cpu)({.threads = 3})),
      guarded_((make ? make : make_cpu)({.guarded = true})),
      reference_(make_reference_device()) {}

std::string RandomChecks::fault_in(const RandomCase& random) {
  try {
    check(random);
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

void RandomChecks::check(const RandomCase& random) {
  ops_.clear();
  const PassContext context{
      .has_kernel = [this](const OpDef& op) { return device_->has_kernel(op); }};
  const std::vector<Stage> stages = stages_of(random, context);
  check_passes(random, stages);
  check_executors(random, stages.back().program);
  check_recomputation(random, context);
  check_compiled_passes(random, stages.back().program);
  check_fusion(random);
  check_nodes(random, stages.back().program);
  count(stages);
}

std::vector<RandomChecks::Stage> RandomChecks::stages_of(const RandomCase& random,
                                                         const PassContext& context) const {
  verify(random.program);
  std::vector<Stage> out{{"start", random.program}};
  const PipelineResult whole = run_pipeline(random.program, random.run, context);
  RunSpec run = random.run;
  run.verify = false;
  PassContext until = context;
  for (const PassReport& report : whole.reports) {
    if (!report.changed) continue;
    until.stop_after = report.name;
    out.push_back({report.name, run_pipeline(random.program, run, until).program});
  }
  return out;
}

// The program's results in float64, where a rounding of the program itself does not matter.
Tensors RandomChecks::in_float64(const RandomCase& random, const Program& program) {
  return run_once(ExecutorKind::kEager, *reference_, executable(as_float64(program), *reference_),
                  leaf_values(random, program));
}

void RandomChecks::check_passes(const RandomCase& random, const std::vector<Stage>& stages) {
  Tensors before;
  for (const Stage& stage : stages) {
    check_text(stage.pass, stage.program);
    Tensors after = in_float64(random, stage.program);
    // Inference is meant to run without dropout.
    const bool drops = std::ranges::any_of(
        random.program.nodes, [](const Node& node) { return node.op->name == "dropout"; });
    if (stage.pass == "choose" && random.run.mode == Mode::kInference && drops) before.clear();
    check_values(stage.pass, after, before);
    before = std::move(after);
  }
}

void RandomChecks::check_executors(const RandomCase& random, const Program& program) {
  const Tensors leaves = leaf_values(random, program);
  const Tensors eager = run_once(ExecutorKind::kEager, *device_, program, leaves);
  expect_same_bits("compiled", run_once(ExecutorKind::kCompiled, *device_, program, leaves), eager);
  expect_same_bits("three threads",
                   run_once(ExecutorKind::kCompiled, *three_threads_, program, leaves), eager);
  expect_same_bits("guarded plan", run_once(ExecutorKind::kCompiled, *guarded_, program, leaves),
                   eager);
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    check_arena(program, {.kind = kind});
  }
}

// Every second forward node runs again: the same bits, and the predicted peak (run_once).
void RandomChecks::check_recomputation(const RandomCase& random, const PassContext& context) {
  const Mode mode = random.run.mode;
  if (mode != Mode::kForwardBackward && mode != Mode::kStep) return;
  PassContext until = context;
  until.stop_after = "update_early";  // the pass before
  const Program kept = run_pipeline(random.program, random.run, until).program;
  Dice dice(kept.nodes.size());
  std::vector<bool> again(kept.nodes.size());
  for (std::size_t i = 0; i < again.size(); ++i) again[i] = dice.chance(0.5);
  const Program twice = recompute_nodes(kept, again);
  verify(twice);
  check_text("recompute", twice);
  if (!(twice == kept)) ++shares_.with_recomputation;
  const Tensors leaves = leaf_values(random, kept);
  const auto results_of = [&](ExecutorKind kind, const Program& program) {
    return run_once(kind, *device_, executable(program, *device_), leaves);
  };
  const Tensors expected = results_of(ExecutorKind::kEager, kept);
  expect_same_bits("recompute", results_of(ExecutorKind::kEager, twice), expected);
  expect_same_bits("recompute, compiled", results_of(ExecutorKind::kCompiled, twice), expected);
}

void RandomChecks::check_compiled_passes(const RandomCase& random, const Program& plain) {
  const auto without = [&](const std::set<std::string>& disabled) {
    Program out = compiled(random, disabled, device_->traits().kind);
    note_ops(out);
    return out;
  };
  // `narrow` rounds no gradient of a bias that belongs to a narrow product.
  const bool has_narrow_bias = std::ranges::any_of(plain.nodes, [&](const Node& node) {
    return node.op->name == "matmul_bias" && is_low_precision(plain.type(node.outputs[0]).dtype);
  });
  std::set<std::string> of_bits = {"fuse"};
  if (has_narrow_bias) of_bits.insert("narrow");
  const Program adding = without(of_bits);
  of_bits.insert("epilogue");
  const Program program = without(of_bits);
  check_text("join", program);
  check_text("epilogue", adding);
  const Tensors eager = run_once(ExecutorKind::kEager, *device_, plain, leaf_values(random, plain));
  expect_same_bits(
      "shadow, join and overwrite",
      run_once(ExecutorKind::kCompiled, *device_, program, leaf_values(random, program)), eager);
  const Tensors sums =
      run_once(ExecutorKind::kCompiled, *device_, adding, leaf_values(random, adding));
  const auto is_narrow = [](const Value& v) { return is_low_precision(v.type.dtype); };
  if (std::ranges::none_of(adding.values, is_narrow)) expect_same_bits("epilogue", sums, eager);
  // The reference has no narrow copies of weights.
  check_values("epilogue", in_float64(random, without({"fuse", "shadow"})),
               in_float64(random, without({"fuse", "shadow", "epilogue"})));
}

// The nodes that fusion makes for a GPU, put back in place.
void RandomChecks::check_fusion(const RandomCase& random) {
  const auto values_of = [&](const std::set<std::string>& disabled) {
    const Program program = compiled(random, disabled, DeviceKind::kCuda);
    check_text("fuse", program);
    note_ops(program);
    return run_once(ExecutorKind::kCompiled, *device_, executable(program, *device_),
                    leaf_values(random, program));
  };
  // Sums that are not fused become parts of products, which are then not rounded.
  expect_same_bits("fusion", values_of({"epilogue"}), values_of({"fuse", "epilogue"}));
}

void RandomChecks::check_nodes(const RandomCase& random, const Program& program) {
  std::vector<ObservedNode> observed =
      observed_nodes(*device_, program, leaf_values(random, program));
  const auto not_finite = [](const ObservedNode& node) {
    return std::ranges::any_of(node.operands, [](const HostTensor& x) {
      const std::vector<double> values = to_doubles(x);
      return std::ranges::any_of(values, [](double v) { return !std::isfinite(v); });
    });
  };
  shares_.nodes_not_finite += std::erase_if(observed, not_finite);
  shares_.compared_nodes += std::ssize(observed);
  const std::string fault = first_inexact_result(program, observed, *device_, *reference_);
  if (!fault.empty()) fail(fault);
}

void RandomChecks::count(const std::vector<Stage>& stages) {
  const Program& last = stages.back().program;
  const BufferPlan buffers = plan_buffers(last);
  std::int64_t views = 0;
  bool donates = false, fans_out = false;
  std::vector<int> readers(last.values.size(), 0);
  for (const Node& node : last.nodes) {
    for (ValueId id : node.inputs) fans_out |= ++readers[static_cast<std::size_t>(id)] > 1;
    if (makes_views(last, node)) {
      ++views;
      continue;
    }
    for (ValueId id : node.outputs) {
      const Buffer* buffer = buffers.buffer(id);
      donates |= buffer != nullptr && buffer->owner != id;
    }
  }
  ++shares_.programs;
  shares_.nodes += std::ssize(last.nodes);
  shares_.views += views;
  shares_.with_views += views > 0 ? 1 : 0;
  shares_.with_donation += donates ? 1 : 0;
  shares_.with_updates += last.updates.empty() ? 0 : 1;
  shares_.with_fan_out += fans_out ? 1 : 0;
  for (const Stage& stage : stages) note_ops(stage.program);
  for (const std::string& op : ops_) ++shares_.with_op[op];
}

void RandomChecks::note_ops(const Program& program) {
  for (const Node& node : program.nodes) ops_.insert(node.op->name);
}

RandomShares& RandomShares::operator+=(const RandomShares& other) {
  programs += other.programs;
  nodes += other.nodes;
  with_views += other.with_views;
  with_donation += other.with_donation;
  with_updates += other.with_updates;
  with_fan_out += other.with_fan_out;
  with_recomputation += other.with_recomputation;
  views += other.views;
  compared_nodes += other.compared_nodes;
  nodes_not_finite += other.nodes_not_finite;
  for (const auto& [op, count] : other.with_op) with_op[op] += count;
  return *this;
}

std::string RandomShares::text() const {
  const auto share = [&](std::int64_t n) {
    return 100.0 * static_cast<double>(n) /
           static_cast<double>(std::max<std::int64_t>(programs, 1));
  };
  std::string out = fmt::format(
      "{} programs of {:.1f} nodes on average, {:.0f} % of them views; with views {:.1f} %, "
      "donation {:.1f} %, updates {:.1f} %, fan-out {:.1f} %, recomputation {:.1f} %; {} nodes "
      "beside "
      "the reference, {} left out since an operand was not finite\n",
      programs, 0.01 * share(nodes),
      100.0 * static_cast<double>(views) / static_cast<double>(nodes), share(with_views),
      share(with_donation), share(with_updates), share(with_fan_out), share(with_recomputation),
      compared_nodes, nodes_not_finite);
  for (const auto& [op, count] : with_op) out += fmt::format("{} {:.1f} %  ", op, share(count));
  return out;
}

}  // namespace tracestep::testing
