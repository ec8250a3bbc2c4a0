// The snapshot's two writers and the rules of its readers. That another program can read the files
// is checked by Python (tests/tools/check_snapshot.py), which shares nothing with the writers.
#include "lab/snapshots/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "lab/report/pickle.h"
#include "support/python.h"

namespace tracestep {
namespace {

constexpr std::int64_t kBase = 0x7f0000000000;

// A segment of 1000 bytes: a block that stays, one that was freed, and a free rest.
MemorySnapshot example() {
  MemorySnapshot s;
  s.stacks.push_back({{"a.cpp", "layers.0.\"x\"", 7}, {"", "forward", 0}});
  s.segments = {
      {kBase, 1000, true, {{kBase, 200, 150, true, 1}, {kBase + 200, 800, 800, false, 0}}}};
  s.events = {{"segment_alloc", kBase, 1000, 5, 0, "unknown"},
              {"alloc", kBase, 150, 6, 1, "parameter"},
              {"alloc", kBase + 200, 300, 7, 1, "temporary"},
              {"free_requested", kBase + 200, 300, 8, 1, ""},
              {"free_completed", kBase + 200, 300, 8, 1, ""}};
  s.annotations = {{"forward", true, 6}, {"forward", false, 8}};
  s.settings = {{"allocator", "caching"}};
  return s;
}

TEST(PickleTest, EveryKindOfValueHasTheBytesOfTheFormat) {
  PickleWriter w;
  w.begin_list();
  const auto item = [&](auto&& write) {
    w.next_item();
    write();
  };
  item([&] { w.none(); });
  item([&] { w.boolean(true); });
  item([&] { w.integer(255); });
  item([&] { w.integer(256); });
  item([&] { w.integer(65536); });
  item([&] { w.integer(-1); });
  item([&] { w.integer(std::int64_t{1} << 40); });
  item([&] { w.real(1.0); });
  item([&] { w.text("a"); });
  item([&] { w.text("a"); });
  item([&] { w.pair(0, 1); });
  w.end_list();
  using namespace std::string_literals;
  std::string whole = "\x80\x02](N\x88K\xffM\x00\x01J\x00\x00\x01\x00J\xff\xff\xff\xff"s;
  whole += "\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00"s;
  whole += "G\x3f\xf0\x00\x00\x00\x00\x00\x00"s;
  whole += "X\x01\x00\x00\x00"s;
  whole += "aq\x00h\x00K\x00K\x01\x86"s;
  whole += "e."s;
  EXPECT_EQ(std::move(w).finish(), whole);
}

TEST(PickleTest, LongListsAreAppendedInBatchesOfAThousand) {
  PickleWriter w;
  w.begin_list();
  for (int i = 0; i < 2500; ++i) {
    w.next_item();
    w.integer(1);
  }
  w.end_list();
  const std::string bytes = std::move(w).finish();
  // Three batches: a mark before and an append after each; items are two bytes.
  EXPECT_EQ(bytes.size(), 2u + 1 + 3 * 2 + 2500 * 2 + 1);
}

TEST(MemorySnapshotTest, AnEmptyListAndAnEmptyDictAreReadBackByPython) {
  const PythonRun run = check_snapshot(MemorySnapshot{});
  if (!run.has_python) GTEST_SKIP() << "needs python3";
  EXPECT_EQ(run.status, 0) << run.out;
}

TEST(MemorySnapshotTest, PythonReadsBothFormsAndFindsTheRulesKept) {
  const PythonRun run = check_snapshot(example());
  if (!run.has_python) GTEST_SKIP() << "needs python3";
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_EQ(run.out, "450\n");  // 150 + 300 requested bytes at the most
}

TEST(MemorySnapshotTest, ManyEventsAndStacksSurviveTheMemo) {
  MemorySnapshot s = example();
  for (int i = 0; i < 3000; ++i) {
    s.stacks.push_back({{"b.cpp", "scope" + std::to_string(i), i}});
    const int stack = static_cast<int>(s.stacks.size()) - 1;
    s.events.push_back({"alloc", kBase + 200, 64, 9 + i, stack, "temporary"});
    s.events.push_back({"free_requested", kBase + 200, 64, 9 + i, stack, ""});
    s.events.push_back({"free_completed", kBase + 200, 64, 9 + i, stack, ""});
  }
  s.device = 1;
  EXPECT_EQ(broken_rule(s), "");
  const PythonRun run = check_snapshot(s);
  if (!run.has_python) GTEST_SKIP() << "needs python3";
  EXPECT_EQ(run.status, 0) << run.out;
}

TEST(MemorySnapshotTest, TheJsonTwinHasTheKeysOfThePickle) {
  const Json twin = Json::parse(json_of(example()), "twin");
  const Json& segment = twin.at("segments").items().front();
  EXPECT_EQ(segment.at("allocated_size").as_int(), 200);
  EXPECT_EQ(segment.at("requested_size").as_int(), 150);
  const Json& event = twin.at("device_traces").items()[0].items()[1];
  EXPECT_EQ(event.at("category").as_string(), "parameter");
  EXPECT_EQ(event.at("frames").items()[0].at("name").as_string(), "layers.0.\"x\"");
}

TEST(MemorySnapshotTest, EveryPlantedMistakeIsFound) {
  EXPECT_EQ(broken_rule(example()), "");
  MemorySnapshot gap = example();
  gap.segments[0].blocks[1].bytes = 700;
  EXPECT_THAT(broken_rule(gap), ::testing::HasSubstr("tile"));
  MemorySnapshot leaked = example();  // the free of the temporary is missing
  leaked.events.resize(3);
  EXPECT_THAT(broken_rule(leaked), ::testing::HasSubstr("freed by nobody"));
  MemorySnapshot unasked = example();  // a free completed that nobody requested
  unasked.events.erase(unasked.events.begin() + 3);
  EXPECT_NE(broken_rule(unasked), "");
  MemorySnapshot outside = example();
  outside.events[2].address = kBase + 900;
  EXPECT_THAT(broken_rule(outside), ::testing::HasSubstr("outside"));
  MemorySnapshot late = example();  // the segment comes after its first block
  std::swap(late.events[0], late.events[1]);
  EXPECT_NE(broken_rule(late), "");
  MemorySnapshot twice = example();
  twice.events.insert(twice.events.begin() + 2, twice.events[1]);
  EXPECT_NE(broken_rule(twice), "");
}

}  // namespace
}  // namespace tracestep
