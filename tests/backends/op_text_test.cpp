// Every op, as the op matrix uses it, printed and read back.
#include <gtest/gtest.h>

#include "backends/op_matrix.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/form_passes.h"

namespace tracestep::testing {
namespace {

bool any(const OpTest&) {
  return true;
}

class OpTextTest : public ::testing::TestWithParam<OpTest> {};

void expect_round_trip(const Program& program) {
  verify(program);
  const std::string text = print(program);
  EXPECT_EQ(print(parse_program(text)), text);
  const PrintOptions with_locations{.locations = true};
  EXPECT_TRUE(parse_program(print(program, with_locations)) == program);
}

TEST_P(OpTextTest, WhatIsPrintedIsReadBack) {
  const OpTest& test = GetParam();
  for (DType dtype : test.dtypes) {
    for (std::size_t i = 0; i < test.cases.size(); ++i) {
      SCOPED_TRACE(describe(test, i, dtype));
      const Program program = build_program(test, test.cases[i], {.dtype = dtype});
      expect_round_trip(program);
      expect_round_trip(decompose(program, [](const OpDef&) { return true; }));
      expect_round_trip(as_float64(program));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpTextTest, ::testing::ValuesIn(records(any)), name_of_record);

}  // namespace
}  // namespace tracestep::testing
