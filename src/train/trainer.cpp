#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/log.h"
#include "passes/form_passes.h"
#include "passes/optimizer.h"
#include "passes/parallel_passes.h"
#include "runtime/host_wait.h"
#include "runtime/processes.h"
#include "train/step_inputs.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

// The number of skipped steps in a row at which a warning is given; a scale that is far too high
// skips a few at the start of a run.
constexpr std::int64_t kManySkips = 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The optimizer's options; early updates neither report the gradients' norm nor skip by it.
OptimizerOptions guarded(const TrainOptions& options) {
  OptimizerOptions out = options.run.optimizer;
  out.report_norm = out.guard_finite =
      options.run.updates != UpdateTime::kEarly || !waits_for(options).empty();
  out.loss_scaling.enabled = scales_loss(options.run.precision);
  out.loss_scaling.floor = kLossScaleFloor;
  return out;
}

// Checks ids again, which were all checked before the first step: the file may have changed since.
void check_ids(const HostTensor& ids, std::int64_t vocab, bool masks) {
  for (const std::int64_t id : ids.as<std::int64_t>()) {
    if ((id >= 0 && id < vocab) || (masks && id == kNoTarget)) continue;
    throw Error(ErrorCode::kInput, "tokens"_field,
                fmt::format("token {} is beyond the vocabulary of {}, though none was before the "
                            "first step",
                            id, vocab),
                "leave input files alone until the run has ended");
  }
}

void set_text(Executor& executor, const RunSpec& run, const Batch& batch, std::int64_t number) {
  check_ids(batch.tokens, run.model.vocab, false);
  check_ids(batch.targets, run.model.vocab, run.packed || run.masks_targets);
  set_batch(executor, run, batch);
  set_batch_number(executor, run, number);
}

// Sets the inputs of run `number` of the program: the tokens of `batch`, or with `on_example` the
// example of a captured module. `run`: the run, with the micro-batches of the program.
void set_inputs(Executor& executor, const RunSpec& run, bool on_example, const Batch& batch,
                std::int64_t number) {
  if (!on_example) return set_text(executor, run, batch, number);
  for (const auto& [name, value] : captured_inputs(run, executor.program())) {
    executor.set_input(name, value);
  }
  set_batch_number(executor, run, number);
}

// Joins the rows of several micro-batches, so that the rows of each replica follow each other.
HostTensor joined_rows(std::span<const HostTensor* const> parts, int replicas) {
  Shape shape = parts[0]->shape;
  shape[0] *= std::ssize(parts);
  HostTensor out = HostTensor::zeros(parts[0]->dtype, shape);
  const std::size_t share = parts[0]->bytes.size() / static_cast<std::size_t>(replicas);
  auto to = out.bytes.begin();
  for (int replica = 0; replica < replicas; ++replica) {
    for (const HostTensor* part : parts) {
      const auto from = part->bytes.begin() + static_cast<std::ptrdiff_t>(share) * replica;
      to = std::copy(from, from + static_cast<std::ptrdiff_t>(share), to);
    }
  }
  return out;
}

Batch joined(const std::vector<Batch>& parts, int replicas) {
  if (parts.size() == 1) return parts[0];
  const auto rows = [&](HostTensor Batch::*member) {
    std::vector<const HostTensor*> out;
    out.reserve(parts.size());
    for (const Batch& part : parts) out.push_back(&(part.*member));
    return joined_rows(out, replicas);
  };
  Batch out{.tokens = rows(&Batch::tokens), .targets = rows(&Batch::targets)};
  if (parts[0].is_packed()) {
    out.starts = rows(&Batch::starts);
    out.ends = rows(&Batch::ends);
  }
  for (const Batch& part : parts) out.counted += part.counted;
  out.loss_count = parts[0].loss_count;  // that of the whole step
  return out;
}

void set_states(const RankStores& stores, const std::map<std::string, HostTensor>& states) {
  for (int rank = 0; rank < stores.ranks(); ++rank) {
    for (const auto& [name, value] : states) stores.at(rank).set(name, value);
  }
}

// Searches for numbers that are not finite. All processes take part, as a step has collectives.
class Search {
 public:
  explicit Search(const Communicator* group)
      : processes_(group == nullptr ? nullptr : group->processes()) {}

  // Calls `further`, which searches a further part, unless a rank has found something already.
  void look(const std::function<std::optional<NotFinite>()>& further) {
    if (is_over_) return;
    found_ = further();
    is_over_ = holds_in_any(processes_, found_.has_value());
  }

