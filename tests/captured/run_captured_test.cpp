// A captured module in every place where a model can run: its numbers are those of the fixture,
// which lists and the chain rule computed, and its bytes those that were predicted.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/reference/reference_device.h"
#include "lab/memory/run.h"
#include "nn/captured_programs.h"
#include "session/session.h"
#include "spec/run_grid.h"
#include "support/backends.h"
#include "support/paths.h"
#include "support/temp_folder.h"
#include "train/evaluate.h"
#include "train/loop.h"
#include "weights/captured_tensors.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::filesystem::path tiny() {
  return testing::source_folder() / "tests/captured/tiny";
}

RunSpec run_of(const std::filesystem::path& folder = tiny()) {
  RunGrid grid;
  grid.give(field_named("program"), "--program", {folder.string()});
  return grid.run();
}

double largest_difference(const HostTensor& a, const HostTensor& b) {
  EXPECT_EQ(a.shape, b.shape);
  const HostTensor x = widened(a), y = widened(b);
  double out = 0.0, largest = 0.0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    out = std::max(out, std::abs(x.as<double>()[at] - y.as<double>()[at]));
    largest = std::max(largest, std::abs(y.as<double>()[at]));
  }
  return out / largest;
}

void expect_the_fixtures_numbers(Device& device, RunSpec run, double tolerance) {
  const TempFolder folder;
  EvalOptions options{.run = std::move(run)};
  options.logits = folder / "logits.safetensors";
  options.gradients = folder / "gradients.safetensors";
  const EvalResult result = evaluate(device, options, nullptr);
  const SafetensorsFile expected(tiny() / "expected.safetensors"), logits(options.logits),
      gradients(options.gradients);
  const double loss = expected.read("loss").as<double>()[0];
  EXPECT_NEAR(result.loss, loss, tolerance * loss);
  EXPECT_LE(largest_difference(logits.read("logits"), expected.read("logits")), tolerance);
  std::size_t found = 0;
  for (const std::string& name : gradients.names()) {
    SCOPED_TRACE(name);
    EXPECT_LE(largest_difference(gradients.read(name), expected.read("grad." + name)), tolerance);
    ++found;
  }
  EXPECT_EQ(found, expected.names().size() - 2) << "no gradient of a constant";
}

TEST(RunCapturedTest, TheReferenceComputesTheFixturesNumbers) {
  const auto device = make_reference_device();
  expect_the_fixtures_numbers(*device, run_of(), 1e-13);
}

TEST(RunCapturedTest, EveryBackEndAndFormComputesThem) {
  for (const std::string& name : testing::backend_names()) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
        RunSpec run = run_of();
        run.executor = executor;
        run.ops = ops;
        const auto device = testing::backend_named(name).make({});
        expect_the_fixtures_numbers(*device, run, 1e-5);
      }
    }
  }
}

TEST(RunCapturedTest, EveryBlockOfMemoryIsABufferThatWasPredicted) {
  const std::vector<Recomputation> choices{{},
                                           Recomputation::blocks(),
                                           Recomputation::nested(),
                                           Recomputation::parts({"layers.*.down"}),
                                           Recomputation::parts({"blocks.0"})};
  for (const std::string& name : testing::backend_names()) {
    for (const Mode mode : kAll<Mode>) {
      for (const char* precision : {"fp32", "bf16"}) {
        for (const Recomputation& recompute : choices) {
          for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
            if (mode == Mode::kInference && recompute != Recomputation()) continue;
            MemoryRunSpec spec{.step = run_of(), .times = false};
            spec.step.mode = mode;
            spec.step.precision = parse_precision("test", precision);
            spec.step.recompute = recompute;
            spec.step.executor = executor;
            SCOPED_TRACE(fmt::format("{} {} {} {}", name_of(mode), precision, name_of(recompute),
                                     name_of(executor)));
            const MemoryRun run = run_memory(
                [&](const RunSpec&) { return testing::backend_named(name).make({}); }, spec);
            ASSERT_EQ(run.status, Status::kOk);
            EXPECT_EQ(run.peak_bytes, run.predicted_peak_bytes);
            EXPECT_THAT(surprises(run), IsEmpty());
            const auto constants =
                run.map.by_category[static_cast<std::size_t>(Category::kConstant)];
            EXPECT_EQ(constants, 4 * (48 + 24 + 16));
          }
        }
      }
    }
  }
}

