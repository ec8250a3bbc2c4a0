// Tests pass `assemble_slices`: what it joins and what it leaves.
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

// Gradients of two slices of 2 and 3 columns, which `what` adds up.
Program after(const std::string& what) {
  ops::register_all();
  const Program out = assemble_slices(parse_program(R"(program "p" {
  input %a : f32[4,2]
  input %b : f32[4,3]
  input %c : f32[4,5]
  %0 : f32[4,2] = neg(%a) @ a backward
  %1 : f32[4,3] = neg(%b) @ b backward
  %2 : f32[4,5] = pad_slice(%0) {axis=1, start=0, size=5} @ a backward
  %3 : f32[4,5] = pad_slice(%1) {axis=1, start=2, size=5} @ b backward
)" + what + "\n}"));
  verify(out);
  verify(materialize(out), VerifyStage::kMaterialized);
  return out;
}

TEST(AssembleSlicesTest, PartsThatCoverATensorAreWrittenSideBySide) {
  const Program out = after(R"(  %4 : f32[4,5] = add(%3, %c) @ s backward
  %5 : f32[4,5] = add(%4, %2) @ s backward
  output "y" = %5)");
  EXPECT_EQ(print(out, {.origins = false}), R"(program "p" {
  input %a : f32[4,2]
  input %b : f32[4,3]
  input %c : f32[4,5]
  %0 : f32[4,2] = neg(%a)
  %1 : f32[4,3] = neg(%b)
  %2 : f32[4,5] = assemble(%0, %1) {axis=1}
  %3 : f32[4,5] = add(%2, %c)
  output "y" = %3
}
)");
}

TEST(AssembleSlicesTest, OtherSumsStay) {
  const auto stays = [](const std::string& what) {
    const std::string text = print(after(what), {.origins = false});
    EXPECT_NE(text.find("pad_slice"), text.npos) << text;
    EXPECT_EQ(text.find("assemble"), text.npos) << text;
  };
  stays("  %4 : f32[4,5] = add(%2, %c) @ s backward\n  output \"y\" = %4\n  output \"z\" = %3");
  stays("  %4 : f32[4,5] = add(%2, %3) @ s backward\n  output \"y\" = %4\n  output \"z\" = %3");
  stays("  %4 : f32[4,5] = add(%2, %3) @ s backward\n  output \"y\" = %4\n  output \"z\" = %0");
  stays("  %4 : f32[4,5] = mul(%2, %3) @ s backward\n  output \"y\" = %4");
  stays(R"(  %4 : f32[4,5] = pad_slice(%0) {axis=1, start=1, size=5} @ a backward
  %5 : f32[4,5] = add(%4, %3) @ s backward
  output "y" = %5)");
}

}  // namespace
}  // namespace tracestep
