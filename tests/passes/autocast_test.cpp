// Autocast as text, and on whole models: what runs in which dtype, and which bytes that makes.
#include "passes/form_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "analysis/buffer_plan.h"
#include "ir/op_def.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/pipeline.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

ModelConfig tiny_model() {
  return {.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
}
constexpr std::int64_t kWeightsInProducts = 2 * (4 * 24 * 24 + 3 * 24 * 28) + 19 * 24;

Program model_program(DType low, Mode mode, Granularity ops, const std::string& stop_after = "") {
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = mode;
  run.ops = ops;
  run.precision.autocast = low;
  context.stop_after = stop_after;
  const BatchShape shape{.batch = 2, .context = 5};
  return run_pipeline(loss_program(tiny_model(), shape), run, context).program;
}

class AutocastTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string text(const Program& program) {
    verify(program);
    return print(program, {.origins = false});
  }
};

TEST_F(AutocastTest, ACastOfAWeightIsReportedWhereTheModelMultipliesIt) {
  const Program program =
      model_program(DType::kBF16, Mode::kForward, Granularity::kFused, "autocast");
  int casts = 0;
  for (const Node& node : program.nodes) {
    if (program.value(node.outputs[0]).role != Role::kWeightCast) continue;
    ++casts;
    EXPECT_EQ(node.origin().file, "src/nn/transformer.cpp") << node.origin().path;
    EXPECT_GT(node.origin().line, 0);
    EXPECT_FALSE(node.origin().path.empty());
  }
  EXPECT_EQ(casts, 15);  // seven in each of two layers, and the head
}

// PyTorch has a linear layer as one op, so no float32 sum, and none behind it.
TEST_F(AutocastTest, ABiasIsCastWithItsProductAndAnActivationKeepsTheDtype) {
  const Program out = autograd(autocast(parse_program(R"(program "p" {
    input %x : f32[2,4]
    parameter %up.weight : f32[3,4]
    parameter %up.bias : f32[3]
    %0 : f32[2,3] = matmul_bias(%x, %up.weight, %up.bias) {transpose_b=true} @ up forward
    %1 : f32[2,3] = gelu(%0) @ act forward
    %2 : f32[] = sum(%1) {axes=[0,1]} @ loss forward
    output "loss" = %2
  })"),
                                        DType::kBF16));
  const std::string lines = text(out);
  for (const char* line : {"%2 : bf16[3] !weight_cast = cast(%up.bias) {dtype=bf16}\n",
                           "%3 : bf16[2,3] = matmul_bias(%0, %1, %2) {transpose_b=true}\n",
                           "%4 : bf16[2,3] = gelu(%3)\n", ": bf16[3] = sum("}) {
    EXPECT_THAT(lines, HasSubstr(line));
  }
}

TEST_F(AutocastTest, ProductsRunInTheLowDtypeAndAWeightIsCastOnce) {
  const Program out = autocast(parse_program(R"(program "p" {
    input %x : f32[2,4]
    parameter %mlp.w.weight : f32[4,4]
    %0 : f32[2,4] = matmul(%x, %mlp.w.weight) @ mlp.up forward
    %1 : f32[2,4] = matmul(%0, %mlp.w.weight) @ mlp.down forward
    output "y" = %1
  })"),
                               DType::kBF16);
  EXPECT_EQ(print(out), R"(program "p" {
  input %x : f32[2,4]
  parameter %mlp.w.weight : f32[4,4]
  %0 : bf16[2,4] = cast(%x) {dtype=bf16} @ mlp.up forward by autocast
  %1 : bf16[4,4] !weight_cast = cast(%mlp.w.weight) {dtype=bf16} @ mlp.w forward by autocast
  %2 : bf16[2,4] = matmul(%0, %1) @ mlp.up forward
  %3 : bf16[2,4] = matmul(%2, %1) @ mlp.down forward
  output "y" = %3
}
)");
}

TEST_F(AutocastTest, AClassDecidesWhatItsOperandsAreCastTo) {
  const Program out = autocast(parse_program(R"(program "p" {
    input %x : f32[4,4]
    %0 : f32[4,4] = matmul(%x, %x)
    %1 : f32[4,4] = exp(%0)
    %2 : f32[4,4] = softmax(%1)
    %3 : f32[4,4] = add(%x, %1)
    %4 : f32[4,4] = permute(%1) {axes=[1,0]}
    %5 : f32[8,4] = concat(%x, %4) {axis=0}
    output "full" = %2
    output "promote" = %3
    output "keep" = %5
  })"),
                               DType::kF16);
  EXPECT_EQ(text(out), R"(program "p" {
  input %x : f32[4,4]
  %0 : f16[4,4] = cast(%x) {dtype=f16}
  %1 : f16[4,4] = cast(%x) {dtype=f16}
  %2 : f16[4,4] = matmul(%0, %1)
  %3 : f16[4,4] = exp(%2)
  %4 : f32[4,4] = cast(%3) {dtype=f32}
  %5 : f32[4,4] = softmax(%4)
  %6 : f32[4,4] = cast(%3) {dtype=f32}
  %7 : f32[4,4] = add(%x, %6)
  %8 : f16[4,4] = permute(%3) {axes=[1,0]}
  %9 : f32[4,4] = cast(%8) {dtype=f32}
  %10 : f32[8,4] = concat(%x, %9) {axis=0}
  output "full" = %5
  output "promote" = %7
  output "keep" = %10
}
)");
}

