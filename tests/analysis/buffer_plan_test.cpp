#include "analysis/buffer_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "ir/parse.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/pipeline.h"

namespace tracestep {
namespace {

class BufferPlanTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program model_program(Mode mode, Granularity granularity) {
    const ModelConfig config{.vocab = 19, .d_model = 8, .d_ff = 12, .layers = 2, .heads = 2};
    RunSpec run{.verify = true};
    run.mode = mode;
    run.ops = granularity;
    return run_pipeline(loss_program(config, {.batch = 2, .context = 5}), run).program;
  }
};

TEST_F(BufferPlanTest, ABufferIsReusedInPlaceAfterItsLastReaderOnly) {
  const Program program = parse_program(R"(program "p" {
    input %x : f32[4]
    %0 : f32[4] = exp(%x)
    %1 : f32[4] = neg(%0)
    %2 : f32[4] = add(%0, %1)
    output "y" = %2
  })");
  const BufferPlan buffer_plan = plan_buffers(program);
  // %0 is read again after neg, so neg gets its own buffer; add may take one of the two.
  EXPECT_NE(buffer_plan.buffer_of[1], buffer_plan.buffer_of[2]);
  EXPECT_EQ(buffer_plan.buffer_of[3], buffer_plan.buffer_of[1]);
  EXPECT_NE(buffer_plan.buffer_of[0], buffer_plan.buffer_of[1]) << "inputs are never overwritten";
}

TEST_F(BufferPlanTest, AProductIsNotWrittenOverWhatItStillMultiplies) {
  const auto takes_over = [](const char* addend) {
    const BufferPlan plan = plan_buffers(parse_program(fmt::format(
        R"(program "p" {{
      input %x : f32[3,3]
      %0 : f32[3,3] = exp(%x)
      %1 : f32[3,3] = neg(%x)
      %2 : f32[3,3] = matmul_add(%x, %0, {})
      output "y" = %2
    }})",
        addend)));
    return plan.buffer_of[3] == plan.buffer_of[addend[1] == '0' ? 1 : 2];
  };
  EXPECT_TRUE(takes_over("%1"));
  EXPECT_FALSE(takes_over("%0"));
}

TEST_F(BufferPlanTest, AViewOwnsNoBytesAndKeepsItsBaseAlive) {
  const Program program = parse_program(R"(program "p" {
    input %x : f32[2,3]
    %0 : f32[2,3] = exp(%x)
    %1 : f32[3,2] = permute(%0) {axes=[1,0]}
    %2 : f32[3,2] = neg(%1)
    output "y" = %2
  })");
  const BufferPlan buffer_plan = plan_buffers(program);
  EXPECT_EQ(buffer_plan.buffer_of[1], buffer_plan.buffer_of[2]);
  EXPECT_FALSE(buffer_plan.runs[1]);
  EXPECT_NE(buffer_plan.buffer_of[3], buffer_plan.buffer_of[1]) << "another order: not in place";
  EXPECT_EQ(buffer_plan.buffers[static_cast<std::size_t>(buffer_plan.buffer_of[1])].last, 2);
}

TEST_F(BufferPlanTest, ALeafIsOverwrittenOnlyByItsOwnUpdate) {
  const Program program = parse_program(R"(program "p" {
    parameter %w : f32[4]
    input %g : f32[4]
    %0 : f32[4] = affine(%w) {scale=0.9}
    %1 : f32[4] = sub(%0, %g)
    update %w = %1
  })");
  const BufferPlan buffer_plan = plan_buffers(program);
  EXPECT_EQ(buffer_plan.buffer_of[3], buffer_plan.buffer_of[0]);
  EXPECT_TRUE(updates_out_of_place(program, buffer_plan).empty());
  const Program no_update = parse_program(R"(program "p" {
    parameter %w : f32[4]
    %0 : f32[4] = neg(%w)
    output "y" = %0
  })");
  const BufferPlan kept = plan_buffers(no_update);
  EXPECT_NE(kept.buffer_of[1], kept.buffer_of[0]);
}

TEST_F(BufferPlanTest, ResultsThatNobodyReadsAreNotAllocated) {
  const Program program = parse_program(R"(program "p" {
    parameter %x : f32[2,3]
    parameter %w : f32[3]
    %0, %1 : f32[2,3], f32[2] = rms_norm(%x, %w)
    output "y" = %0
  })");
  EXPECT_EQ(plan_buffers(program).buffer_of[3], -1);
}

TEST_F(BufferPlanTest, NoTwoLiveValuesOverlapInAnyModelProgram) {
  for (Mode mode : kAll<Mode>) {
    if (mode == Mode::kInference) continue;
    for (Granularity g : {Granularity::kPrimitive, Granularity::kFused}) {
      const Program program = model_program(mode, g);
      const BufferPlan buffer_plan = plan_buffers(program);
      // Replays the step: after each node, which value does each buffer hold?
      std::vector<ValueId> holds(buffer_plan.buffers.size(), kNoValue);
      for (ValueId id : program.leaves) {
        holds[static_cast<std::size_t>(buffer_plan.buffer_of[static_cast<std::size_t>(id)])] = id;
      }
      for (std::size_t i = 0; i < program.nodes.size(); ++i) {
        if (!buffer_plan.runs[i]) continue;
        for (ValueId input : program.nodes[i].inputs) {
          const ValueId base = program.value(input).layout.base;
          const int b = buffer_plan.buffer_of[static_cast<std::size_t>(base)];
          ASSERT_EQ(holds[static_cast<std::size_t>(b)], base)
              << name_of(mode) << ": node " << i << " " << program.nodes[i].op->name
              << " reads a value that was overwritten";
        }
        for (ValueId output : program.nodes[i].outputs) {
          const int b = buffer_plan.buffer_of[static_cast<std::size_t>(output)];
          if (b >= 0) holds[static_cast<std::size_t>(b)] = output;
        }
      }
      for (const Update& u : program.updates) {
        EXPECT_EQ(buffer_plan.buffer_of[static_cast<std::size_t>(u.value)],
                  buffer_plan.buffer_of[static_cast<std::size_t>(u.leaf)]);
      }
    }
  }
}