  std::optional<NotFinite> result() const {
    const bool is_elsewhere = is_over_ && !found_;
    if (is_elsewhere) processes_->exchange(0);  // the rank that found it ends all meanwhile
    return found_;
  }

 private:
  Processes* const processes_;
  std::optional<NotFinite> found_;
  bool is_over_ = false;
};

}  // namespace

std::string_view waits_for(const TrainOptions& o) {
  if (o.run.optimizer.clip > 0) return "clipping";
  if (scales_loss(o.run.precision)) return "loss scaling";
  return o.run.accumulate > 1 || o.shards > 0 ? "accumulation" : "";
}

Trainer::Trainer(const RankDevices& devices, const TrainOptions& options, TokenSourcePtr tokens,
                 TokenSourcePtr validation)
    : options_(options),
      stores_(devices),
      group_(devices.group()),
      batches_(tokens, batch_options()),
      validation_(std::move(validation)) {
  options_.schedule.check();
  options_.run.optimizer = guarded(options);
  build();
  if (validation_) build_evaluators();
}

Trainer::Trainer(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
                 TokenSourcePtr validation)
    : Trainer(RankDevices(device), options, std::move(tokens), std::move(validation)) {}

WholeTensors Trainer::tensors() const {
  RunSpec alone = options_.run;
  alone.parallel = {};
  alone.accumulate = 1;
  const Program forward = forward_program(alone);
  std::map<std::string, Shape> parameters;
  const auto add = [&](const Program& program) {
    for (const ValueId id : program.leaves) {
      const Value& leaf = program.value(id);
      if (leaf.leaf == LeafKind::kParameter) parameters[leaf.name] = leaf.type.shape;
    }
  };
  add(forward);
  if (alone.lora.is_on()) add(adapt(forward, alone.lora, {}));  // the adapters
  std::vector<Store*> stores;
  for (int rank = 0; rank < stores_.ranks(); ++rank) stores.push_back(&stores_.at(rank));
  return {std::move(stores), std::move(parameters), options_.run.parallel, group_};
}

Batches::Options Trainer::batch_options() const {
  return {.batch = micro_batch(),
          .context = options_.run.shape.context,
          .order = options_.order,
          .seed = options_.run.seed,
          .packed = options_.run.packed};
}

RunSpec Trainer::spec_of(Mode mode) const {
  RunSpec spec = options_.run;
  spec.mode = mode;
  if (mode != Mode::kStep || are_apart()) spec.accumulate = 1;
  return spec;
}

PassContext Trainer::context() const {
  PassContext out;
  // The pass adds a tensor and the terms of a product in one sum; with other numbers of ranks these
  // are two sums, which round otherwise.
  if (options_.shards > 0) out.disabled.insert("epilogue");
  out.rounds_weights = rounds_weights();
  return out;
}

void Trainer::build() {
  if (!are_apart()) {
    step_ = executor_of(step_passes(spec_of(Mode::kStep), device(), context()).program);
    using Names = std::vector<std::string>;
    step_->observe({.early = guards() ? Names{"loss", "grad_norm"} : Names{"loss"}});
    return;
  }
  // The first micro-batch overwrites the gradients, the others add; then one update.
  RunSpec step = spec_of(Mode::kStep);
  step.accumulate = rounds();
  step.shape.batch = micro_batch();
  PassContext with_shards = context();
  with_shards.traits = device().traits();
  with_shards.sums_shards = options_.shards > 0;
  const auto make = [&](const Program& program, const RunSpec& run, const PassContext& own) {
    return PipelineResult{program_for(program, run, device(), own), {}};
  };
  const std::vector<StepPart> parts = separate_micro_batches(step, with_shards, make);
  first_ = executor_of(parts[0].program);
  next_ = executor_of(parts[1].program);
  for (Executor* micro : {first_.get(), next_.get()}) micro->observe({.early = {"loss"}});
  step_ = executor_of(parts[2].program);
  step_->observe({.early = {"grad_norm"}});
}