TEST_F(AutocastTest, AViewOfAWeightIsAViewOfItsOneCast) {
  const Program out = autocast(parse_program(R"(program "p" {
    input %x : f32[2,4]
    parameter %w : f32[8,4]
    %0 : f32[4,4] = slice(%w) {axis=0, start=0, stop=4}
    %1 : f32[4,4] = slice(%w) {axis=0, start=4, stop=8}
    %2 : f32[2,4] = matmul(%x, %0)
    %3 : f32[2,4] = matmul(%2, %1)
    output "y" = %3
  })"),
                               DType::kBF16);
  std::int64_t weight_casts = 0;
  for (const Value& v : out.values) weight_casts += v.role == Role::kWeightCast;
  EXPECT_EQ(weight_casts, 1);
  EXPECT_THAT(text(out), HasSubstr("bf16[8,4] !weight_cast = cast(%w)"));
}

TEST_F(AutocastTest, Float64AndIntegersAreLeftAlone) {
  const Program program = parse_program(R"(program "p" {
    input %x : f64[4,4]
    input %i : i64[4]
    %0 : f64[4,4] = matmul(%x, %x)
    %1 : f64[4,4] = gather(%0, %i)
    output "y" = %1
  })");
  EXPECT_TRUE(autocast(program, DType::kBF16) == program);
}

TEST_F(AutocastTest, ALeafKeepsItsTypeWhenALowResultUpdatesIt) {
  const Program out = autocast(parse_program(R"(program "p" {
    state %s : f32[4,4]
    %0 : f32[4,4] = matmul(%s, %s)
    update %s = %0
  })"),
                               DType::kBF16);
  verify(out);
  EXPECT_EQ(out.type(out.updates.at(0).value).dtype, DType::kF32);
}

TEST_F(AutocastTest, GradientsComeBackInFloat32AndReadTheSameCasts) {
  const Program out = autograd(autocast(parse_program(R"(program "p" {
    input %x : f32[2,4]
    parameter %a : f32[4,4]
    parameter %b : f32[4,4]
    %0 : f32[2,4] = matmul(%x, %a) @ first forward
    %1 : f32[2,4] = matmul(%0, %b) @ second forward
    %2 : f32[] = sum(%1) {axes=[0,1]} @ loss forward
    output "loss" = %2
  })"),
                                        DType::kBF16));
  verify(out);
  for (const char* name : {"grad.a", "grad.b"}) {
    EXPECT_EQ(out.type(out.find_output(name)).dtype, DType::kF32) << name;
  }
  std::int64_t weight_casts = 0;
  for (const Node& node : out.nodes) {
    const bool of_weight =
        node.op->name == "cast" && out.value(node.inputs[0]).leaf == LeafKind::kParameter;
    weight_casts += of_weight;
    if (node.op->name != "matmul") continue;
    for (ValueId id : node.inputs) EXPECT_EQ(out.type(id).dtype, DType::kBF16);
  }
  EXPECT_EQ(weight_casts, 2) << "one per weight, backward included";
}

TEST_F(AutocastTest, OpsOfAModelRunInWhatTheirClassesSay) {
  for (DType low : {DType::kBF16, DType::kF16}) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      const Program program = model_program(low, Mode::kStep, ops);
      for (const Node& node : program.nodes) {
        if (node.origin().phase != Phase::kForward) continue;
        for (ValueId id : node.inputs) {
          const DType dtype = program.type(id).dtype;
          if (!is_floating(dtype)) continue;
          if (node.op->precision_class == PrecisionClass::kLow) {
            EXPECT_EQ(dtype, low) << node.op->name << " of " << node.origin().path;
          } else if (node.op->precision_class == PrecisionClass::kFull) {
            EXPECT_EQ(dtype, DType::kF32) << node.op->name << " of " << node.origin().path;
          }
        }
        if (node.origin().path.ends_with("residual")) {
          EXPECT_EQ(program.type(node.outputs[0]).dtype, DType::kF32) << "the residual stream";
        }
      }
      EXPECT_EQ(program.type(program.find_output("loss")).dtype, DType::kF32);
    }
  }
}

TEST_F(AutocastTest, WeightCastsAreTwoBytesPerWeightOfAProductAndACategoryOfTheirOwn) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      const Program program = model_program(DType::kBF16, mode, ops);
      const BufferPlan buffer_plan = plan_buffers(program);
      std::map<Category, std::int64_t> bytes;
      for (const Buffer& b : buffer_plan.buffers) bytes[b.category] += b.bytes;
      EXPECT_EQ(bytes[Category::kWeightCast], 2 * kWeightsInProducts) << name_of(mode);
    }
  }
}

TEST_F(AutocastTest, ForwardCastsOfOneValueAreMergedAndGradientsAreStillAddedInFloat32) {
  const Program program = model_program(DType::kBF16, Mode::kForwardBackward, Granularity::kFused);
  std::map<ValueId, int> casts;
  for (const Node& node : program.nodes) {
    if (node.op->name == "cast" && node.origin().phase == Phase::kForward) {
      EXPECT_EQ(++casts[program.value(node.inputs[0]).layout.base], 1) << node.origin().path;
    }
    const bool is_sum = node.op->name == "add" && node.origin().phase == Phase::kBackward;
    if (is_sum) {
      EXPECT_EQ(program.type(node.outputs[0]).dtype, DType::kF32);
    }
  }
}

TEST_F(AutocastTest, ThePassRunsOnlyWhenALowDtypeIsAsked) {
  RunSpec run{.verify = true};
  run.mode = Mode::kStep;
  const BatchShape shape{.batch = 2, .context = 5};
  const auto result = run_pipeline(loss_program(tiny_model(), shape), run);
  for (const PassReport& report : result.reports) {
    if (report.name == "autocast") {
      EXPECT_FALSE(report.ran);
    }
  }
  for (const Value& v : result.program.values) EXPECT_FALSE(is_low_precision(v.type.dtype));
}

}  // namespace
}  // namespace tracestep