TEST_F(BufferPlanTest, ThePeakIsAtLeastWhatAnyNodeNeedsAtOnce) {
  const Program program = model_program(Mode::kStep, Granularity::kFused);
  const MemoryMap map = map_memory(program, {});
  for (const Node& node : program.nodes) {
    std::int64_t needed = 0;
    for (ValueId id : node.outputs) needed += program.type(id).bytes();
    EXPECT_GE(map.peak_bytes, needed);
  }
  std::int64_t by_category = 0;
  for (std::int64_t bytes : map.by_category) by_category += bytes;
  EXPECT_EQ(by_category, map.peak_bytes) << "categories add up to the peak";
  EXPECT_EQ(map.peak_bytes, predicted_peak_bytes(program, plan_buffers(program), {}));
}

TEST_F(BufferPlanTest, EveryBufferHasAPathAnOpAndAReason) {
  for (const MappedBuffer& b :
       map_memory(model_program(Mode::kStep, Granularity::kPrimitive), {}).buffers) {
    EXPECT_FALSE(b.path.empty()) << b.op;
    EXPECT_FALSE(b.op.empty());
    EXPECT_FALSE(b.reason.empty()) << b.path << " " << b.op;
  }
}

TEST_F(BufferPlanTest, AnAllReduceAndAFusedNodeWrittenByHandArePlanned) {
  const Program program = parse_program(R"(program "p" {
    parameter %w : f32[8]
    %0 : f32[8] = fused(%w) {body=program "b" {
      input %a : f32[8]
      %0 : f32[8] = exp(%a)
      %1 : f32[8] = neg(%0)
      output "y" = %1
    }} @ mlp forward
    %1 : f32[8] = all_reduce(%0) {ranks=2} @ sync communication
    output "y" = %1
  })");
  const MemoryMap map = map_memory(program, {});
  EXPECT_EQ(map.peak_bytes, 2 * 32) << "the collective works in place, the body keeps nothing";
  EXPECT_EQ(total_cost(program).flops, 16 + 4) << "each rank adds up half of it";
}

// --- assemblies ---------------------------------------------------------------------------------
TEST_F(BufferPlanTest, PartsOfAnAssemblyLiveInItsBufferFromTheFirstOnAndNothingIsLaunchedForIt) {
  const Program program = parse_program(R"(program "p" {
    input %a : f32[2,2,3]
    input %b : f32[4,3]
    %0 : f32[2,2,3] = copy(%a)
    %1 : f32[4,3] = copy(%b)
    %2 : f32[4,3] = reshape(%0) {shape=[4,3]}
    %3 : f32[4,6] = assemble(%1, %2) {axis=1}
    %4 : f32[4,6] = exp(%3)
    output "y" = %4
  })");
  const BufferPlan plan = plan_buffers(program);
  const ValueId whole = program.nodes[3].outputs[0];
  EXPECT_EQ(launch_count(program), 3);
  EXPECT_FALSE(plan.runs[3]);
  EXPECT_EQ(plan.buffer_of[2], plan.buffer_of[static_cast<std::size_t>(whole)]);
  EXPECT_EQ(plan.buffer_of[3], plan.buffer_of[static_cast<std::size_t>(whole)]);
  const Buffer& buffer = *plan.buffer(whole);
  EXPECT_EQ(buffer.bytes, 4 * 6 * 4);
  EXPECT_EQ(buffer.first, 0) << "needed by the node that writes the first part";
  EXPECT_TRUE(plan.allocated_at[1].empty());
  EXPECT_EQ(*plan.layout_of(program, program.nodes[0].outputs[0]), (Layout{whole, 3, {12, 6, 1}}));
  EXPECT_EQ(*plan.layout_of(program, program.nodes[1].outputs[0]), (Layout{whole, 0, {6, 1}}));
  EXPECT_EQ(*plan.layout_of(program, program.nodes[2].outputs[0]), (Layout{whole, 3, {6, 1}}));
}

TEST_F(BufferPlanTest, AnAssemblyTakesOverABufferWhosePartsItsOwnAreWrittenOver) {
  const auto donated = [](const char* gate, const char* up) {
    const Program program = parse_program(fmt::format(R"(program "p" {{
      input %x : f32[4,10]
      input %dy : f32[4,5]
      %0 : f32[4,10] = exp(%x)
      %1 : f32[4,5] = slice(%0) {{axis=1, start=0, stop=5}}
      %2 : f32[4,5] = slice(%0) {{axis=1, start=5, stop=10}}
      %3, %4 : f32[4,5], f32[4,5] = swiglu_grad(%dy, {}, {})
      %5 : f32[4,10] = assemble(%3, %4) {{axis=1}}
      %6 : f32[4] = sum(%5) {{axes=[1]}}
      output "y" = %6
    }})",
                                                      gate, up));
    const BufferPlan plan = plan_buffers(program);
    const auto at = [&](std::size_t node) {
      return plan.buffer_of[static_cast<std::size_t>(program.nodes[node].outputs[0])];
    };
    return at(4) == at(0);
  };
  EXPECT_TRUE(donated("%1", "%2"));
  EXPECT_FALSE(donated("%2", "%1")) << "gate lies where the gradient of up goes";
}

}  // namespace
}  // namespace tracestep