// Makes a program for each shape of the validated parts. They run on the first rank of the process,
// unless ranks hold parts of the weights.
void Trainer::build_evaluators() {
  RunSpec spec = spec_of(Mode::kInference);  // the loss, nothing kept for backward
  const bool on_all = evaluates_on_all();
  if (!on_all) spec.parallel = {};
  const Parallel& parallel = spec.parallel;
  const int divisor = parallel.replicas() * (parallel.divides_rows ? parallel.tensor : 1);
  validated_ = parts_for(spec, validation_, options_.validation_batches, divisor);
  for (const TextPart& part : validated_) {
    auto& evaluator = evaluators_[{part.shape.batch, part.shape.context}];
    if (evaluator) continue;
    spec.shape = part.shape;
    Program loss = loss_program(spec, {.scale = 1.0 / parallel.replicas()});
    if (on_all) loss = reduce(loss, parallel);
    const Program program = program_for(loss, spec, device());
    evaluator = on_all ? executor_of(program) : stores_.executor_of_first(spec, program);
  }
}

Executor& Trainer::evaluator_of(const TextPart& part, double* counted) {
  Executor& out = *evaluators_.at({part.shape.batch, part.shape.context});
  RunSpec run = spec_of(Mode::kInference);
  if (!evaluates_on_all()) run.parallel = {};
  Batch batch = batch_of(part, *validation_);
  if (counted != nullptr) *counted = counted_in(part, batch);
  batch.loss_count /= run.parallel.replicas();
  set_text(out, run, batch, 0);
  return out;
}

std::unique_ptr<Executor> Trainer::executor_of(const Program& program) {
  return stores_.executor(options_.run, program);
}

double Trainer::state_value(std::string_view name) const {
  return widened(stores_.first().get(name)).as<double>()[0];
}

TrainStep Trainer::step(std::int64_t index) {
  const auto start = std::chrono::steady_clock::now();
  TrainStep out;
  out.step = index + 1;
  enter_step(out.step);
  out.lr = options_.schedule.at(out.step);
  if (is_scaled()) {
    out.loss_scale = state_value(kLossScale);
    // The skipped steps before this one, which set_rates() needs.
    out.skipped_steps = static_cast<std::int64_t>(state_value(kSkippedSteps));
  }
  const auto before = states_of(store(), kLossScale);
  const bool applied = run_step(index, out);
  // A smaller scale does not help a loss that is not finite, nor gradients when the scale is at its
  // floor.
  const bool skipped =
      !applied && is_scaled() && std::isfinite(out.loss) && *out.loss_scale > kLossScaleFloor;
  out.not_finite = !applied && !skipped;
  if (out.not_finite) set_states(stores_, before);
  if (skipped) ++out.skipped_steps;
  warn_of_skips(out, skipped);
  const std::int64_t tokens = micro_batch() * options_.run.shape.context * rounds();
  out.tokens_per_s = static_cast<double>(tokens) / seconds_since(start);
  return out;
}

// Runs a step from its inputs to the update; true if it was applied.
bool Trainer::run_step(std::int64_t index, TrainStep& out) {
  if (are_apart()) return accumulate(index, out) && update(out);
  set_inputs(*step_, spec_of(Mode::kStep), options_.on_example, take_batch(index), index);
  return update(out);
}

// Runs forward and backward on all micro-batches of step `index` and adds up their losses. False if
// the sum is not finite: then no update must run.
bool Trainer::accumulate(std::int64_t index, TrainStep& out) {
  const RunSpec spec = spec_of(Mode::kForwardBackward);
  for (std::int64_t i = 0; i < rounds(); ++i) {
    Executor& executor = micro(i);
    const std::int64_t number = index * rounds() + i;
    set_inputs(executor, spec, options_.on_example, take_batch(number), number);
    executor.run();
    read_ahead(number + 1);
    out.loss += executor.scalar("loss");
    executor.release_outputs();
  }
  out.grad_norm = std::numeric_limits<double>::quiet_NaN();
  return std::isfinite(out.loss);
}

bool Trainer::update(TrainStep& out) {
  set_rates(out);
  step_->run();
  if (!are_apart()) {
    read_ahead(out.step);
    out.loss = step_->scalar("loss");
  }
  out.grad_norm = guards() ? step_->scalar("grad_norm") : std::numeric_limits<double>::quiet_NaN();
  step_->release_outputs();
  return guards() ? is_applied(out.grad_norm, out.loss) : std::isfinite(out.loss);
}

