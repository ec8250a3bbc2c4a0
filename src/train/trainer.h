// The state of a running training: its stores and the programs that work on them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "session/session.h"
#include "spec/micro_batches.h"
#include "train/loop.h"
#include "train/text_parts.h"
#include "weights/not_finite.h"
#include "weights/whole_tensors.h"

namespace tracestep {

// The name of the option that needs all gradients before the first update, and so rules out early
// updates; empty: none does.
std::string_view waits_for(const TrainOptions& options);

class Trainer {
 public:
  // Allocates parameters and states, which are zero until the caller sets them.
  Trainer(const RankDevices& devices, const TrainOptions& options, TokenSourcePtr tokens,
          TokenSourcePtr validation);
  // Trains on one device, without ranks.
  Trainer(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
          TokenSourcePtr validation);

  // The store of the first rank in this process.
  Store& store() { return stores_.first(); }
  // The tensors of the training as all ranks together hold them.
  WholeTensors tensors() const;

  // Runs step `index`, counted from 0. A step that is not finite leaves weights, moments and loss
  // scale unchanged, bit for bit.
  TrainStep step(std::int64_t index);
  // Finds where the latest step stopped being finite: computes it again and checks every result.
  // nullopt when everything is finite this time.
  std::optional<NotFinite> find_cause(std::int64_t index);

  bool can_validate() const { return validation_ != nullptr; }
  // The mean loss over the validation tokens, or over as many batches as the options say.
  double validate();
  // Finds where the latest validation stopped being finite, as find_cause() does for a step.
  std::optional<NotFinite> find_cause_in_validation();

 private:
  // rounds(): micro-batches of a step (with shards: of a replica); micro_batch(): rows of each.
  std::int64_t rounds() const {
    return options_.shards == 0 ? options_.run.accumulate
                                : options_.shards / options_.run.parallel.replicas();
  }
  // True if each micro-batch and the update run as separate programs; false: the whole step is one
  // program (spec/micro_batches.h).
  bool are_apart() const { return rounds() > (options_.shards == 0 ? kMostInOneProgram : 1); }
  // How many batches one run of a program reads.
  std::int64_t batches_of_run() const { return are_apart() ? 1 : rounds(); }
  std::int64_t micro_batch() const {
    return options_.run.shape.batch / (options_.shards == 0 ? 1 : rounds());
  }
  // True if steps that are not finite are skipped, for which the norm of the gradients is computed.
  bool guards() const { return options_.run.optimizer.guard_finite; }
  bool rounds_weights() const { return options_.rounding == Rounding::kRandom; }
  bool is_scaled() const { return options_.run.optimizer.loss_scaling.enabled; }
  Batches::Options batch_options() const;
  double state_value(std::string_view name) const;
  RunSpec spec_of(Mode mode) const;
  // The context of the passes; --shards switches some of them off.
  PassContext context() const;
  void build();
  void build_evaluators();
  // An executor whose inputs are set to the part; `counted` is set to the number of its targets
  // that count, unless it is nullptr.
  Executor& evaluator_of(const TextPart& part, double* counted = nullptr);
  Device& device() const { return stores_.first().device(); }

  bool run_step(std::int64_t index, TrainStep& out);
  bool accumulate(std::int64_t index, TrainStep& out);
  bool update(TrainStep& out);
  std::unique_ptr<Executor> executor_of(const Program& program);
  bool evaluates_on_all() const {
    return options_.run.parallel.shards_weights() || options_.run.parallel.is_divided();
  }
  Executor& micro(std::int64_t i) { return i == 0 ? *first_ : *next_; }
  void set_rates(const TrainStep& step);
  // The input of run `number` (from 0) of the programs that compute gradients. The next one is read
  // ahead, while the device works.
  Batch take_batch(std::int64_t number);
  void read_ahead(std::int64_t number);
  Batch batch_of_run(std::int64_t number) const;
  // Reads micro-batch `number`; its losses are divided by the mean number of targets that count in
  // a rank's micro-batch of the step.
  Batch read_batch(std::int64_t number) const;
  void warn_of_skips(const TrainStep& step, bool skipped);

  TrainOptions options_;  // The options, with the optimizer's as the programs use them.
  const RankStores stores_;
  Communicator* const group_;  // nullptr: there is one rank
  Batches batches_;
  TokenSourcePtr validation_;  // The validation tokens; nullptr: there are none.
  std::vector<TextPart> validated_;
  struct ReadBatch {
    std::int64_t number = 0;
    Batch batch;
  };
  std::optional<ReadBatch> ahead_;
  std::unique_ptr<Executor> step_, first_, next_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Executor>> evaluators_;  // B, T
  std::int64_t skips_in_a_row_ = 0;
};

}  // namespace tracestep
