#include "record/recorder.h"

#include <set>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(RecorderTest, NothingIsRecordedUnlessAskedFor) {
  Recorder recorder;
  recorder.add(Span{1, 0, 5});
  recorder.add(MemoryEvent{});
  { SpanTimer timer(&recorder, 2); }
  { SpanTimer timer(nullptr, 2); }
  EXPECT_TRUE(recorder.spans().empty());
  EXPECT_TRUE(recorder.memory_events().empty());
}

TEST(RecorderTest, SpansAndEventsAreKeptInOrder) {
  Recorder recorder({.spans = true, .memory = true});
  { SpanTimer timer(&recorder, 7); }
  recorder.add({.action = MemoryAction::kAlloc, .node = 7, .live_requested_bytes = 96});
  recorder.add({.action = MemoryAction::kFree, .node = 8, .live_requested_bytes = 0});
  ASSERT_EQ(recorder.spans().size(), 1u);
  EXPECT_EQ(recorder.spans()[0].node, 7);
  EXPECT_LE(recorder.spans()[0].start_ns, recorder.spans()[0].end_ns);
  EXPECT_EQ(recorder.memory_events()[1].node, 8);
  EXPECT_EQ(recorder.peak_requested_bytes(), 96);
}

TEST(RecorderTest, ClearForgetsEverythingAndKeepsTheRoom) {
  Recorder recorder({.spans = true, .memory = true});
  recorder.reserve(100, 200);
  recorder.add(Span{});
  recorder.count(Counter::kAllocations, 3);
  EXPECT_EQ(recorder.count_of(Counter::kAllocations), 3);
  recorder.clear();
  EXPECT_EQ(recorder.count_of(Counter::kAllocations), 0);
  EXPECT_TRUE(recorder.spans().empty());
  EXPECT_GE(recorder.memory_events().capacity(), 200u);
}

TEST(RecorderTest, CategoryNamesAreDistinctAndParse) {
  std::set<std::string_view> names;
  for (Category category : kAll<Category>) {
    EXPECT_TRUE(names.insert(name_of(category)).second);
    EXPECT_EQ(named<Category>(name_of(category)), category);
  }
  EXPECT_EQ(named<Category>("unknown"), std::nullopt);
}

}  // namespace
}  // namespace tracestep