// Reads a batch. Where targets are masked, its loss is divided by the mean number of targets that
// count in a rank's micro-batch, as the step takes the mean of those losses.
Batch Trainer::read_batch(std::int64_t number) const {
  Batch out = batches_.at(number);
  const bool masks = options_.run.packed || options_.run.masks_targets;
  const std::int64_t first = number / rounds() * rounds();
  for (std::int64_t i = first; masks && i < first + rounds(); ++i) {
    if (i != number) out.loss_count += static_cast<double>(batches_.at(i).counted);
  }
  out.loss_count /= static_cast<double>(rounds() * options_.run.parallel.replicas());
  return out;
}

Batch Trainer::batch_of_run(std::int64_t number) const {
  std::vector<Batch> parts;
  for (std::int64_t i = 0; i < batches_of_run(); ++i)
    parts.push_back(read_batch(number * batches_of_run() + i));
  return joined(parts, options_.run.parallel.replicas());
}

Batch Trainer::take_batch(std::int64_t number) {
  const std::optional<ReadBatch> ahead = std::exchange(ahead_, std::nullopt);
  return ahead && ahead->number == number ? std::move(ahead->batch) : batch_of_run(number);
}

void Trainer::read_ahead(std::int64_t number) {
  try {
    ahead_ = ReadBatch{number, batch_of_run(number)};
  } catch (const Error&) {  // the step that needs it reports that it cannot be read
    ahead_.reset();
  }
}

void Trainer::set_rates(const TrainStep& step) {
  step_->set_scalar("lr", step.lr);
  if (options_.run.optimizer.kind == OptimizerKind::kSgd) return;
  const OptimizerOptions& o = options_.run.optimizer;
  // Skipped steps do not count: they left the moments as they were.
  const std::int64_t t = step.step - step.skipped_steps;
  step_->set_scalar("step_size", step_size(step.lr, o.beta1, o.beta2, t));
}

void Trainer::warn_of_skips(const TrainStep& step, bool skipped) {
  skips_in_a_row_ = skipped ? skips_in_a_row_ + 1 : 0;
  if (skips_in_a_row_ == kManySkips) {
    log_warn("step {}: the {}th in a row whose gradients overflow float16; the loss scale is {:g}",
             step.step, kManySkips, state_value(kLossScale));
  }
  if (skipped && state_value(kLossScale) <= kLossScaleFloor) {
    log_warn("step {}: the loss scale is at its floor of {:g}; the next overflow ends the run",
             step.step, kLossScaleFloor);
  }
}

std::optional<NotFinite> Trainer::find_cause(std::int64_t index) {
  const auto parameters = parameters_of(store());
  auto moments = states_of(store(), kAdamwStates);
  moments.merge(states_of(store(), kMuonStates));
  Search search(group_);
  for (const auto* tensors : {&parameters, &std::as_const(moments)}) {
    search.look([&] { return find_not_finite(TensorMap(tensors->begin(), tensors->end())); });
  }
  const auto before = states_of(store(), kLossScale);
  const std::int64_t runs = are_apart() ? rounds() : 1;
  const RunSpec spec = spec_of(are_apart() ? Mode::kForwardBackward : Mode::kStep);
  for (std::int64_t i = 0; i < runs; ++i) {
    search.look([&] {
      Executor& executor = are_apart() ? micro(i) : *step_;
      const std::int64_t number = index * runs + i;
      set_inputs(executor, spec, options_.on_example, batch_of_run(number), number);
      return find_not_finite(executor);
    });
  }
  if (are_apart()) search.look([&] { return find_not_finite(*step_); });
  set_states(stores_, before);
  return search.result();
}

double Trainer::validate() {
  TRACESTEP_CHECK(can_validate(), "there is no text to validate on");
  double total = 0.0, counted = 0.0;
  const std::int64_t tokens = tokens_of(validated_);
  ProgressLine progress;
  std::int64_t done = 0;
  for (const TextPart& part : validated_) {
    double own = 0.0;
    Executor& evaluator = evaluator_of(part, &own);
    evaluator.run();
    total += evaluator.scalar("loss") * own;
    counted += own;
    done += part.tokens();
    progress.update(fmt::format("validating: {} %", 100 * done / tokens));
  }
  for (auto& [shape, evaluator] : evaluators_) evaluator->release_outputs();
  return total / std::max(counted, 1.0);
}

std::optional<NotFinite> Trainer::find_cause_in_validation() {
  Search search(group_);
  for (const TextPart& part : validated_) {
    search.look([&] { return find_not_finite(evaluator_of(part)); });
  }
  return search.result();
}

}  // namespace tracestep
