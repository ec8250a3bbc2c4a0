// Leaves of one block lie side by side, in the same places whichever program was bound first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/parse.h"
#include "ops/functions.h"
#include "record/recorder.h"
#include "runtime/store.h"
#include "support/backends.h"
#include "support/host_values.h"

namespace tracestep {
namespace {

constexpr const char* kWeights = R"(program "weights" {
  parameter %a : f32[2,3] in "ab" at 0 of 15
  parameter %c : f32[5]
  parameter %b : f32[3,3] in "ab" at 6 of 15
  output "y" = %a
})";
// A program with these leaves and states of them, in other orders.
constexpr const char* kUpdates = R"(program "updates" {
  state %m.b : f32[3,3] !optimizer_state in "m.ab" at 6 of 15
  parameter %b : f32[3,3] in "ab" at 6 of 15
  state %m.a : f32[2,3] !optimizer_state in "m.ab" at 0 of 15
  parameter %a : f32[2,3] in "ab" at 0 of 15
  output "y" = %a
})";

class StoreBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::ptrdiff_t distance(const Store& store, const char* from, const char* to) {
    return static_cast<std::byte*>(store.at(to).data) -
           static_cast<std::byte*>(store.at(from).data);
  }
  static std::string error_of(Store& store, const char* program) {
    try {
      store.bind(parse_program(program));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(StoreBlocksTest, TheLayoutIsTheSameWhicheverProgramIsFirst) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (const bool weights_first : {true, false}) {
      const auto device = backend.make({.guarded = true});
      Store store(*device);
      store.bind(parse_program(weights_first ? kWeights : kUpdates));
      const void* const before = store.at("a").data;
      store.bind(parse_program(weights_first ? kUpdates : kWeights));
      EXPECT_EQ(store.at("a").data, before) << "nothing moves";
      EXPECT_EQ(distance(store, "a", "b"), 6 * 4);
      EXPECT_EQ(distance(store, "m.a", "m.b"), 6 * 4);
    }
  }
}

TEST_F(StoreBlocksTest, EachPartIsSetAndReadByItsOwnName) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.guarded = true});
    Store store(*device);
    store.bind(parse_program(kWeights));
    const HostTensor a = testing::random_tensor(store.at("a").type, "a", -1.0, 1.0);
    const HostTensor b = testing::random_tensor(store.at("b").type, "b", -1.0, 1.0);
    store.set("b", b);
    store.set("a", a);
    EXPECT_EQ(store.get("a").bytes, a.bytes);
    EXPECT_EQ(store.get("b").bytes, b.bytes);
  }
}

TEST_F(StoreBlocksTest, PartsAreCountedAndRecordedLikeAllocationsOfTheirOwn) {
  const auto device = testing::backends_under_test().front().make({});
  Recorder recorder({.memory = true});
  recorder.reserve(0, 16);
  device->allocator().set_recorder(&recorder);
  {
    Store store(*device);
    store.bind(parse_program(kWeights));
    const std::vector<LiveAllocation> live = device->allocator().live();
    ASSERT_EQ(live.size(), 3u);
    std::map<std::string, std::int64_t> bytes;
    for (const LiveAllocation& block : live) {
      bytes[std::string(block.tag.label)] = block.requested_bytes;
      const void* const data = store.at(block.tag.label).data;
      EXPECT_EQ(block.address, reinterpret_cast<std::uint64_t>(data));
    }
    EXPECT_THAT(bytes, ::testing::ElementsAre(::testing::Pair("a", 24), ::testing::Pair("b", 36),
                                              ::testing::Pair("c", 20)));
    EXPECT_EQ(device->allocator().stats().requested_bytes, 80);
    EXPECT_EQ(device->allocator().stats().allocation_count, 2);
  }
  std::int64_t balance = 0, events = 0;
  for (const MemoryEvent& e : recorder.memory_events()) {
    if (e.action != MemoryAction::kAlloc && e.action != MemoryAction::kFree) continue;
    balance += e.action == MemoryAction::kAlloc ? e.requested_bytes : -e.requested_bytes;
    EXPECT_EQ(e.live_requested_bytes, balance);
    ++events;
  }
  EXPECT_EQ(events, 6);
  EXPECT_EQ(balance, 0);
  device->allocator().set_recorder(nullptr);
}

TEST_F(StoreBlocksTest, ProgramsThatDoNotAgreeAreRefused) {
  const auto device = testing::backends_under_test().front().make({});
  Store store(*device);
  EXPECT_THAT(error_of(store, R"(program "half" {
    parameter %b : f32[3,3] in "ab" at 6 of 15
  })"),
              ::testing::HasSubstr("do not fill block ab"));
  EXPECT_THAT(store.names(LeafKind::kParameter), ::testing::IsEmpty());
  store.bind(parse_program(kWeights));
  EXPECT_THAT(error_of(store, R"(program "alone" { parameter %a : f32[2,3] })"),
              ::testing::HasSubstr("a has block ab at 0, program alone expects memory of its own"));
}

TEST_F(StoreBlocksTest, ABlockThatDoesNotFitLeavesNothingBehind) {
  const auto device = testing::backends_under_test().front().make({.memory_limit = 59});
  Store store(*device);
  EXPECT_THROW(store.bind(parse_program(kWeights)), OutOfMemory);
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(store.find("b"), nullptr);
  device->allocator().set_limit(80);
  store.bind(parse_program(kWeights));
  EXPECT_NE(store.find("b"), nullptr);
}

}  // namespace
}  // namespace tracestep
