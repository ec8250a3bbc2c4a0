// Updates beside backward: which of them, in how many calls, and where they stand.
#include "passes/update_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/print.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/pipeline.h"

namespace tracestep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::StartsWith;

class UpdateBesideTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // `change`: of the step and of what the passes know of the device.
  static Program program_of(const std::function<void(RunSpec&, PassContext&)>& change = {}) {
    const ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
    RunSpec run{.precision = {.autocast = DType::kBF16}, .verify = true};
    const std::vector<std::string> all = compile_passes();
    run.compile_passes.emplace(all.begin(), all.end());
    PassContext context{.traits = {.kind = DeviceKind::kCuda}, .disabled = {"fuse"}};
    if (change) change(run, context);
    return run_pipeline(loss_program(model, {.batch = 2, .context = 5}), run, context).program;
  }

  // Each update as its lane, the parameters that it updates, and whether products follow.
  static std::vector<std::string> updates_of(const Program& program) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (node.op->kernel_class != KernelClass::kOptimizer) continue;
      const auto rest = std::span(program.nodes).subspan(i);
      const bool has_more = std::ranges::any_of(
          rest, [](const Node& n) { return n.op->kernel_class == KernelClass::kGemm; });
      std::string text = fmt::format("lane {}, {}:", node.attrs.integer("lane"),
                                     has_more ? "before products" : "behind all");
      for (const Update& u : program.updates) {
        const Value& leaf = program.value(u.leaf);
        const bool is_its = program.value(u.value).producer == static_cast<NodeId>(i);
        if (is_its && leaf.leaf == LeafKind::kParameter) text += " " + leaf.name;
      }
      out.push_back(text);
    }
    return out;
  }
};

TEST_F(UpdateBesideTest, ALayerIsOneCallBesideTheProductsBehindIt) {
  EXPECT_THAT(updates_of(program_of()),
              ElementsAre("lane 1, before products: lm_head.weight",
                          "lane 1, before products: layers.1.attn.q_proj.weight "
                          "layers.1.attn.k_proj.weight layers.1.attn.v_proj.weight "
                          "layers.1.attn.output_proj.weight layers.1.ffn.w1.weight "
                          "layers.1.ffn.w3.weight layers.1.ffn.w2.weight",
                          "lane 1, before products: layers.0.attn.output_proj.weight "
                          "layers.0.ffn.w1.weight layers.0.ffn.w3.weight layers.0.ffn.w2.weight",
                          "lane 0, behind all: layers.0.attn.q_proj.weight "
                          "layers.0.attn.k_proj.weight layers.0.attn.v_proj.weight",
                          "lane 0, behind all: token_embeddings.weight layers.0.ln1.weight "
                          "layers.0.ln2.weight layers.1.ln1.weight layers.1.ln2.weight "
                          "ln_final.weight"));
}

TEST_F(UpdateBesideTest, UpdatesThatWaitForAllGradientsStayBehindThem) {
  const auto clips = [](RunSpec& run, PassContext&) { run.optimizer.clip = 1.0; };
  const auto clips_plainly = [](RunSpec& run, PassContext& context) {
    run.optimizer.clip = 1.0;
    context.disabled.insert("update_beside");
  };
  EXPECT_EQ(program_of(clips), program_of(clips_plainly));
}

TEST_F(UpdateBesideTest, EarlyUpdatesKeepTheirPlacesAndAreNotJoined) {
  const auto early = [](RunSpec& run, PassContext&) { run.updates = UpdateTime::kEarly; };
  const auto plain = [](RunSpec& run, PassContext& context) {
    run.updates = UpdateTime::kEarly;
    context.disabled.insert("update_beside");
  };
  std::vector<std::string> beside = updates_of(program_of(early));
  for (std::string& update : beside) {
    const bool is_vector = update.find("ln") != std::string::npos;
    const bool has_more = update.find("before") != std::string::npos;
    EXPECT_THAT(update, StartsWith(has_more && !is_vector ? "lane 1" : "lane 0"));
    update[5] = '0';
  }
  EXPECT_EQ(beside, updates_of(program_of(plain)));
}

TEST_F(UpdateBesideTest, ADeviceWithOneLaneAndRanksKeepThemWhereTheyWere) {
  const auto cpu = [](RunSpec&, PassContext& context) { context.traits = {}; };
  const auto ranks = [](RunSpec& run, PassContext&) { run.parallel = {.ranks = 2}; };
  EXPECT_THAT(updates_of(program_of(cpu)), Each(StartsWith("lane 0")));
  EXPECT_THAT(updates_of(program_of(ranks)), Each(StartsWith("lane 0")));
}

}  // namespace
}  // namespace tracestep
