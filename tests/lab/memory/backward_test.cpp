// Loads and leftovers of backward, buffers that a filter admits, and components beside fp32.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "lab/memory/tables.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kB = 3, kT = 16, kC = 32, kF = 48, kL = 2, kH = 2, kV = 50;

MemoryCell cell_of(Mode mode, Granularity ops, std::string_view precision = "fp32") {
  RunSpec step{.model = {.vocab = kV, .d_model = kC, .d_ff = kF, .layers = kL, .heads = kH},
               .shape = {.batch = kB, .context = kT},
               .mode = mode,
               .precision = parse_precision("test", precision),
               .ops = ops};
  return {.run = predict_memory(step, DeviceTraits{})};
}

std::vector<Json> column(const Table& table, std::string_view name) {
  const auto found = std::ranges::find(table.columns, name, &Column::name);
  std::vector<Json> out;
  if (found == table.columns.end()) ADD_FAILURE() << table.name << " has no column " << name;
  for (const auto& row : table.rows) {
    out.push_back(row[static_cast<std::size_t>(found - table.columns.begin())]);
  }
  return out;
}

class BackwardTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

// A norm as one kernel reads its operand, its statistic of each row and its weight; in parts it
// also reads what its parts made.
TEST_F(BackwardTest, ANormLoadsItsOperandAndOneNumberOfEachRow) {
  const BufferFilter norm{.component = "layers.0.ln1"};
  const Table fused = load_table(cell_of(Mode::kForwardBackward, Granularity::kFused), norm);
  std::int64_t saved = 0, full = 0;
  for (std::size_t i = 0; i < fused.rows.size(); ++i) {
    if (column(fused, "kind")[i] != Json("saved")) continue;
    ++saved;
    const bool is_full = column(fused, "full_size")[i].as_bool();
    full += is_full ? 1 : 0;
    EXPECT_EQ(column(fused, "bytes")[i].as_int(), is_full ? kB * kT * kC * 4 : kB * kT * 4);
  }
  EXPECT_EQ(saved, 2);
  EXPECT_EQ(full, 1);
  EXPECT_THAT(column(fused, "kind"), ::testing::Contains(Json("leaf")));
  const Table parts = load_table(cell_of(Mode::kForwardBackward, Granularity::kPrimitive), norm);
  EXPECT_GT(parts.rows.size(), fused.rows.size());
  EXPECT_TRUE(load_table(cell_of(Mode::kInference, Granularity::kFused), norm).rows.empty());
}

TEST_F(BackwardTest, TheSlopeOfABlockIsTheGradientsOfItsWeights) {
  constexpr std::int64_t kWeights = (4 * kC * kC + 3 * kC * kF + 2 * kC) * 4;
  for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
    for (Mode mode : {Mode::kForwardBackward, Mode::kStep}) {
      const Table table = gradient_slope_table(cell_of(mode, ops));
      EXPECT_THAT(column(table, "block"), ElementsAre(Json("layers.1"), Json("layers.0")));
      for (const Json& bytes : column(table, "weight_bytes")) EXPECT_EQ(bytes, Json(kWeights));
      for (const Json& bytes : column(table, "gradient_bytes")) EXPECT_EQ(bytes, Json(kWeights));
      EXPECT_EQ(column(table, "deduced_bytes"), column(table, "gradient_bytes"));
      for (const Json& bytes : column(table, "freed_bytes")) EXPECT_GT(bytes.as_int(), 0);
    }
  }
  EXPECT_TRUE(gradient_slope_table(cell_of(Mode::kForward, Granularity::kFused)).rows.empty());
}

