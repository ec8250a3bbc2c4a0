#include "train/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "passes/pipeline.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using testing::HasSubstr;
using Names = std::vector<std::string>;

TrainOptions some_options() {
  TrainOptions out;
  out.schedule = {ScheduleKind::kCosine, 1e-3, 1e-4, 5, 100};
  out.validation_batches = 8;
  return out;
}

RunContent some_content() {
  return {.device = "cpu", .tokens = 950, .validation_tokens = 50, .text = "0123", .init = ""};
}

Json some_run() {
  return fingerprint(some_options(), some_content());
}

// The fingerprint as a checkpoint would give it back.
Json stored(const Json& run) {
  return Json::parse(run.dump(), "run");
}

std::string difference(const Json& saved, const Json& now) {
  return message_of(ErrorCode::kUsage, [&] { continue_run(stored(saved), now, {}, 1); });
}

// A text of another value than the run's.
std::string other_text(const RunField& field, const RunSpec& run) {
  const std::string now = text_of(field, run);
  for (const std::string& choice : field.choices) {
    if (choice != now) return choice;
  }
  for (const std::string& example : field.examples) {
    if (example != now) return example;
  }
  if (field.value(run).is_bool()) return {};  // a switch
  return std::to_string(field.value(run).as_int() + 1);
}

using Runs = std::vector<std::pair<std::string, Json>>;

// A run for every option that changes only how a step is rounded, under the name of its entry.
Runs runs_of_other_rounding() {
  Runs out;
  const auto add = [&](const char* key, void (*change)(RunSpec&)) {
    TrainOptions options = some_options();
    change(options.run);
    out.emplace_back(key, fingerprint(options, some_content()));
  };
  add("compile_passes", [](RunSpec& run) { run.executor = ExecutorKind::kCompiled; });
  add("loss_chunks", [](RunSpec& run) { run.loss_chunks = 4; });
  add("ffn_chunks", [](RunSpec& run) { run.ffn_chunks = 4; });
  add("parallel", [](RunSpec& run) { run.parallel.ranks = 2; });
  return out;
}

// A run for every other option that changes the bits.
Runs other_runs() {
  Runs out;
  const auto add = [&](const char* key, void (*change)(TrainOptions&, RunContent&)) {
    TrainOptions options = some_options();
    RunContent content = some_content();
    change(options, content);
    out.emplace_back(key, fingerprint(options, content));
  };
  for (const RunField& field : run_fields()) {
    const bool is_entry = some_run().find(field.name) != nullptr;
    const bool is_apart = field.name == "device" || field.name == "optimizer";
    if (!is_entry || is_apart || field.role == FieldRole::kSpeed) continue;
    TrainOptions options = some_options();
    field.parse("test", other_text(field, options.run))(options.run);
    out.emplace_back(field.name, fingerprint(options, some_content()));
  }
  add("model", [](TrainOptions& o, RunContent&) { o.run.model.layers += 1; });
  add("optimizer", [](TrainOptions& o, RunContent&) { o.run.optimizer.loss_scaling.growth = 3; });
  add("beta1", [](TrainOptions& o, RunContent&) { o.run.optimizer.beta1 = 0.8; });
  add("beta2", [](TrainOptions& o, RunContent&) { o.run.optimizer.beta2 = 0.95; });
  add("eps", [](TrainOptions& o, RunContent&) { o.run.optimizer.eps = 1e-6; });
  add("rounding", [](TrainOptions& o, RunContent&) { o.rounding = Rounding::kRandom; });
  add("validation-batches", [](TrainOptions& o, RunContent&) { o.validation_batches = 9; });
  add("device", [](TrainOptions&, RunContent& c) { c.device = "cuda:0"; });
  add("shards", [](TrainOptions& o, RunContent&) { o.shards = 4; });
  add("order", [](TrainOptions& o, RunContent&) { o.order = Order::kSequential; });
  add("lr", [](TrainOptions& o, RunContent&) { o.schedule.lr = 2e-3; });
  add("schedule", [](TrainOptions& o, RunContent&) { o.schedule.kind = ScheduleKind::kConstant; });
  add("warmup-steps", [](TrainOptions& o, RunContent&) { o.schedule.warmup_steps = 6; });
  add("lr-min", [](TrainOptions& o, RunContent&) { o.schedule.lr_min = 0; });
  add("steps", [](TrainOptions& o, RunContent&) { o.schedule.total_steps = 101; });
  add("clip", [](TrainOptions& o, RunContent&) { o.run.optimizer.clip = 1; });
  add("weight-decay", [](TrainOptions& o, RunContent&) { o.run.optimizer.weight_decay = 0.1; });
  add("weight-decay-on",
      [](TrainOptions& o, RunContent&) { o.run.optimizer.decay_on = DecayOn::kMatrices; });
  add("init", [](TrainOptions&, RunContent& c) { c.init = "4567"; });
  add("text", [](TrainOptions&, RunContent& c) { c.text = "89ab"; });
  add("validation", [](TrainOptions&, RunContent& c) {
    c.tokens += c.validation_tokens;
    c.validation_tokens = 0;
  });
  return out;
}