TrainOptions training(std::int64_t steps) {
  TrainOptions out;
  out.run = run_of();
  out.steps = steps;
  out.on_example = true;
  out.schedule = {.lr = 1e-2, .total_steps = steps};
  return out;
}

TokenSourcePtr no_tokens() {
  return memory_tokens("none", std::vector<std::int32_t>(64));
}

TEST(RunCapturedTest, TrainingLowersTheLossAndWritesTheModulesOwnNames) {
  const TempFolder folder;
  TrainOptions options = training(30);
  options.save = folder / "trained.safetensors";
  const auto device = testing::backend_named("cpu").make({.threads = 1});
  const TrainResult result = train(*device, options, no_tokens(), nullptr, nullptr, {});
  EXPECT_LT(result.last.loss, 0.6 * result.first.loss);

  const SafetensorsFile saved(options.save), before(tiny() / kCapturedWeights),
      constants(tiny() / kCapturedConstants);
  std::vector<std::string> names = before.names();
  names.emplace_back("head.weight");
  names.emplace_back("positions");
  EXPECT_THAT(saved.names(), ::testing::UnorderedElementsAreArray(names));
  EXPECT_EQ(saved.read("head.weight").bytes, saved.read("embed.weight").bytes) << "tied";
  EXPECT_NE(saved.read("embed.weight").bytes, before.read("embed.weight").bytes);
  EXPECT_EQ(saved.read("blocks.1.up.weight").bytes, before.read("blocks.1.up.weight").bytes)
      << "frozen";
  EXPECT_EQ(saved.read("positions").bytes, constants.read("positions").bytes) << "a buffer";

  EvalOptions again{.run = run_of(), .init = options.save};
  EXPECT_LT(evaluate(*device, again, nullptr).loss, result.last.loss) << "one update further";
}

TEST(RunCapturedTest, RecomputationAndEarlyUpdatesTrainTheSameBits) {
  const auto trained = [](RunSpec run) {
    const TempFolder folder;
    TrainOptions options = training(5);
    options.run = std::move(run);
    options.save = folder / "trained.safetensors";
    const auto device = testing::backend_named("cpu").make({.threads = 1});
    train(*device, options, no_tokens(), nullptr, nullptr, {});
    return content_of(options.save);
  };
  const std::string plain = trained(run_of());
  RunSpec run = run_of();
  run.recompute = Recomputation::blocks();
  EXPECT_EQ(trained(run), plain);
  run.updates = UpdateTime::kEarly;
  EXPECT_EQ(trained(run), plain);
}

TEST(RunCapturedTest, TextIsReadInWholeBatchesAlone) {
  const auto device = testing::backend_named("cpu").make({.threads = 1});
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 30; ++i) tokens.push_back(i * 7 % 11);
  EvalOptions options{.run = run_of()};
  const EvalResult result = evaluate(*device, options, memory_tokens("text", tokens));
  EXPECT_EQ(result.tokens, 24);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_THAT(message_of(ErrorCode::kInput,
                         [&] {
                           evaluate(*device, options, memory_tokens("text", {1, 2, 3}));
                         }),
              HasSubstr("fewer tokens than a batch of TinyNet"));
}

TEST(RunCapturedTest, SizesAndShapesBesideItAreRefused) {
  const auto refused = [](const char* name, const char* text) {
    RunGrid grid;
    grid.give(field_named("program"), "--program", {tiny().string()});
    grid.give(field_named(name), name, {text});
    return message_of(ErrorCode::kUsage, [&] { grid.run(); });
  };
  EXPECT_THAT(refused("batch", "4"), HasSubstr("was captured with batch 2"));
  EXPECT_THAT(refused("context", "8"), HasSubstr("tracestep.capture(module, *inputs"));
  EXPECT_THAT(refused("layers", "3"), HasSubstr("has all of its sizes"));
  EXPECT_THAT(refused("vocab", "64"), HasSubstr("has all of its sizes"));
  EXPECT_THAT(refused("size", "tiny"), HasSubstr("has all of its sizes"));
  EXPECT_THAT(refused("parallel", "tp=2"), HasSubstr("tp divides models"));
  RunGrid same;
  same.give(field_named("program"), "--program", {tiny().string()});
  same.give(field_named("batch"), "--batch", {"2"});
  EXPECT_EQ(same.run().shape.batch, 2) << "what it has anyway may be said";
}

