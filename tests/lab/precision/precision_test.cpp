#include "lab/precision/tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends/reference/reference_device.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

std::size_t column_of(const Table& table, std::string_view name) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == name) return i;
  }
  ADD_FAILURE() << "no column " << name;
  return 0;
}

// The first row whose cells are these, column by column.
const std::vector<Json>* row_with(const Table& table,
                                  const std::vector<std::pair<std::string, Json>>& cells) {
  for (const auto& row : table.rows) {
    bool fits = true;
    for (const auto& [name, value] : cells) fits = fits && row[column_of(table, name)] == value;
    if (fits) return &row;
  }
  return nullptr;
}

Json cell(const Table& table, const std::vector<std::pair<std::string, Json>>& cells,
          std::string_view column) {
  const std::vector<Json>* row = row_with(table, cells);
  if (row == nullptr) {
    ADD_FAILURE() << "no such row in " << table.name;
    return {};
  }
  return (*row)[column_of(table, column)];
}

// Results of these loops in NumPy, every digit; bfloat16 by rounding the bits of a float32.
struct Known {
  const char* name;
  double value;
  std::int64_t stall;  // the number of additions when none
};
constexpr Known kKnown[] = {{"1: f32 + f32", 10.000133514404297, 1000},
                            {"2: f16 + f16", 9.953125, 1000},
                            {"3: f32 + f16", 10.00213623046875, 1000},
                            {"4: f32 + f16, cast first", 10.00213623046875, 1000},
                            {"5: bf16 + bf16", 4.0, 350},
                            {"6: f32 + bf16", 10.009765625, 1000},
                            {"7: longer, f32 + f32", 10.000411033630371, 10000},
                            {"7: longer, f16 + f16", 4.0, 3070},
                            {"7: longer, bf16 + bf16", 0.5, 383}};

TEST(AccumulationTest, EverySumHasTheKnownBitsAndStallsWhereItMust) {
  const std::vector<Accumulation> experiments = accumulations();
  ASSERT_EQ(experiments.size(), std::size(kKnown));
  for (std::size_t i = 0; i < experiments.size(); ++i) {
    const Accumulated a = accumulate(experiments[i]);
    EXPECT_EQ(experiments[i].name, kKnown[i].name);
    EXPECT_EQ(a.value, kKnown[i].value) << kKnown[i].name;
    EXPECT_EQ(a.stall, kKnown[i].stall) << kKnown[i].name;
  }
}

class PrecisionDeviceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, PrecisionDeviceTest,
                         ::testing::ValuesIn(testing::backend_names()));

TEST_P(PrecisionDeviceTest, TheDevicesKernelsAddToTheSameBits) {
  const auto device = testing::backend_named(GetParam()).make({});
  for (std::size_t i = 0; i < std::size(kKnown); ++i) {
    Accumulation e = accumulations()[i];
    if (e.count > 1000 && e.sum_dtype == DType::kF32) e.count = 1000;  // the others stall early
    const std::optional<double> value = accumulate_on(*device, e);
    ASSERT_TRUE(value);
    EXPECT_EQ(*value, accumulate(e).value) << e.name;
  }
}

TEST_P(PrecisionDeviceTest, NarrowerFormatsAreFurtherFromFloat64) {
  RunSpec step;
  step.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 3, .heads = 2};
  step.shape = {.batch = 2, .context = 16};
  const auto device = [](const RunSpec&) { return testing::backend_named(GetParam()).make({}); };
  int references = 0;
  StepErrors errors(
      [&](const RunSpec&) {
        ++references;
        return make_reference_device({});
      },
      {.layers = 2, .tokens = 8});
  const auto error = [&](const char* precision) {
    step.precision = parse_precision("test", precision);
    return errors.of(device, step).value();
  };
  const StepError full = error("fp32"), half = error("fp16"), brain = error("bf16");
  EXPECT_EQ(full.layers, 2);
  EXPECT_LT(full.logits, 1e-5);
  EXPECT_LT(full.gradients, 1e-5);
  EXPECT_GT(half.logits, 5 * full.logits);
  // Three bits fewer are a factor of eight; half of it leaves room for luck.
  EXPECT_GT(brain.logits, 4 * half.logits);
  EXPECT_GT(brain.gradients, 2 * half.gradients);
  EXPECT_LT(brain.logits, 0.05);
  EXPECT_EQ(references, 1) << "the exact step does not depend on the precision";
  step.model.d_ff = 64;
  error("fp32");
  EXPECT_EQ(references, 2);
}