TEST_F(BackwardTest, AFilterAdmitsByCategoryPhaseAndPath) {
  const MemoryCell cell = cell_of(Mode::kStep, Granularity::kPrimitive);
  const BufferFilter filter{.without = {Category::kParameter, Category::kOptimizerState},
                            .phases = {Phase::kForward},
                            .component = "attn"};
  std::size_t admitted = 0;
  for (const MappedBuffer& b : cell.run.map.buffers) {
    const bool in_attention = b.path.find(".attn") != std::string::npos;
    const bool is_expected = in_attention && b.phase == Phase::kForward &&
                             b.category != Category::kParameter &&
                             b.category != Category::kOptimizerState;
    EXPECT_EQ(filter.admits(b), is_expected) << b.path;
    admitted += filter.admits(b) ? 1 : 0;
  }
  EXPECT_GT(admitted, 0u);
  EXPECT_EQ(buffer_table(cell, filter).rows.size(), admitted);
  EXPECT_EQ(largest_table(cell, 3, filter).rows.size(), 3u);
  for (const Json& path : column(largest_table(cell, 1000, filter), "path")) {
    EXPECT_THAT(path.as_string(), ::testing::HasSubstr(".attn"));
  }
}

TEST_F(BackwardTest, PartsOfPathsAreWholeNames) {
  EXPECT_TRUE(is_part_of("attn", "layers.3.attn.softmax"));
  EXPECT_TRUE(is_part_of("attn.softmax", "layers.3.attn.softmax"));
  EXPECT_TRUE(is_part_of("layers.3", "layers.3.attn"));
  EXPECT_FALSE(is_part_of("layers.3", "layers.31.attn"));
  EXPECT_FALSE(is_part_of("att", "layers.3.attn.softmax"));
  EXPECT_FALSE(is_part_of("softmax", ""));
  EXPECT_TRUE(is_part_of("", ""));
}

TEST_F(BackwardTest, NamesOfCategoriesAndPhasesAreInverse) {
  const std::vector<std::string> names = category_names();
  ASSERT_EQ(names.size(), std::size(kAll<Category>));
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(category_named(names[i]), kAll<Category>[i]) << names[i];
  }
  EXPECT_EQ(names[static_cast<std::size_t>(Category::kTemporary)], "temporaries");
}

TEST_F(BackwardTest, ComponentsInBf16StandBesideThoseInFp32) {
  const std::vector<MemoryCell> cells = {cell_of(Mode::kForward, Granularity::kPrimitive, "bf16"),
                                         cell_of(Mode::kForward, Granularity::kPrimitive)};
  const Table table = component_table(cells, {.without = {Category::kParameter}});
  bool has_scores = false;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Json base = column(table, "fp32_bytes")[i];
    EXPECT_EQ(base.is_null(), column(table, "precision")[i] == Json("fp32"));
    if (base.is_null()) continue;
    EXPECT_EQ(column(table, "difference_bytes")[i].as_int(),
              column(table, "largest_bytes")[i].as_int() - base.as_int());
    if (column(table, "component")[i] != Json("attn.scores")) continue;
    if (column(table, "group")[i] != Json("activation")) continue;
    has_scores = true;
    EXPECT_EQ(base.as_int(), kB * kH * kT * kT * 4);
    EXPECT_EQ(column(table, "largest_bytes")[i].as_int(), kB * kH * kT * kT * 2);
  }
  EXPECT_TRUE(has_scores);
  for (const Json& category : column(table, "category")) EXPECT_NE(category, Json("parameter"));
}

// A temporary of backward or the optimizer is as large as a weight, and no activation.
TEST_F(BackwardTest, OnlyWhatForwardMakesIsAnActivation) {
  const std::vector<MemoryCell> cells = {cell_of(Mode::kStep, Granularity::kPrimitive)};
  const Table table = component_table(cells, {.without = {Category::kParameter}});
  int activations = 0, others = 0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::string source = column(table, "source")[i].as_string();
    const bool is_of_optimizer = source.find("optimizer") != std::string::npos;
    const bool is_activation = column(table, "group")[i] == Json("activation");
    EXPECT_FALSE(is_of_optimizer && is_activation) << source;
    ++(is_activation ? activations : others);
  }
  EXPECT_GT(activations, 0);
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace tracestep
