// Small models of every family against values computed by transformers with the same weights
// (family_fixtures.py): logits, loss, every gradient and the losses of ten steps of AdamW, in every
// form of attention and executor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "backends/reference/reference_device.h"
#include "base/input_file.h"
#include "base/json.h"
#include "exec/executor.h"
#include "nn/families.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/family_folder.h"
#include "support/host_values.h"
#include "support/temp_folder.h"
#include "train/loop.h"
#include "weights/family_files.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::to_doubles;

constexpr BatchShape kShape{.batch = 2, .context = 12};

double norm_of(const std::vector<double>& values) {
  double out = 0.0;
  for (double v : values) out += v * v;
  return std::sqrt(out);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) difference[i] = a.at(i) - b[i];
  return norm_of(difference);
}

double largest(const std::vector<double>& values) {
  double out = 0.0;
  for (double v : values) out = std::max(out, std::abs(v));
  return out;
}

// The fixture of a model, its weights and gradients read as those of a published model.
struct Expected {
  explicit Expected(const std::string& name)
      : file(testing::family_fixture(name, ".safetensors")),
        weights(read(name, "weights.")),
        gradients(read(name, "gradients.")) {}

  SavedTensors read(const std::string& name, const std::string& what) const {
    testing::write_family_fixture(name, folder / what, what);
    return open_family_weights(folder / what);
  }

  TempFolder folder;
  SafetensorsFile file;
  SavedTensors weights, gradients;
};

class FamilyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ops::register_all(); }

  RunSpec spec() const {
    RunSpec out{.model = read_model(testing::family_fixture(GetParam(), ".json")).config,
                .shape = kShape};
    out.optimizer.beta2 = 0.95;
    out.optimizer.weight_decay = 0.1;
    out.verify = true;
    return out;
  }
  Expected expected() const { return Expected(GetParam()); }
};

void set_batch(Executor& executor, const SafetensorsFile& from) {
  executor.set_input("tokens", from.read("tokens"));
  executor.set_input("targets", from.read("targets"));
}

Program program_of(const RunSpec& spec, Mode mode, Device& device) {
  RunSpec run = spec;
  run.mode = mode;
  return program_for(loss_program(spec, {.with_logits = true}), run, device);
}

TEST_P(FamilyTest, HasTheParametersThatTransformersCounts) {
  const std::string counted = expected().file.metadata().at("parameters");
  EXPECT_EQ(std::to_string(parameter_formula(spec().model)), counted);
  EXPECT_EQ(std::to_string(parameter_count(forward_program(spec()))), counted);
}

void expect_logits_and_gradients(Device& device, RunSpec spec, const Expected& expected) {
  spec.mode = Mode::kForwardBackward;
  Store store(device);
  const auto executor =
      make_executor(spec.executor, store, program_of(spec, Mode::kForwardBackward, device));
  load_parameters(store, expected.weights);
  set_batch(*executor, expected.file);
  executor->run();
  const std::vector<double> logits = to_doubles(expected.file.read("logits"));
  const std::vector<double> got = to_doubles(executor->output("logits"));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(got[i], logits[i], 2e-5 * largest(logits)) << i;
  }
  std::map<std::string, std::vector<double>> gradients;
  double largest_norm = 0.0;
  for (const std::string& name : store.names(LeafKind::kParameter)) {
    gradients[name] = to_doubles(expected.gradients.read(name));
    largest_norm = std::max(largest_norm, norm_of(gradients[name]));
  }
  // A bias of keys that are not rotated adds the same to all scores of a row: its gradient is zero
  // but for rounding, which is small beside the other gradients alone.
  for (const auto& [name, wanted] : gradients) {
    EXPECT_LE(distance(to_doubles(executor->output(gradient_name(name))), wanted),
              1e-5 * norm_of(wanted) + 1e-8 * largest_norm)
        << name;
  }
}

TEST_P(FamilyTest, LogitsAndEveryGradientAreThoseOfTransformers) {
  const Expected expected = this->expected();
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (AttentionForm form : kAll<AttentionForm>) {
      for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
        SCOPED_TRACE(fmt::format("{} {} {}", backend.name, name_of(form), name_of(executor)));
        RunSpec run = spec();
        run.attention = form;
        run.executor = executor;
        const auto device = backend.make({.guarded = true});
        expect_logits_and_gradients(*device, run, expected);
      }
    }
    SCOPED_TRACE(fmt::format("{} primitive ops", backend.name));
    RunSpec run = spec();
    run.ops = Granularity::kPrimitive;
    const auto device = backend.make({});
    expect_logits_and_gradients(*device, run, expected);
  }
}