TEST(PrecisionStepsTest, AStepBesideTheOneInFloat32HasAWord) {
  const auto step = [](const char* precision, double ms) {
    PrecisionCell out;
    out.result.status = Status::kOk;
    out.result.spec.step.model = preset("small");
    out.result.spec.step.precision = parse_precision("test", precision);
    for (int i = 0; i < 8; ++i) out.result.samples_ms.push_back(ms * (1 + 0.0005 * i));
    return out;
  };
  const std::vector<PrecisionCell> cells{step("fp32", 100), step("bf16", 50), step("tf32", 99),
                                         step("fp16", 100)};
  const Table table = precision_step_table(cells);
  EXPECT_TRUE(cell(table, {{"precision", "fp32"}}, "is").is_null());
  for (const auto& [precision, is] :
       {std::pair{"bf16", "faster"}, {"tf32", "slightly faster"}, {"fp16", "same"}}) {
    EXPECT_EQ(cell(table, {{"precision", precision}}, "is").as_string(), is) << precision;
  }
}

// Both visits together take half a second, or they do not.
TEST(PrecisionStepsTest, ARowHasTheEnergyOfItsVisits) {
  const auto step = [](const char* precision, double ms, bool counts) {
    PrecisionCell out;
    out.result.status = Status::kOk;
    out.result.spec.step.precision = parse_precision("test", precision);
    out.result.samples_ms = {ms, ms, ms, ms, ms, ms};
    if (counts) {
      out.result.facts_before.energy_j = 1000;
      out.result.facts_after.energy_j = 1240;
    }
    return out;
  };
  const std::vector<PrecisionCell> on_gpu{step("fp32", 100, true), step("bf16", 50, true)};
  const Table table = precision_step_table(on_gpu);
  EXPECT_EQ(cell(table, {{"precision", "fp32"}}, "energy_j").as_double(), 40);
  EXPECT_TRUE(cell(table, {{"precision", "bf16"}}, "energy_j").is_null());
  const auto is_shown = [](const Table& t) {
    return !std::ranges::find(t.columns, "energy_j", &Column::name)->data_only;
  };
  EXPECT_TRUE(is_shown(table));
  EXPECT_FALSE(is_shown(precision_step_table(std::vector{step("fp32", 100, false)})));
}

TEST(FormatTableTest, TheFormatsAreTheStandardOnes) {
  const Table t = format_table();
  const auto of = [&](const char* format, const char* column) {
    return cell(t, {{"format", format}}, column);
  };
  struct Bits {
    const char* name;
    int bits, exponent, mantissa;
  };
  for (const Bits& b : {Bits{"f64", 64, 11, 52}, Bits{"f32", 32, 8, 23}, Bits{"bf16", 16, 8, 7},
                        Bits{"f16", 16, 5, 10}, Bits{"tf32 (in products)", 19, 8, 10}}) {
    EXPECT_EQ(of(b.name, "bits").as_int(), b.bits) << b.name;
    EXPECT_EQ(of(b.name, "exponent_bits").as_int(), b.exponent) << b.name;
    EXPECT_EQ(of(b.name, "mantissa_bits").as_int(), b.mantissa) << b.name;
    EXPECT_EQ(of(b.name, "spacing_at_one").as_double(), std::ldexp(1.0, -b.mantissa)) << b.name;
  }
  EXPECT_EQ(of("f16", "max").as_double(), 65504);
  EXPECT_EQ(of("f16", "min_normal").as_double(), 0x1p-14);
  EXPECT_EQ(of("f16", "min_subnormal").as_double(), 0x1p-24);
  EXPECT_EQ(of("bf16", "max").as_double(), 0x1.fep127);
  EXPECT_EQ(of("bf16", "min_normal").as_double(), 0x1p-126);
  EXPECT_EQ(of("bf16", "min_subnormal").as_double(), 0x1p-133);
  EXPECT_EQ(of("tf32 (in products)", "max").as_double(), 0x1.ffcp127);
  // 255.875² = 65471.0156 rounds to 65472; 256² is beyond 65504.
  EXPECT_EQ(of("f16", "largest_square").as_double(), 255.875);
  EXPECT_FALSE(of("f16", "epsilon_is_normal").as_bool());  // 1e-5 < 2^-14
  EXPECT_TRUE(of("bf16", "epsilon_is_normal").as_bool());
}

