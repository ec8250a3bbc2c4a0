#include "codegen/bodies.h"

#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep::testing {

const std::map<std::string, std::string>& fused_bodies() {
  static const std::map<std::string, std::string> all{
      {"residual_norm", R"(program "body" {
        input %h : bf16[2,3,8]
        input %x : f32[2,3,8]
        input %w : f32[8]
        %0 : f32[2,3,8] = cast(%h) {dtype=f32}
        %1 : f32[2,3,8] = add(%x, %0)
        %2, %3 : f32[2,3,8], f32[2,3] = rms_norm(%1, %w)
        %4 : f32[6,8] = reshape(%2) {shape=[6,8]}
        %5 : bf16[6,8] = cast(%4) {dtype=bf16}
        output "residual" = %1
        output "rstd" = %3
        output "normed" = %5
      })"},
      {"residual_layer_norm", R"(program "body" {
        input %h : bf16[2,3,8]
        input %x : f32[2,3,8]
        input %w : f32[8]
        input %b : f32[8]
        %0 : f32[2,3,8] = cast(%h) {dtype=f32}
        %1 : f32[2,3,8] = add(%x, %0)
        %2, %3, %4 : f32[2,3,8], f32[2,3], f32[2,3] = layer_norm(%1, %w, %b)
        %5 : bf16[2,3,8] = cast(%2) {dtype=bf16}
        output "residual" = %1
        output "mean" = %3
        output "rstd" = %4
        output "normed" = %5
      })"},
      {"rotation_for_a_reader", R"(program "body" {
        input %g : bf16[2,3,4,8]
        input %cos : f32[4,4]
        input %sin : f32[4,4]
        %0 : f32[2,3,4,8] = cast(%g) {dtype=f32}
        %1 : f32[2,3,4,8] = rope(%0, %cos, %sin) {inverse=true}
        %2 : bf16[2,3,4,8] = cast(%1) {dtype=bf16}
        %3 : bf16[2,4,3,8] = permute(%2) {axes=[0,2,1,3]}
        output "y" = %3
      })"},
      {"rotation_of_a_sum", R"(program "body" {
        input %a : bf16[2,3,4,8]
        input %b : bf16[2,3,4,8]
        input %cos : f32[4,4]
        input %sin : f32[4,4]
        %0 : bf16[2,3,4,8] = add(%a, %b)
        %1 : f32[2,3,4,8] = cast(%0) {dtype=f32}
        %2 : f32[2,3,4,8] = rope(%1, %cos, %sin)
        %3 : bf16[2,3,4,8] = cast(%2) {dtype=bf16}
        output "y" = %3
      })"},
      {"part_of_an_assembly", R"(program "body" {
        input %x : bf16[8,16]
        %0 : bf16[8,16] = affine(%x) {scale=2.0}
        output "y" = %0
      })"},
      {"rotation_by_halves", R"(program "body" {
        input %g : bf16[2,3,4,8]
        input %w : f32[8]
        input %cos : f32[4,4]
        input %sin : f32[4,4]
        %0 : f32[2,3,4,8] = cast(%g) {dtype=f32}
        %1, %2 : f32[2,3,4,8], f32[2,3,4] = rms_norm(%0, %w)
        %3 : f32[2,3,4,8] = rope(%1, %cos, %sin) {halves=true}
        %4 : bf16[2,3,4,8] = cast(%3) {dtype=bf16}
        %5 : bf16[2,4,3,8] = permute(%4) {axes=[0,2,1,3]}
        output "y" = %5
      })"},
      {"long_rows", R"(program "body" {
        input %x : f16[3,5000]
        input %w : f16[5000]
        %0, %1 : f16[3,5000], f32[3] = rms_norm(%x, %w)
        %2 : f16[3,5000] = silu(%0)
        output "y" = %2
      })"},
      {"odd_rows", R"(program "body" {
        input %x : f32[5,7]
        input %b : f32[7]
        %0 : f32[5,7] = broadcast(%b) {shape=[5,7]}
        %1 : f32[5,7] = mul(%x, %0)
        %2 : f32[5] = log_sum_exp(%1)
        %3 : f32[5,1] = max(%1) {axes=[1], keepdims=true}
        %4 : f32[5,7] = broadcast(%3) {shape=[5,7]}
        %5 : f32[5,7] = sub(%1, %4)
        output "shifted" = %5
        output "lse" = %2
      })"},
      {"softmax_gradient", R"(program "body" {
        input %dy : bf16[4,16,16]
        input %y : f32[4,16,16]
        %0 : f32[4,16,16] = cast(%dy) {dtype=f32}
        %1 : f32[4,16,16] = softmax_grad(%0, %y) {scale=0.25}
        %2 : bf16[4,16,16] = cast(%1) {dtype=bf16}
        output "dx" = %2
      })"},
      {"norm_gradient", R"(program "body" {
        input %dy : bf16[2,6,264]
        input %x : f32[2,6,264]
        input %rstd : f32[2,6]
        input %w : f32[264]
        %0 : f32[2,6,264] = cast(%dy) {dtype=f32}
        %1 : f32[2,6,1] = reshape(%rstd) {shape=[2,6,1]}
        %2 : f32[2,6,264] = broadcast(%1) {shape=[2,6,264]}
        %3 : f32[2,6,264] = mul(%x, %2)
        %4 : f32[2,6,264] = mul(%0, %3)
        %5 : f32[4,3,264] = reshape(%4) {shape=[4,3,264]}
        %6 : f32[4,264] = sum(%5) {axes=[1]}
        %7 : f32[2,6,264] = broadcast(%w) {shape=[2,6,264]}
        %8 : f32[2,6,264] = mul(%4, %7)
        %9 : f32[2,6,1] = sum(%8) {axes=[2], keepdims=true}
        %10 : f32[2,6,264] = broadcast(%9) {shape=[2,6,264]}
        %11 : f32[2,6,264] = sub(%0, %10)
        %12 : bf16[2,6,264] = cast(%11) {dtype=bf16}
        output "columns" = %6
        output "dx" = %12
      })"},
      {"norm_and_bias_gradient", R"(program "body" {
        input %dy : bf16[4,4,264]
        input %x : f32[4,4,264]
        input %w : f32[264]
        %0 : f32[4,4,264] = cast(%dy) {dtype=f32}
        %1 : f32[4,4,264] = mul(%0, %x)
        %2 : f32[2,8,264] = reshape(%1) {shape=[2,8,264]}
        %3 : f32[2,264] = sum(%2) {axes=[1]}
        %4 : f32[4,4,264] = broadcast(%w) {shape=[4,4,264]}
        %5 : f32[4,4,264] = mul(%1, %4)
        %6 : f32[4,4,1] = sum(%5) {axes=[2], keepdims=true}
        %7 : f32[4,4,264] = broadcast(%6) {shape=[4,4,264]}
        %8 : f32[4,4,264] = sub(%0, %7)
        %9 : bf16[4,4,264] = cast(%8) {dtype=bf16}
        %10 : bf16[2,8,264] = reshape(%9) {shape=[2,8,264]}
        %11 : f32[2,264] = sum(%10) {axes=[1], wide=true}
        output "dw" = %3
        output "db" = %11
        output "dx" = %9
      })"},
      {"bias_gradient", R"(program "body" {
        input %dy : bf16[16,2080]
        input %x : f32[16,2080]
        %0 : f32[16,2080] = cast(%dy) {dtype=f32}
        %1 : f32[16,2080] = gelu_grad(%0, %x)
        %2 : bf16[16,2080] = cast(%1) {dtype=bf16}
        %3 : bf16[2,8,2080] = reshape(%2) {shape=[2,8,2080]}
        %4 : f32[2,2080] = sum(%3) {axes=[1], wide=true}
        output "db" = %4
        output "dx" = %2
      })"},
      {"every_elementwise_op", R"(program "body" {
        input %a : bf16[3,4]
        input %b : bf16[3,4]
        input %s : f32[]
        %0 : bf16[3,4] = neg(%a)
        %1 : bf16[3,4] = abs(%0)
        %2 : bf16[3,4] = square(%1)
        %3 : bf16[3,4] = reciprocal(%b)
        %4 : bf16[3,4] = exp(%3)
        %5 : bf16[3,4] = log(%2)
        %6 : bf16[3,4] = sqrt(%2)
        %7 : bf16[3,4] = rsqrt(%2)
        %8 : bf16[3,4] = sigmoid(%4)
        %9 : bf16[3,4] = relu(%5)
        %10 : bf16[3,4] = silu(%6)
        %11 : bf16[3,4] = add(%7, %8)
        %12 : bf16[3,4] = sub(%9, %10)
        %13 : bf16[3,4] = div(%11, %12)
        %14 : bf16[3,4] = maximum(%13, %a)
        %15 : bf16[3,4] = minimum(%14, %b)
        %16 : bf16[3,4] = silu_grad(%15, %a)
        %17 : bf16[3,4] = swiglu(%16, %b)
        %18, %19 : bf16[3,4], bf16[3,4] = swiglu_grad(%17, %a, %b)
        %20 : bool[3,4] = lt(%18, %19)
        %21 : bool[3,4] = le(%18, %19)
        %22 : bf16[3,4] = select(%20, %18, %19)
        %23 : f32[3,4] = cast(%21) {dtype=f32}
        %24 : f32[3,4] = cast(%22) {dtype=f32}
        %25 : f32[3,4] = broadcast(%s) {shape=[3,4]}
        %26 : f32[3,4] = mul(%24, %25)
        %27 : f32[3,4] = add(%26, %23)
        %28 : f32[3,4] = affine(%27) {scale=0.5, shift=-1.0}
        %29 : bool[3,4] = eq(%28, %27)
        %30 : f32[] = fill() {dtype=f32, shape=[], value=2.0}
        %31 : f32[3,4] = broadcast(%30) {shape=[3,4]}
        %32 : f32[3,4] = div(%28, %31)
        output "y" = %32
        output "same" = %29
      })"},
  };
  return all;
}

FusedText kernel_of(const std::string& text, int alignment) {
  ops::register_all();
  const Program body = parse_program(text);
  const auto walk = find_walk(body);
  TRACESTEP_CHECK(walk.has_value(), "no walk");
  std::vector<FusedOperand> leaves, outputs;
  for (ValueId id : body.leaves) {
    leaves.push_back({contiguous_strides(body.type(id).shape), alignment});
  }
  for (const Output& o : body.outputs) {
    outputs.push_back({contiguous_strides(body.type(o.value).shape), alignment});
  }
  return write_fused_kernel(*walk, leaves, outputs);
}

}  // namespace tracestep::testing
