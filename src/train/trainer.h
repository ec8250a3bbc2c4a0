// Everything a running training holds: the store, and the programs that work on it.
#pragma once

#include <memory>
#include <optional>

#include "exec/executor.h"
#include "spec/step_program.h"
#include "train/loop.h"

namespace tracestep {

class Trainer {
 public:
  // Allocates parameters and states; they are zero until someone sets them.
  Trainer(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
          TokenSourcePtr validation);

  Store& store() { return store_; }

  // Step `index`, counted from 0. After a step that is not finite the store holds, to the bit, what
  // it held before.
  TrainStep step(std::int64_t index);
  // Where the step just made stopped being finite: computes it again and looks at every result.
  // nullopt when this time everything is finite.
  std::optional<NotFinite> find_cause(std::int64_t index);

  bool can_validate() const { return evaluator_ != nullptr; }
  // The mean loss over the first batches of the validation tokens.
  double validate();
  // The same search in the batches of the validation.
  std::optional<NotFinite> find_cause_in_validation();

 private:
  bool is_scaled() const { return options_.run.optimizer.loss_scaling.enabled; }
  Batches::Options batch_options() const;
  double state_value(std::string_view name) const;
  RunSpec spec_of(Mode mode) const;
  void build(Device& device);
  void build_evaluator(Device& device);
  Program update_program(Device& device) const;

  bool run_step(std::int64_t index, TrainStep& out);
  bool accumulate(std::int64_t index, TrainStep& out);
  bool update(TrainStep& out);
  std::unique_ptr<Executor> executor_of(Program program);
  Executor& micro(std::int64_t i) { return i == 0 ? *first_ : *next_; }
  void set_rates(const TrainStep& step);
  void warn_of_skips(const TrainStep& step, bool skipped);

  TrainOptions options_;  // the optimizer's as its programs have them
  Store store_;
  Batches batches_;
  std::optional<Batches> validation_;
  std::unique_ptr<Executor> step_, first_, next_, evaluator_;
  std::int64_t skips_in_a_row_ = 0;
};

}  // namespace tracestep
