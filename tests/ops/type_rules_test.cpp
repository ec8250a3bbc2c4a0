// Messages for operands that do not fit, and the result types of those that do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir/print.h"
#include "ops/functions.h"

namespace tracestep::ops {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kI64 = DType::kI64;

// A builder with one input per call of `x`.
class TypeRulesTest : public ::testing::Test {
 protected:
  void SetUp() override { register_all(); }

  Val x(Shape shape, DType dtype = kF32) {
    return b_.input(fmt::format("x{}", ++inputs_), {dtype, shape});
  }
  Val call(std::string_view op, std::vector<Val> operands, Attrs attrs = {}) {
    return b_.call1(op, std::move(operands), std::move(attrs));
  }

  Builder b_{"types"};
  int inputs_ = 0;
};

// The whole message of the usage error that `f` throws.
std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "nothing was thrown";
}

#define EXPECT_MESSAGE(call, text) EXPECT_EQ(message_of([&] { (void)(call); }), text)

TEST_F(TypeRulesTest, MatmulNamesBothSidesAndGuessesTheTranspose) {
  EXPECT_MESSAGE(matmul(x({8, 1024, 768}), x({512, 768})),
                 "[matmul] inner sizes differ: lhs [8,1024,768], rhs [512,768]; "
                 "did you mean transpose_b?");
  EXPECT_MESSAGE(matmul(x({4, 5}), x({6, 7})), "[matmul] inner sizes differ: lhs [4,5], rhs [6,7]");
  EXPECT_MESSAGE(matmul(x({2, 4, 5}), x({5, 7})),
                 "[matmul] ranks differ: lhs [2,4,5], rhs [5,7]; reshape one of them");
  EXPECT_MESSAGE(matmul(x({2, 4, 5}), x({3, 5, 7})),
                 "[matmul] batch sizes differ: lhs [2,4,5], rhs [3,5,7]");
  EXPECT_MESSAGE(matmul(x({4, 5}), x({5, 7}, DType::kBF16)),
                 "[matmul] dtypes differ: a f32[4,5], b bf16[5,7]; cast one of them");
  EXPECT_MESSAGE(matmul(x({5}), x({5})),
                 "[matmul] a f32[5] has too few dimensions; at least 2 are expected");
}

TEST_F(TypeRulesTest, ABiasIsARowOfTheProduct) {
  EXPECT_EQ(linear(x({2, 7, 3}), x({5, 3}), x({5})).type().str(), "f32[2,7,5]");
  EXPECT_MESSAGE(linear(x({2, 3}), x({5, 3}), x({3})),
                 "[matmul_bias] bias f32[3] has the wrong shape; [5] is expected");
  EXPECT_MESSAGE(matmul_bias(x({2, 3}), x({3, 5}), x({5}, DType::kBF16)),
                 "[matmul_bias] dtypes differ: a f32[2,3], bias bf16[5]; cast one of them");
  EXPECT_MESSAGE(matmul_bias(x({4, 2, 3}), x({4, 3, 5}), x({5})),
                 "[matmul_bias] a is [4,2,3]; a matrix is expected");
}

TEST_F(TypeRulesTest, IntegersAreAddedButNotDivided) {
  EXPECT_EQ(add(x({3}, kI64), x({3}, kI64)).type().str(), "i64[3]");
  EXPECT_MESSAGE(div(x({3}, kI64), x({3}, kI64)),
                 "[div] a i64[3] is not floating point; cast it first");
}

TEST_F(TypeRulesTest, MatmulTypesFollowTheTransposes) {
  EXPECT_EQ(matmul(x({2, 4, 5}), x({2, 5, 7})).type().str(), "f32[2,4,7]");
  EXPECT_EQ(matmul(x({5, 4}), x({7, 5}), {true, true}).type().str(), "f32[4,7]");
}

TEST_F(TypeRulesTest, ElementwiseOperandsMustMatch) {
  EXPECT_MESSAGE(add(x({3}), x({4})), "[add] shapes [3] and [4] do not broadcast");
  EXPECT_MESSAGE(add(x({3}), x({3}, kI64)),
                 "[add] dtypes differ: a f32[3], b i64[3]; cast one of them");
  EXPECT_MESSAGE(call("add", {x({3}), x({1, 3})}),
                 "[add] shapes differ: a f32[3], b f32[1,3]; broadcast one of them");
  EXPECT_MESSAGE(unary("exp", x({3}, kI64)), "[exp] x i64[3] is not floating point; cast it first");
  EXPECT_MESSAGE(select(x({3}), x({3}), x({3})),
                 "[select] the condition is f32[3]; bool is expected");
  EXPECT_EQ(add(x({4, 1, 3}), x({5, 1})).type().str(), "f32[4,5,3]");
  EXPECT_EQ(binary("lt", x({2}), x({2})).type().str(), "bool[2]");
}