TEST(AutocastTableTest, TheSmallModelHasTheKnownDtypes) {
  const Table t = autocast_table();
  for (const char* low : {"f16", "bf16"}) {
    const auto dtype = [&](const char* value) {
      return cell(t, {{"autocast", low}, {"value", value}}, "dtype").as_string();
    };
    EXPECT_EQ(dtype("parameter fc1.weight"), "f32");
    EXPECT_EQ(dtype("fc1"), low);
    EXPECT_EQ(dtype("relu"), low);
    EXPECT_EQ(dtype("ln"), "f32");
    EXPECT_EQ(dtype("logits"), low);
    EXPECT_EQ(dtype("loss"), "f32");
    EXPECT_EQ(dtype("gradient fc1.weight"), "f32");
    EXPECT_EQ(dtype("gradient ln.weight"), "f32");
    EXPECT_EQ(cell(t, {{"autocast", low}, {"value", "fc1"}}, "class").as_string(), "low");
    EXPECT_EQ(cell(t, {{"autocast", low}, {"value", "loss"}}, "class").as_string(), "full");
    // Layer norm is on the list as one op; ReLU is on none.
    EXPECT_EQ(cell(t, {{"autocast", low}, {"value", "ln"}}, "op").as_string(), "layer_norm");
    EXPECT_EQ(cell(t, {{"autocast", low}, {"value", "ln"}}, "class").as_string(), "full");
    EXPECT_EQ(cell(t, {{"autocast", low}, {"value", "relu"}}, "class").as_string(), "keep");
  }
}

TEST(AutocastTableTest, EveryOpStandsInExactlyOneClass) {
  ops::register_all();
  const Table t = precision_class_table();
  std::int64_t count = 0;
  for (const auto& row : t.rows) count += row[column_of(t, "count")].as_int();
  EXPECT_EQ(count, static_cast<std::int64_t>(all_ops().size()));
  const std::string promoted = cell(t, {{"class", "promote"}}, "ops").as_string() + " ";
  EXPECT_NE(promoted.find("add "), std::string::npos);
  for (const char* alone : {"relu ", "gelu ", "silu "}) {
    EXPECT_EQ(promoted.find(alone), std::string::npos) << alone;
  }
}

TEST(NormTableTest, SquaresFailInFloat16AndSumsInBfloat16) {
  const Table t = norm_table();
  const auto row = [&](const char* format, double scale, const char* step, const char* column) {
    return cell(t,
                {{"norm", "RMS norm"}, {"format", format}, {"input_scale", scale}, {"step", step}},
                column);
  };
  // In float32 nothing is lost, whatever the inputs.
  for (const char* format : {"f16", "bf16"}) {
    for (double scale : {1.0, 1000.0, 1e-3}) {
      EXPECT_EQ(row(format, scale, "none", "lost_percent").as_double(), 0);
      EXPECT_LT(row(format, scale, "none", "error").as_double(), 1e-6);
    }
  }
  // 1000² is beyond 65504.
  EXPECT_EQ(row("f16", 1000.0, "squares", "lost_percent").as_double(), 100);
  // 1e-6 + 1e-5 is subnormal in float16, with a spacing of 2^-24 at 1.1e-5: seven bits are left.
  EXPECT_GT(row("f16", 1e-3, "mean square + 1e-5", "roundings").as_double(),
            4 * row("f16", 1.0, "mean square + 1e-5", "roundings").as_double());
  EXPECT_EQ(row("bf16", 1000.0, "squares", "lost_percent").as_double(), 0);
  // From 512 on the spacing of bfloat16 is 4: squares below 2 are no longer added. Three bits more
  // make that a sixteenth.
  EXPECT_GT(row("bf16", 1.0, "sum of squares", "error").as_double(), 0.05);
  EXPECT_LT(row("f16", 1.0, "sum of squares", "error").as_double(), 0.02);
  EXPECT_LT(row("bf16", 1.0, "1/sqrt", "roundings").as_double(), 4);
}

TEST(PrecisionComponentTest, EachComponentStandsBesideItsTwinInFloat32) {
  ops::register_all();
  const DeviceFactory make = [](const RunSpec&) { return testing::backend_named("cpu").make({}); };
  std::vector<PrecisionCell> cells;
  for (const char* precision : {"fp32", "bf16"}) {
    CellSpec spec;
    spec.step = {.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2},
                 .shape = {.batch = 2, .context = 16},
                 .mode = Mode::kForwardBackward,
                 .precision = parse_precision("test", precision)};
    spec.protocol = {.warmup = 1, .steps = 1, .recorded_steps = 1};
    cells.push_back({measure_cell(make, spec), {}});
  }
  const Table table = precision_component_table(cells);
  for (const char* component : {"attn.scores", "attn.softmax", "ffn.w1"}) {
    const std::vector<std::pair<std::string, Json>> row = {{"precision", "bf16"},
                                                           {"component", component}};
    for (const char* phase : {"forward", "backward"}) {
      const std::string name = phase;
      const double own = cell(table, row, name + "_ms").as_double(),
                   base = cell(table, row, "fp32_" + name + "_ms").as_double();
      EXPECT_GT(own, 0);
      EXPECT_DOUBLE_EQ(cell(table, row, name + "_ratio").as_double(), base / own);
    }
  }
  EXPECT_EQ(row_with(table, {{"precision", "fp32"}}), nullptr);
  cells.erase(cells.begin());
  EXPECT_TRUE(precision_component_table(cells).rows.empty());
}

}  // namespace
}  // namespace tracestep
