#include "cli/training_notices.h"

#include "base/log.h"
#include "train/text_parts.h"

namespace tracestep::cli {
namespace {

// How many forward passes take as long as forward and backward of a step: backward takes twice as
// long as forward.
constexpr double kForwardsOfAStep = 3.0;

// Returns how many steps take as long as a validation; if one rank validates, the others wait.
double steps_as_long(const TrainOptions& o, std::int64_t tokens) {
  const Parallel& parallel = o.run.parallel;
  const bool on_all = parallel.shards_weights() || parallel.is_divided();
  const auto [batch, context] = o.run.shape;
  const double of_a_step =
      kForwardsOfAStep * static_cast<double>(batch * context * o.run.accumulate);
  return static_cast<double>(tokens) * (on_all ? 1 : parallel.ranks) / of_a_step;
}

std::string words_of_steps(double steps) {
  if (steps < 1) return "less than a step";
  return fmt::format("about {:.0f} step{}", steps, steps < 1.5 ? "" : "s");
}

}  // namespace

void say_what_is_lost(const TrainOptions& o) {
  if (!o.save.empty() || !o.checkpoint.empty()) return;
  log_info("nothing{} will be saved: give --save FILE or --checkpoint DIR",
           o.log.empty() ? "" : " but the log");
}

void say_packing(const TrainOptions& o, const TokenSourcePtr& tokens) {
  if (!o.run.packed) return;
  const std::int64_t context = o.run.shape.context;
  const PackedRows packed(tokens, context);
  const auto places = static_cast<double>(packed.rows() * context);
  log_info(
      "packed: {} documents in {} rows of {}, {:.2f} % of the places filled; {} longer ones "
      "split{}",
      packed.documents(), packed.rows(), context,
      100.0 * static_cast<double>(packed.filled()) / places, packed.split(),
      packed.left_out() == 0
          ? ""
          : fmt::format(", {} pieces without a target left out", packed.left_out()));
}

void say_validation(const TrainOptions& o, const TokenSourcePtr& held_out) {
  const auto parts = [&](std::int64_t batches) {
    return tokens_of(parts_for(o.run, held_out, batches));
  };
  const std::int64_t read = parts(o.validation_batches);
  const std::int64_t all = o.run.packed ? parts(0) : held_out->size() - 1;  // with a next token
  const double steps = steps_as_long(o, read);
  const bool is_long = steps > static_cast<double>(o.validate_every);
  log_info("validation on {} of {} tokens held out, every {} steps; it takes as long as {}{}",
           read == all ? "all" : std::to_string(read), all, o.validate_every, words_of_steps(steps),
           is_long ? " (--validation-batches N reads fewer)" : "");
}

}  // namespace tracestep::cli
