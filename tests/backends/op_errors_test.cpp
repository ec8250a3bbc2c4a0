// Indices outside the table: a mistake in the data, found by the kernels of every back end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/op_matrix.h"
#include "backends/reference/reference_device.h"
#include "ops/functions.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

using ::testing::HasSubstr;

struct BadIndex {
  std::string op;
  std::vector<Shape> floats;  // shapes of the floating operands, in order
  Shape indices;
  std::size_t at;  // which operand the indices are
  std::vector<double> values;
  Attrs attrs;
  std::string index, range;  // as they must stand in the message
};

std::vector<BadIndex> bad_indices() {
  const Attrs rows{{"rows", std::int64_t{7}}}, size{{"size", std::int64_t{7}}},
      columns{{"columns", std::int64_t{7}}};
  return {
      {"gather", {{7, 3}}, {4}, 1, {0, 6, 7, 1}, {}, "7", "[0, 7)"},
      {"gather", {{7, 3}}, {4}, 1, {0, 6, -1, 1}, {}, "-1", "[0, 7)"},
      {"scatter_add", {{4, 3}}, {4}, 1, {0, 6, 9, 1}, rows, "9", "[0, 7)"},
      {"scatter_add_to", {{4, 3}, {7, 3}}, {4}, 1, {0, 6, 9, 1}, {}, "9", "[0, 7)"},
      {"take_along", {{4, 7}}, {4}, 1, {0, 6, 70000, 1}, {}, "70000", "[0, 7)"},
      {"put_along", {{4}}, {4}, 1, {0, 6, 7, 1}, size, "7", "[0, 7)"},
      {"cross_entropy", {{4, 7}}, {4}, 1, {0, 6, 7, 1}, {}, "7", "[0, 7)"},
      {"cross_entropy", {{4, 9}}, {4}, 1, {0, 6, 7, 1}, columns, "7", "[0, 7)"},
      {"write_slice", {{7, 3}, {2, 3}}, {}, 2, {6}, {{"axis", std::int64_t{0}}}, "6", "at most 5"}};
}

Program program_of(const BadIndex& bad, DType dtype) {
  Builder b(bad.op);
  std::vector<Val> operands;
  for (const Shape& shape : bad.floats) {
    operands.push_back(b.input(fmt::format("x{}", operands.size()), {dtype, shape}));
  }
  const auto at = operands.begin() + static_cast<std::ptrdiff_t>(bad.at);
  operands.insert(at, b.input("indices", {DType::kI64, bad.indices}));
  b.output("y", b.call(find_op(bad.op), operands, bad.attrs)[0]);
  return b.finish();
}

std::string message_on(Device& device, const BadIndex& bad, DType dtype) {
  const Program program = program_of(bad, dtype);
  Tensors leaves = random_leaves(program);
  leaves["indices"] = from_doubles(DType::kI64, bad.indices, bad.values);
  try {
    run_program(device, program, leaves);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "nothing was thrown";
}

TEST(OpErrorsTest, AnIndexOutsideTheTableIsNamedOnEveryBackend) {
  ops::register_all();
  const auto expect_named = [](Device& device, DType dtype) {
    for (const BadIndex& bad : bad_indices()) {
      SCOPED_TRACE(bad.op + " on " + device.name());
      const std::string message = message_on(device, bad, dtype);
      EXPECT_THAT(message, HasSubstr(bad.op));
      EXPECT_THAT(message, HasSubstr(bad.index));
      EXPECT_THAT(message, HasSubstr(bad.range));
    }
    EXPECT_EQ(device.allocator().stats().requested_bytes, 0);
  };
  expect_named(*make_reference_device({.guarded = true}), DType::kF64);
  for (const Backend& backend : backends_under_test())
    expect_named(*backend.make({.threads = 2, .guarded = true}), DType::kF32);
}

}  // namespace
}  // namespace tracestep::testing
