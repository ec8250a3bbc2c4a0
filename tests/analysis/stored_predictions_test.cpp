// Compares predicted bytes with stored ones: a build without a GPU predicts to the byte what a step
// takes on one. Peaks alone would not do, as few nodes with workspace are at the peak.
#include <gtest/gtest.h>

#include <ostream>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "ops/functions.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr int kThreads = 16;

struct Step {
  const char* model;
  Mode mode;
  Granularity ops;
  AttentionForm attention;
  const char* precision;
};

struct Bytes {
  std::int64_t peak, workspaces;  // `workspaces`: of all nodes, added up
  bool operator==(const Bytes&) const = default;
  friend void PrintTo(const Bytes& b, std::ostream* out) {
    *out << "{" << b.peak << ", " << b.workspaces << "}";
  }
};

struct Stored {
  Step step;
  Bytes cuda, cpu;
  friend void PrintTo(const Stored& s, std::ostream* out) {
    *out << s.step.model << " " << name_of(s.step.mode) << " " << name_of(s.step.ops) << " "
         << name_of(s.step.attention) << " " << s.step.precision;
  }
};

constexpr Mode kStep = Mode::kStep, kForward = Mode::kForward;
constexpr Mode kBackward = Mode::kForwardBackward, kInference = Mode::kInference;
constexpr Granularity kPrimitive = Granularity::kPrimitive, kFused = Granularity::kFused;
constexpr AttentionForm kNaive = AttentionForm::kNaive, kFlash = AttentionForm::kFlash;

// A batch of 4 with 512 tokens each.
constexpr Stored kStored[] = {
    {{"small", kStep, kFused, kNaive, "fp32"}, {3822871564, 10992081508}, {3796395020, 1870370960}},
    {{"small", kStep, kFused, kFlash, "fp32"}, {3220071436, 9109400164}, {3193594892, 1589541776}},
    {{"small", kStep, kPrimitive, kNaive, "fp32"},
     {5201454088, 11005901412},
     {5201454088, 1889843344}},
    {{"small", kForward, kFused, kNaive, "bf16"},
     {2625481728, 3657441280},
     {2625481728, 901980160}},
    {{"small", kInference, kFused, kFlash, "bf16"},
     {607538176, 2852129792},
     {582962176, 597598208}},
    {{"medium", kBackward, kFused, kFlash, "bf16"},
     {4872286212, 17271272036},
     {4872286212, 4906393744}},
    {{"medium", kStep, kPrimitive, kFlash, "fp16"},
     {9515061272, 17259570668},
     {9515061272, 5029381264}},
    {{"large", kStep, kFused, kNaive, "bf16"},
     {22367558668, 32811375204},
     {22367558668, 11600967824}},
    {{"xl", kStep, kFused, kFlash, "bf16"}, {35016913676, 34731555428}, {35016913676, 13125227664}},
    {{"xl", kInference, kPrimitive, kNaive, "fp32"},
     {8184191236, 14608121856},
     {8163744004, 2626776064}},
    {{"2.7B", kStep, kFused, kFlash, "fp32"},
     {54658277388, 27551193700},
     {54632587276, 4638955664}},
    {{"10B", kStep, kFused, kFlash, "bf16"},
     {205363075696, 37726687332},
     {205363058844, 18724318736}},
};

class StoredPredictionTest : public ::testing::TestWithParam<Stored> {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_P(StoredPredictionTest, IsWhatItWas) {
  const auto& [step, cuda, cpu] = GetParam();
  RunSpec spec;
  spec.model = preset(step.model);
  spec.precision = parse_precision("test", step.precision);
  spec.shape = {.batch = 4, .context = 512};
  spec.mode = step.mode;
  spec.ops = step.ops;
  spec.attention = step.attention;
  const Program program = step_program(spec);
  const BufferPlan buffer_plan = plan_buffers(program);
  const auto predicted = [&](DeviceKind kind) {
    const DeviceTraits traits{.kind = kind, .threads = kThreads};
    Bytes out{predicted_peak_bytes(program, buffer_plan, traits), 0};
    for (const Node& node : program.nodes) out.workspaces += workspace_bytes(program, node, traits);
    return out;
  };
  EXPECT_EQ(predicted(DeviceKind::kCuda), cuda);
  EXPECT_EQ(predicted(DeviceKind::kCpu), cpu);
}

INSTANTIATE_TEST_SUITE_P(Presets, StoredPredictionTest, ::testing::ValuesIn(kStored));

}  // namespace
}  // namespace tracestep