TEST(RunCapturedTest, TheKeyOfARunLeadsBackToIt) {
  const RunSpec run = run_of();
  const Json key = key_of(run);
  EXPECT_EQ(key.find("d_model"), nullptr);
  EXPECT_EQ(key.at("size").as_string(), "TinyNet");
  const RunSpec again = run_of_key(key);
  EXPECT_EQ(again.model.captured, run.model.captured);
  EXPECT_EQ(again.shape.batch, 2);
  EXPECT_THAT(label_of(run), HasSubstr("TinyNet"));
  EXPECT_THAT(label_of(run), ::testing::Not(HasSubstr("d_model")));
}

// --- files that do not go with the program ------------------------------------------------------

// A copy of the fixture without one file, or with another in its place.
class Copy {
 public:
  explicit Copy(const char* file) {
    for (const auto& entry : std::filesystem::directory_iterator(tiny())) {
      if (entry.path().filename() == file) continue;
      std::filesystem::copy(entry.path(), folder_ / entry.path().filename().string());
    }
  }
  const std::filesystem::path& path() const { return folder_.path(); }

  std::string refused() const {
    const auto device = testing::backend_named("cpu").make({.threads = 1});
    EvalOptions options{.run = run_of(path())};
    return message_of(ErrorCode::kInput, [&] { evaluate(*device, options, nullptr); });
  }

 private:
  TempFolder folder_;
};

void write(const Copy& copy, const char* file, const TensorMap& tensors) {
  write_safetensors(copy.path() / file, tensors);
}

TEST(RunCapturedTest, TensorsThatAreNotThoseOfTheProgramAreRefused) {
  const SafetensorsFile weights(tiny() / kCapturedWeights);
  std::map<std::string, HostTensor> all;
  for (const std::string& name : weights.names()) all[name] = weights.read(name);

  const Copy other(kCapturedWeights);
  auto wrong = all;
  wrong["embed.weight"] = HostTensor::zeros(DType::kF32, {6, 11});
  write(other, kCapturedWeights, {wrong.begin(), wrong.end()});
  EXPECT_THAT(other.refused(), HasSubstr("'embed.weight' is f32[6,11], the program expects"));

  const Copy narrow(kCapturedWeights);
  wrong = all;
  wrong["embed.weight"] = HostTensor::zeros(DType::kBF16, {11, 6});
  write(narrow, kCapturedWeights, {wrong.begin(), wrong.end()});
  EXPECT_THAT(narrow.refused(), HasSubstr("'embed.weight' is bf16[11,6]"));

  const Copy more(kCapturedWeights);
  wrong = all;
  wrong["more"] = HostTensor::zeros(DType::kF32, {1});
  write(more, kCapturedWeights, {wrong.begin(), wrong.end()});
  EXPECT_THAT(more.refused(), HasSubstr("TinyNet has no weight 'more'"));

  const Copy less(kCapturedWeights);
  wrong = all;
  wrong.erase("blocks.0.up.bias");
  write(less, kCapturedWeights, {wrong.begin(), wrong.end()});
  EXPECT_THAT(less.refused(), HasSubstr("'blocks.0.up.bias' is missing"));

  const Copy beyond(kCapturedInputs);
  HostTensor ids = HostTensor::zeros(DType::kI64, {2, 4});
  const HostTensor labels = ids;
  ids.as<std::int64_t>()[5] = 11;
  write(beyond, kCapturedInputs, {{"ids", ids}, {"labels", labels}});
  EXPECT_THAT(beyond.refused(), HasSubstr("11 of 'ids' is no token below 11"));
}

TEST(RunCapturedTest, FilesThatMayBeMissing) {
  const auto device = testing::backend_named("cpu").make({.threads = 1});
  EXPECT_THAT(Copy(kCapturedConstants).refused(), HasSubstr(kCapturedConstants));
  const Copy drawn(kCapturedWeights), made(kCapturedInputs);
  for (const Copy* copy : {&drawn, &made}) {
    EvalOptions options{.run = run_of(copy->path())};
    const double loss = evaluate(*device, options, nullptr).loss;
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_EQ(evaluate(*device, options, nullptr).loss, loss);
    options.run.seed = 1;
    EXPECT_NE(evaluate(*device, options, nullptr).loss, loss) << "drawn from the seed";
  }
}

}  // namespace
}  // namespace tracestep