TEST_F(TypeRulesTest, MovementSaysWhatDoesNotFit) {
  EXPECT_MESSAGE(reshape(x({2, 3}), {4}), "[reshape] [2,3] has 6 elements, [4] would have 4");
  EXPECT_MESSAGE(permute(x({2, 3}), {0, 0}),
                 "[permute] axes [0,0] do not permute the 2 dimensions of x");
  EXPECT_MESSAGE(slice(x({2, 3}), 1, 2, 5), "[slice] [2, 5) is not inside axis 1 of [2,3]");
  EXPECT_MESSAGE(slice(x({2, 3}), 2, 0, 1),
                 "[slice] axis 2 does not exist in a tensor of 2 dimensions");
  EXPECT_MESSAGE(broadcast_to(x({2, 3}), {2, 4}), "[broadcast] [2,3] does not broadcast to [2,4]");
  EXPECT_MESSAGE(concat({x({2, 3}), x({3, 3})}, 1),
                 "[concat] xs... f32[3,3] has the wrong shape; [2,3] is expected");
  EXPECT_MESSAGE(
      call("pad_slice", {x({4})},
           {{"axis", std::int64_t{0}}, {"start", std::int64_t{2}}, {"size", std::int64_t{5}}}),
      "[pad_slice] [4] at 2 does not fit into 5");
}

TEST_F(TypeRulesTest, ReductionsAndGathersSayWhatDoesNotFit) {
  EXPECT_MESSAGE(sum(x({2, 3}), {1, -1}), "[sum] axis -1 is named twice");
  EXPECT_MESSAGE(gather(x({5, 2}), x({3})),
                 "[gather] indices f32[3] does not hold indices; i64 is expected");
  EXPECT_MESSAGE(take_along(x({5, 2}), x({4}, kI64)),
                 "[take_along] indices i64[4] has the wrong shape; [5] is expected");
  EXPECT_EQ(sum(x({2, 3, 4}), {-1, 0}).type().str(), "f32[3]");
  EXPECT_EQ(max(x({2, 3, 4}), {1}, true).type().str(), "f32[2,1,4]");
  EXPECT_EQ(gather(x({5, 2}), x({3, 7}, kI64)).type().str(), "f32[3,7,2]");
}

TEST_F(TypeRulesTest, CompositesSayWhatDoesNotFit) {
  EXPECT_MESSAGE(rms_norm(x({2, 3}), x({4})),
                 "[rms_norm] w f32[4] has the wrong shape; [3] is expected");
  EXPECT_MESSAGE(rope(x({2, 3}), {x({2, 1}), x({2, 1})}),
                 "[rope] width 3 is odd; pairs are rotated");
  EXPECT_MESSAGE(cross_entropy(x({0, 3}), x({0}, kI64)),
                 "[cross_entropy] logits are f32[0,3]; non-empty [N,V] is expected");
  EXPECT_MESSAGE(call("cross_entropy", {x({4, 8}), x({4}, kI64)}, {{"columns", std::int64_t{9}}}),
                 "[cross_entropy] columns is 9; at most 8 count, and 0 stands for all");
  EXPECT_MESSAGE(call("cross_entropy", {x({4, 8}), x({4}, kI64), x({1})}),
                 "[cross_entropy] count is f32[1]; f32[] is expected");
  EXPECT_MESSAGE(linear(x({2, 3}), x({5, 4})),
                 "[linear] x [2,3] does not fit weight [5,4] ([out, in])");
  EXPECT_EQ(linear(x({2, 7, 3}), x({5, 3})).type().str(), "f32[2,7,5]");
}

TEST_F(TypeRulesTest, StatisticsOfLowPrecisionStayInFloat32) {
  const auto out = b_.call(find_op("rms_norm"), {x({4, 8}, DType::kBF16), x({8}, DType::kBF16)});
  EXPECT_EQ(out[0].type().str(), "bf16[4,8]");
  EXPECT_EQ(out[1].type().str(), "f32[4]");
  EXPECT_EQ(cross_entropy(x({4, 8}, DType::kF16), x({4}, kI64)).type().str(), "f32[]");
}

TEST_F(TypeRulesTest, AttributesAreCheckedAndCompleted) {
  EXPECT_MESSAGE(call("softmax", {x({3})}, {{"scal", 2.0}}),
                 "[softmax] there is no attribute 'scal'; did you mean 'scale'?");
  EXPECT_MESSAGE(call("softmax", {x({3})}, {{"scale", std::int64_t{2}}}),
                 "[softmax] attribute 'scale' has the wrong kind of value");
  EXPECT_MESSAGE(call("cast", {x({3})}), "[cast] attribute 'dtype' is missing: target");
  EXPECT_MESSAGE(call("softmx", {x({3})}),
                 "[program] there is no op 'softmx'; did you mean 'softmax'?");
  EXPECT_MESSAGE(call("add", {x({3})}), "[add] 1 operands given; it takes a, b");
  softmax(x({3}));
  EXPECT_EQ(b_.program().nodes.back().attrs.real("scale"), 1.0);
}

TEST_F(TypeRulesTest, EveryRecordDescribesItself) {
  for (const OpDef* op : all_ops()) {
    EXPECT_FALSE(op->doc.empty()) << op->name;
    EXPECT_FALSE(op->outputs.empty()) << op->name;
    for (const AttrDef& attr : op->attrs) EXPECT_FALSE(attr.doc.empty()) << op->name;
    for (const Donation& donation : op->donates) {
      EXPECT_LT(donation.output, static_cast<int>(op->outputs.size())) << op->name;
      EXPECT_LT(donation.input, static_cast<int>(op->inputs.size())) << op->name;
    }
  }
}

TEST_F(TypeRulesTest, AUsersOwnOpMayNotTakeATakenName) {
  EXPECT_MESSAGE(register_op({.name = "add", .infer = find_op("add").infer}),
                 "[register_op] op 'add' exists already");
  EXPECT_MESSAGE(register_op({.name = "nameless_rule"}),
                 "[register_op] an op needs a name and a type rule");
}

}  // namespace
}  // namespace tracestep::ops
