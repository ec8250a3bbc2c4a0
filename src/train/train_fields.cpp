#include "train/train_fields.h"

namespace tracestep {
namespace {

constexpr auto kAnyCount = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostShards = 1 << 20;
constexpr double kAnyReal = std::numeric_limits<double>::max();

std::vector<TrainField> all_fields() {
  FieldRows<TrainOptions> rows;
  const auto row = [](const char* name, FieldRole role, const char* help) {
    return TrainField{.name = name, .role = role, .show = FieldShow::kNowhere, .help = help};
  };
  using enum FieldRole;
  rows.integer(row("steps", kProtocol, "optimizer steps"), 1, kAnyCount, in(&TrainOptions::steps));
  rows.integer(row("shards", kBits,
                   "parts of a batch whose gradients are added up in one order, "
                   "whatever the number of ranks; 0 is off"),
               0, kMostShards, in(&TrainOptions::shards));
  rows.choice(row("order", kBits, "where batches start in the tokens"), kAll<Order>,
              in(&TrainOptions::order));
  rows.real(row("lr", kBits, "learning rate"), 0, kAnyReal,
            in(&TrainOptions::schedule, &Schedule::lr));
  rows.choice(row("schedule", kBits, "of the learning rate"), kAll<ScheduleKind>,
              in(&TrainOptions::schedule, &Schedule::kind));
  rows.integer(row("warmup_steps", kBits, "linear warm-up of the rate"), 0, kAnyCount,
               in(&TrainOptions::schedule, &Schedule::warmup_steps));
  TrainField& lr_min = rows.real(row("lr_min", kBits, "where the cosine ends"), 0, kAnyReal,
                                 in(&TrainOptions::schedule, &Schedule::lr_min));
  lr_min.no_effect = "a constant rate stays as it is";
  lr_min.needs = TRACESTEP_OPTION(schedule) " cosine";
  lr_min.applies = [](const TrainOptions& o) { return o.schedule.kind == ScheduleKind::kCosine; };
  rows.real(row("clip", kProgram, "largest global gradient norm; 0 is off"), 0, kAnyReal,
            in(&TrainOptions::run, &RunSpec::optimizer, &OptimizerOptions::clip));
  rows.real(row("weight_decay", kProgram, "decoupled"), 0, kAnyReal,
            in(&TrainOptions::run, &RunSpec::optimizer, &OptimizerOptions::weight_decay));
  // Above this beta, 1 - beta may be 0 in float32; below this eps, its reciprocal may overflow.
  constexpr double kMostBeta = 0.9999999, kLeastEps = 1e-38;
  const auto of_adamw = [&](const char* name, const char* help, double least, double most,
                            double OptimizerOptions::*member) {
    rows.real(row(name, kProgram, help), least, most,
              in(&TrainOptions::run, &RunSpec::optimizer, member))
        .is_optional = true;
  };
  of_adamw("beta1", "AdamW's decay of the mean of gradients", 0, kMostBeta,
           &OptimizerOptions::beta1);
  of_adamw("beta2", "AdamW's decay of the mean of their squares", 0, kMostBeta,
           &OptimizerOptions::beta2);
  of_adamw("eps", "added to the root of that mean, before its bias is corrected", kLeastEps, 1,
           &OptimizerOptions::eps);
  const auto of_muon = [](TrainField& field) {
    field.is_optional = true;
    field.no_effect = "AdamW updates all weights, and it is for the steps of Muon";
    field.needs = TRACESTEP_OPTION(optimizer) " muon";
    field.applies = [](const TrainOptions& o) {
      return o.run.optimizer.kind == OptimizerKind::kMuon;
    };
  };
  of_muon(rows.real(row("momentum", kProgram, "Muon's decay of the mean of gradients"), 0,
                    kMostBeta,
                    in(&TrainOptions::run, &RunSpec::optimizer, &OptimizerOptions::momentum)));
  of_muon(rows.choice(row("muon_scale", kProgram,
                          "the length of Muon's steps: AdamW's, so that one rate is for both, or "
                          "sqrt(max(1, out/in)) rates for a matrix [out, in]"),
                      kAll<MuonScale>,
                      in(&TrainOptions::run, &RunSpec::optimizer, &OptimizerOptions::muon_scale)));
  rows.choice(row("weight_decay_on", kProgram, "the tensors that decay; matrices leaves out gains"),
              kAll<DecayOn>,
              in(&TrainOptions::run, &RunSpec::optimizer, &OptimizerOptions::decay_on))
      .is_optional = true;
  TrainField& rounding = rows.choice(
      row("rounding", kBits,
          "with precision bf16-pure, how an updated weight becomes 16 bits: nearest, which loses "
          "an update below half the spacing of the numbers there, or random, which the step's "
          "number and the data decide, and which is right on average"),
      kAll<Rounding>, in(&TrainOptions::rounding));
  rounding.is_optional = rounding.is_kept = true;  // checkpoints hold the step's number
  return rows.take();
}

}  // namespace

std::span<const TrainField> train_fields() {
  static const std::vector<TrainField> all = all_fields();
  return all;
}

}  // namespace tracestep