// Columns [from, from + n) of a matrix of whole numbers.
HostTensor columns(const HostTensor& x, std::int64_t from, std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t row = 0; row < x.shape[0]; ++row) {
    const auto all =
        x.as<std::int64_t>().subspan(static_cast<std::size_t>(row * x.shape[1] + from));
    out.insert(out.end(), all.begin(), all.begin() + n);
  }
  return HostTensor::of<std::int64_t>(DType::kI64, {x.shape[0], n}, std::span(std::as_const(out)));
}

// With a key-value cache, by some tokens at a time; what comes behind each part.
void expect_decoded(Device& device, const RunSpec& spec, const Expected& expected) {
  Store store(device);
  const HostTensor tokens = expected.file.read("tokens");
  const std::vector<double> logits = to_doubles(expected.file.read("logits"));
  const auto vocab = static_cast<std::size_t>(spec.model.vocab);
  std::vector<std::int64_t> positions(12);
  std::iota(positions.begin(), positions.end(), 0);
  std::int64_t done = 0;
  for (const std::int64_t n : {4, 1, 5, 2}) {
    const RunSpec passes{.mode = Mode::kInference, .ops = spec.ops};
    const auto decode =
        make_executor(spec.executor, store, program_for(decode_program(spec, n), passes, device));
    load_parameters(store, expected.weights);
    decode->set_input("tokens", columns(tokens, done, n));
    const auto at = std::span(std::as_const(positions)).subspan(static_cast<std::size_t>(done));
    decode->set_input("position", HostTensor::of<std::int64_t>(DType::kI64, {}, at.first(1)));
    if (n > 1) {
      decode->set_input("positions", HostTensor::of<std::int64_t>(
                                         DType::kI64, {n}, at.first(static_cast<std::size_t>(n))));
    }
    decode->run();
    done += n;
    const std::vector<double> got = to_doubles(decode->output("logits"));
    ASSERT_EQ(got.size(), 2 * vocab);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto row = static_cast<std::size_t>(done - 1) + i / vocab * 12;
      EXPECT_NEAR(got[i], logits[row * vocab + i % vocab], 2e-5 * largest(logits)) << done;
    }
  }
}

TEST_P(FamilyTest, DecodingInPartsHasTheLogitsOfTransformers) {
  const Expected expected = this->expected();
  for (const testing::Backend& backend : testing::backends_under_test()) {
    SCOPED_TRACE(backend.name);
    expect_decoded(*backend.make({.guarded = true}), spec(), expected);
  }
}

void expect_ten_steps(Device& device, RunSpec spec, const Expected& expected) {
  spec.mode = Mode::kStep;
  Store store(device);
  const auto executor = make_executor(spec.executor, store, step_program(spec, device));
  load_parameters(store, expected.weights);
  set_batch(*executor, expected.file);
  const Json losses = Json::parse(expected.file.metadata().at("losses"), "losses");
  for (int step = 0; step < 10; ++step) {
    executor->set_scalar("lr", 1e-3);
    executor->set_scalar("step_size", step_size(1e-3, 0.9, 0.95, step + 1));
    executor->run();
    EXPECT_NEAR(executor->scalar("loss"),
                losses.items()[static_cast<std::size_t>(step)].as_double(), 3e-5)
        << step;
  }
}

TEST_P(FamilyTest, TenStepsHaveTheLossesOfTransformers) {
  const Expected expected = this->expected();
  for (const testing::Backend& backend : testing::backends_under_test()) {
    SCOPED_TRACE(backend.name);
    RunSpec run = spec();
    expect_ten_steps(*backend.make({}), run, expected);
    run.attention = AttentionForm::kFlash;
    run.executor = ExecutorKind::kCompiled;
    expect_ten_steps(*backend.make({}), run, expected);
  }
}

TEST(FamilyFixturesTest, AreListedAndOfEveryFamily) {
  std::set<std::string> stored, types;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::family_fixture("", "").parent_path())) {
    if (entry.path().extension() != ".json") continue;
    stored.insert(entry.path().stem().string());
    const std::string where = entry.path().string();
    const Json file = Json::parse(read_text_file(entry.path(), where, 1 << 20), where);
    const Json* text = file.find("text_config");
    types.insert((text != nullptr ? *text : file).at("model_type").as_string());
  }
  EXPECT_THAT(testing::kFamilyFixtures, ::testing::UnorderedElementsAreArray(stored));
  EXPECT_THAT(known_families(), ::testing::UnorderedElementsAreArray(types));
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, ::testing::ValuesIn(testing::kFamilyFixtures),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tracestep
