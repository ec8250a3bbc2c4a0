// What lies in the host's memory passes through buffers of the device, beside updates of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/update_passes.h"

namespace tracestep {
namespace {

constexpr std::int64_t kAll = std::int64_t{1} << 40;

class StreamStatesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // Updates of `count` weights of four elements, in the order of their numbers.
  static Program updates(int count, const std::string& more = {}) {
    std::string leaves, nodes, ends;
    for (int i = 0; i < count; ++i) {
      const int first = 3 * i;
      leaves += fmt::format(
          "  parameter %w{0} : f32[4] on host\n  state %m{0} : f32[4] !optimizer_state on host\n"
          "  state %v{0} : f32[4] !optimizer_state on host\n  input %g{0} : f32[4]\n",
          i);
      nodes += fmt::format(
          "  %{1}, %{2}, %{3} : f32[4], f32[4], f32[4] = adamw(%w{0}, %g{0}, %m{0}, %v{0}, %lr, "
          "%size) @ w{0} optimizer\n",
          i, first, first + 1, first + 2);
      ends += fmt::format("  update %w{0} = %{1}\n  update %m{0} = %{2}\n  update %v{0} = %{3}\n",
                          i, first, first + 1, first + 2);
    }
    return parse_program("program \"p\" {\n" + leaves +
                         "  input %lr : f32[]\n  input %size : f32[]\n" + nodes + more + ends +
                         "}");
  }

  // The ops in order, with their lanes where they have one beside the others.
  static std::string order(const Program& program) {
    std::string out;
    for (const Node& node : program.nodes) {
      const AttrValue* lane = node.attrs.find("lane");
      const std::int64_t number = lane == nullptr ? 0 : std::get<std::int64_t>(*lane);
      out += node.op->name + (number == 0 ? "" : std::to_string(number)) + " ";
    }
    return out;
  }
};

TEST_F(StreamStatesTest, OperandsComeInTwoUpdatesAheadAndGoBackBehindTheirs) {
  const Program out = stream_states(updates(3), 1, kAll);
  verify(out);
  const std::string in = "reload1 reload1 reload1 ", back = "offload2 offload2 offload2 ";
  EXPECT_EQ(order(out), in + in + "adamw " + back + in + "adamw " + back + "adamw " + back);
  EXPECT_EQ(print(parse_program(print(out))), print(out));
  const BufferPlan plan = plan_buffers(out);
  EXPECT_TRUE(updates_out_of_place(out, plan).empty());
  for (std::size_t i = 0; i < out.nodes.size(); ++i) {
    if (out.nodes[i].op->name != "adamw") continue;
    EXPECT_GE(plan.turns[i].waits[1], 0) << "an update waits for its operands";
    for (const ValueId id : out.nodes[i].outputs)
      EXPECT_EQ(plan.buffer(id)->host_bytes, 0) << "it writes the device's memory";
  }
}

TEST_F(StreamStatesTest, WhatIsSmallOrTooLargeGoesOverTheBus) {
  const Program program = updates(2);
  EXPECT_EQ(stream_states(program, 17, kAll), program) << "each tensor has 16 bytes";
  EXPECT_EQ(stream_states(program, 1, 47), program) << "each update has 48";
  EXPECT_NE(stream_states(program, 16, 48), program);
}

TEST_F(StreamStatesTest, AnUpdateWhoseResultIsReadStays) {
  const Program program = updates(1, "  %3 : f32[4] = exp(%0) @ w0 optimizer\n");
  EXPECT_EQ(stream_states(program, 1, kAll), program);
}

TEST_F(StreamStatesTest, TheDevicesOwnMemoryStaysWhereItIs) {
  Program program = updates(2);
  for (const ValueId id : program.leaves) {
    if (program.value(id).name.starts_with("w"))
      program.values[static_cast<std::size_t>(id)].memory = Memory::kDevice;
  }
  EXPECT_EQ(order(stream_states(program, 1, kAll)),
            "reload1 reload1 reload1 reload1 adamw offload2 offload2 adamw offload2 offload2 ");
}

TEST_F(StreamStatesTest, UpdatesAreJoinedByLayerAndSize) {
  const auto part = [](const std::string& path, const std::string& shape) {
    const Program program = parse_program(fmt::format(
        R"(program "p" {{
  parameter %w : f32{0}
  state %m : f32{0} !optimizer_state
  state %v : f32{0} !optimizer_state
  input %g : f32{0}
  input %lr : f32[]
  input %size : f32[]
  %0, %1, %2 : f32{0}, f32{0}, f32{0} = adamw(%w, %g, %m, %v, %lr, %size) @ {1} optimizer
  update %w = %0
  update %m = %1
  update %v = %2
}})",
        shape, path));
    return parts_for_streams(program).begin()->second;
  };
  EXPECT_EQ(part("layers.2.ffn.w1", "[4,4]"), "layers.2#0");
  EXPECT_EQ(part("layers.2.ln1", "[4]"), "vectors");
  EXPECT_EQ(part("lm_head", "[4,4]"), "#0");
}

}  // namespace
}  // namespace tracestep