TEST(FingerprintTest, TheSameRunMayContinue) {
  const Json run = some_run();
  EXPECT_EQ(continue_run(stored(run), run, {}, 1), run);
  TrainOptions free = some_options();
  free.validate_every = 7;
  free.steps = 50;  // the schedule's own length is another number
  EXPECT_EQ(continue_run(stored(run), fingerprint(free, some_content()), {}, 1), run);
  TrainOptions constant = some_options();
  constant.schedule = {};
  const Json short_run = fingerprint(constant, some_content());
  constant.schedule.total_steps = 200;
  EXPECT_EQ(fingerprint(constant, some_content()), short_run) << "--steps may be raised";
}

TEST(FingerprintTest, FieldsThatDecideTheBitsAreEntriesAndOthersAreNot) {
  for (const char* field : {"context", "batch", "precision", "ops", "attention", "seed"}) {
    EXPECT_NE(some_run().find(field), nullptr) << field;
  }
  TrainOptions options = some_options();
  options.run.executor = ExecutorKind::kCompiled;
  options.run.compile_passes.emplace();
  options.run.place.threads = 3;
  options.run.updates = UpdateTime::kEarly;
  options.run.recompute = parse_recomputation("test", "blocks");
  options.run.parallel.bucket_bytes = Parallel::kAllTensors;
  EXPECT_EQ(fingerprint(options, some_content()), some_run());
}

TEST(FingerprintTest, AnotherRoundingIsTakenWithAWarningAndKept) {
  for (const auto& [key, run] : runs_of_other_rounding()) {
    testing::internal::CaptureStderr();
    const Json kept = continue_run(stored(some_run()), run, {}, 8);
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_THAT(warning, HasSubstr(fmt::format("[resume] {}", key)));
    EXPECT_THAT(warning, HasSubstr("later steps may round differently"));
    EXPECT_EQ(kept.at("changes").items().at(0).at("option").as_string(), key);
    EXPECT_EQ(kept.at("changes").items().at(0).at("now"), run.at(key));
  }
}

TEST(FingerprintTest, WithShardsTheNumberOfRanksChangesNothing) {
  TrainOptions options = some_options();
  options.shards = 4;
  const Json one = fingerprint(options, some_content());
  options.run.parallel.ranks = 2;
  EXPECT_EQ(fingerprint(options, some_content()), one);
}

TEST(FingerprintTest, PartsOfGradientsCountWhereTheirNormClips) {
  TrainOptions options = some_options();
  options.run.parallel.ranks = 2;
  for (const double clip : {0.0, 0.5}) {
    options.run.optimizer.clip = clip;
    options.run.parallel.shard = 0;
    const Json whole = fingerprint(options, some_content());
    options.run.parallel.shard = 3;
    EXPECT_EQ(fingerprint(options, some_content()) == whole, clip == 0.0) << clip;
  }
}

TEST(FingerprintTest, EveryOptionThatChangesTheBitsIsAnEntryOfItsOwn) {
  const auto runs = other_runs();
  constexpr std::size_t kOfMuon = 2;  // null beside AdamW; below
  EXPECT_EQ(runs.size() + runs_of_other_rounding().size() + kOfMuon, some_run().size())
      << "an entry without a case here";
  for (const auto& [key, run] : runs) {
    EXPECT_THAT(difference(some_run(), run), HasSubstr("trained with other ")) << key;
    EXPECT_FALSE(run.at(key) == some_run().at(key)) << key;
  }
}

TEST(FingerprintTest, MuonsOptionsAreEntriesWhereItUpdates) {
  TrainOptions options = some_options();
  options.run.optimizer.kind = OptimizerKind::kMuon;
  const Json muon = fingerprint(options, some_content());
  TrainOptions other = options;
  other.run.optimizer.momentum = 0.9;
  EXPECT_THAT(difference(muon, fingerprint(other, some_content())), HasSubstr("other momentum"));
  other = options;
  other.run.optimizer.muon_scale = MuonScale::kOriginal;
  EXPECT_THAT(difference(muon, fingerprint(other, some_content())), HasSubstr("other muon-scale"));
  EXPECT_TRUE(some_run().at("momentum").is_null());
  EXPECT_THAT(difference(some_run(), muon), HasSubstr("other optimizer: adamw, now muon;"));
}

TEST(FingerprintTest, AChangeIsTakenWhenItIsNamedAndKeptFromThenOn) {
  for (const auto& [key, run] : other_runs()) {
    const Names names{key};
    if (key == "model" || key == "optimizer" || key == "moments" || key == "rounding" ||
        key == "init" || key == "lora" || key == "freeze" || key == "grad_accum_dtype") {
      EXPECT_THAT(message_of(ErrorCode::kUsage, [&] { check_changes(names); }),
                  HasSubstr(key + " cannot change"));
      continue;
    }
    check_changes(names);
    const Json kept = continue_run(stored(some_run()), run, names, 8);
    const Json& change = kept.at("changes").items().at(0);
    EXPECT_EQ(change.at("option").as_string(), key);
    EXPECT_EQ(change.at("after_step").as_int(), 8);
    EXPECT_EQ(change.at("now"), run.at(key));
    const Json again = continue_run(stored(kept), run, names, 9);
    EXPECT_EQ(again.at("changes").size(), 1u) << "nothing new: " << key;
  }
}

