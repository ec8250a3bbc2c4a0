// Tests planning for devices that are not there.
#include "planning/needs.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/functions.h"
#include "planning/cuda_attention.h"
#include "planning/cuda_plans.h"
#include "planning/workspace_rules.h"

namespace tracestep {
namespace {

TEST(NeedsTest, EveryRuleIsForAnOpThatExistsAndStandsOnce) {
  ops::register_all();
  for (const auto rules : {cpu_workspace_rules(), cuda_workspace_rules()}) {
    std::set<std::string_view> seen;
    for (const WorkspaceRule& rule : rules) {
      EXPECT_NE(find_op_or_null(rule.op), nullptr) << rule.op;
      EXPECT_TRUE(seen.insert(rule.op).second) << rule.op;
    }
  }
}

TEST(NeedsTest, AProductNeedsWhatItsBackEndSays) {
  ops::register_all();
  const OpDef& op = find_op("matmul");
  Attrs attrs{{"transpose_a", false}, {"transpose_b", true}, {"by_parts", false}};
  const Type inputs[] = {{DType::kF32, {64, 48}}, {DType::kF32, {80, 48}}};
  const Type outputs[] = {{DType::kF32, {64, 80}}};
  const OpCall call{op, attrs, inputs, outputs};
  const auto bytes = [&](DeviceKind kind, int threads) {
    return workspace_bytes(call, {kind, threads});
  };
  EXPECT_EQ(bytes(DeviceKind::kCuda, 1), std::int64_t{32} << 20);
  EXPECT_EQ(bytes(DeviceKind::kCuda, 16), bytes(DeviceKind::kCuda, 1));
  EXPECT_GT(bytes(DeviceKind::kCpu, 16), bytes(DeviceKind::kCpu, 1)) << "packing, per thread";
  EXPECT_EQ(bytes(DeviceKind::kReference, 1), 0);
  const std::int64_t on_cpu = bytes(DeviceKind::kCpu, 1);
  attrs.set("by_parts", true);  // a GPU splits the operands; others have no parts
  EXPECT_EQ(bytes(DeviceKind::kCuda, 1), plan_split_product(64, 80, 48, 1).workspace_bytes);
  EXPECT_EQ(bytes(DeviceKind::kCpu, 1), on_cpu);
}

// Alignment decides the family, and is not known when bytes are predicted.
TEST(NeedsTest, AttentionsWorkspaceHoldsThatOfEitherFamily) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int width : {1, 16, 24, 60, 64, 72, 80, 90, 96, 104, 128, 200, 256}) {
      for (int queries : {1, 127, 1000}) {
        const AttentionSizes sizes{.heads = 6,
                                   .key_heads = 2,
                                   .queries = queries,
                                   .keys = queries + 13,
                                   .width = width,
                                   .dtype = dtype};
        for (const auto family : {AttentionFamily::kPortable, AttentionFamily::kHopper}) {
          const bool runs = family == AttentionFamily::kPortable ||
                            (dtype != DType::kF32 && hopper_attention_width(width) > 0);
          if (!runs) continue;
          const AttentionExtent extent{.heads = 6,
                                       .key_heads = 2,
                                       .queries = queries,
                                       .keys = queries + 13,
                                       .width = width,
                                       .is_float32 = dtype == DType::kF32};
          EXPECT_LE(attention_workspace(extent, family, false).bytes,
                    cuda_attention_forward_bytes(sizes));
          EXPECT_LE(attention_workspace(extent, family, true).bytes,
                    cuda_attention_backward_bytes(sizes));
        }
      }
    }
  }
  const AttentionExtent one{.heads = 2, .key_heads = 2, .queries = 130, .keys = 130, .width = 24};
  const AttentionWorkspace at = attention_workspace(one, AttentionFamily::kHopper, true);
  EXPECT_EQ(at.delta, 2 * 256 * 4) << "behind lse2: of both heads, in whole blocks of 128 queries";
  EXPECT_EQ(at.dq_sums, 2 * at.delta);
  EXPECT_EQ(at.turns, at.dq_sums + 2 * 256 * 64 * 4) << "24 columns in a panel of 64";
  EXPECT_EQ(at.bytes, at.turns + 256);
  AttentionExtent wide = one;
  wide.width = 136;
  EXPECT_EQ(attention_workspace(wide, AttentionFamily::kHopper, true).bytes, at.dq_sums)
      << "nothing is added up across blocks";
  AttentionExtent odd = one;
  odd.width = 23;
  const AttentionWorkspace copied = attention_workspace(odd, AttentionFamily::kHopper, true);
  EXPECT_EQ(copied.turns, at.turns) << "what the kernels want for rows of 24 columns";
  EXPECT_EQ(copied.copies[0], at.bytes);
  const std::int64_t copy =
      12544;  // 2 heads of 130 rows of 24 columns of 2 bytes, in blocks of 256
  EXPECT_EQ(copied.bytes, at.bytes + 7 * copy) << "q, k, v, o, and the gradients of all but q";
  EXPECT_EQ(attention_workspace(odd, AttentionFamily::kHopper, false).bytes, 256 + 4 * copy);
}

TEST(NeedsTest, ANameSaysWhatADeviceCanDo) {
  EXPECT_EQ(traits_named("cuda").kind, DeviceKind::kCuda);
  EXPECT_TRUE(traits_named("cuda:3").has_own_memory());
  EXPECT_FALSE(traits_named("cpu").has_own_memory());
  EXPECT_EQ(traits_named("cpu", 5).threads, 5);
  EXPECT_EQ(traits_named("reference").kind, DeviceKind::kReference);
  EXPECT_FALSE(traits_named("reference").shares_kernels_among_threads());
  EXPECT_EQ(traits_named("null").kind, DeviceKind::kCpu);
  for (const char* name : {"cpu", "cuda:1", "reference", "null"}) {
    EXPECT_EQ(traits_named(name).computes, std::string_view(name) != "null");
  }
}

TEST(NeedsTest, OnlyTheReferenceComputesInFloat64) {
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kReference}) {
    const bool is_reference = kind == DeviceKind::kReference;
    EXPECT_EQ(computes_in(kind, DType::kF64), is_reference) << name_of(kind);
    EXPECT_EQ(computes_in(kind, DType::kBF16), !is_reference) << name_of(kind);
    EXPECT_TRUE(computes_in(kind, DType::kI64)) << name_of(kind);
  }
}

}  // namespace
}  // namespace tracestep