TEST(FingerprintTest, AllDifferencesAreNamedAtOnceWithBothValues) {
  TrainOptions options = some_options();
  options.run.shape.batch = 8;
  options.schedule.lr = 0.5;
  const std::string message = difference(some_run(), fingerprint(options, some_content()));
  EXPECT_THAT(message, HasSubstr("other batch: 4, now 8; other lr: 0.001, now 0.5"));
  EXPECT_THAT(message, HasSubstr("option change batch,lr"));
  options.run.model.layers = 3;
  EXPECT_THAT(difference(some_run(), fingerprint(options, some_content())),
              HasSubstr("use the same options, or another folder"));
}

TEST(FingerprintTest, AReceivedCheckpointSendsNoEscapeSequences) {
  Json saved = some_run();
  saved["order"] = "\x1b[2J";
  const std::string message = difference(saved, some_run());
  EXPECT_THAT(message, HasSubstr("other order: \\x1b[2J, now shuffled"));
}

TEST(FingerprintTest, AnUnknownNameIsRefusedWithAllNames) {
  const Names names{"lr", "wieght-decay"};
  const std::string message = message_of(ErrorCode::kUsage, [&] { check_changes(names); });
  EXPECT_THAT(message, HasSubstr("there is no \"wieght-decay\"; did you mean weight-decay?"));
  EXPECT_THAT(message, HasSubstr("one of device, context, "));
}

TEST(FingerprintTest, ValidationAndTextExplainADifferentNumberOfTokens) {
  RunContent content = some_content();
  content.tokens = 1000;
  content.validation_tokens = 0;
  EXPECT_THAT(difference(some_run(), fingerprint(some_options(), content)),
              HasSubstr("other validation: 50 of 1000 tokens, "
                        "now off"));
  content.text = "ffff";
  EXPECT_THAT(difference(some_run(), fingerprint(some_options(), content)),
              HasSubstr("other text, tokens or tokenizer: 1000 tokens with the hash 0123, "
                        "now 1000 tokens with the hash ffff"));
}

// A fingerprint as the first version of checkpoints has it.
Json earlier_run(std::int64_t tokens, std::int64_t held_out) {
  Json out = Json::object();
  for (const char* key :
       {"model", "batch", "context", "accumulate", "order", "precision", "seed"}) {
    out[key] = some_run().at(key);
  }
  out["tokens"] = tokens;
  out["validation_tokens"] = held_out;
  out["validate_every"] = 10;
  return out;
}

// Versions before had betas and eps behind the kind of the optimizer, and no flag for them.
TEST(FingerprintTest, AnEarlierVersionsOptimizerIsComparedPartByPart) {
  const Json run = some_run();
  Json earlier = Json::object();
  for (const auto& [key, value] : run.members()) {
    if (key != "beta1" && key != "beta2" && key != "eps") earlier[key] = value;
  }
  earlier["optimizer"] = Json::Array{"adamw", 0.9, 0.999, 1e-8, 2.0, 0.5, 2000};
  EXPECT_EQ(continue_run(stored(earlier), some_run(), {}, 1), some_run());
  TrainOptions options = some_options();
  options.run.optimizer.beta2 = 0.95;
  EXPECT_THAT(difference(stored(earlier), fingerprint(options, some_content())),
              HasSubstr("trained with other beta2: 0.999, now 0.95; use"));
  earlier["optimizer"] = Json::Array{"adamw", 0.9, 0.95, 1e-8, 2.0, 0.5, 2000};
  const Json now = fingerprint(options, some_content());
  EXPECT_EQ(continue_run(stored(earlier), now, {}, 1), now);
}

TEST(FingerprintTest, AnEarlierVersionsValidationReadsEightBatches) {
  EXPECT_EQ(validation_batches_of(earlier_run(950, 50)), 8);
  EXPECT_EQ(validation_batches_of(some_run()), some_options().validation_batches);
  TrainOptions all = some_options();
  all.validation_batches = 0;
  EXPECT_EQ(validation_batches_of(fingerprint(all, some_content())), 0);
  EXPECT_THAT(difference(earlier_run(950, 50), fingerprint(all, some_content())),
              HasSubstr("other validation-batches: 8, now 0"));
}

TEST(FingerprintTest, AnEarlierVersionsCheckpointIsComparedByWhatItHolds) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(continue_run(earlier_run(950, 50), some_run(), {}, 1), some_run());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("not recorded by the version that wrote the checkpoint, so not compared: "
                        "optimizer, device, ops, shards, lr, "));
  EXPECT_THAT(difference(earlier_run(9500, 500), some_run()),
              HasSubstr("tokenizer: 10000 tokens, now 1000 tokens with"));
  EXPECT_THAT(difference(earlier_run(1000, 0), some_run()),
              HasSubstr("other validation: off, now 50 of 1000 tokens"));
}

}  // namespace
}  // namespace tracestep
