#include <gtest/gtest.h>

#include <algorithm>

#include "lab/read/event_order.h"

namespace tracestep {
namespace {

std::vector<std::uint32_t> orders_of(EventOrder& events) {
  std::vector<std::uint32_t> out;
  events.for_each([&](const TraceEvent& event) { out.push_back(event.order); });
  return out;
}

TEST(EventOrderTest, WhatHasNoRoomInMemoryComesInTheSameOrder) {
  EventOrder all, parted(7);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::int64_t start = (i * 7919) % 331;
    const TraceEvent event{.start_ns = start,
                           .end_ns = start + (i * 31) % 17,
                           .order = i,
                           .kind = static_cast<EventKind>(i % 6)};
    all.add(event);
    parted.add(event);
  }
  const std::vector<std::uint32_t> whole = orders_of(all);
  EXPECT_EQ(whole.size(), 1000u);
  EXPECT_EQ(orders_of(parted), whole);
  EXPECT_EQ(orders_of(parted), whole);  // again
}

TEST(EventOrderTest, WhatEnclosesComesFirstAndKernelsBehindTheirLaunch) {
  EventOrder events;
  events.add({.start_ns = 5, .end_ns = 9, .order = 0, .kind = EventKind::kKernel});
  events.add({.start_ns = 6, .end_ns = 7, .order = 1, .kind = EventKind::kCall});
  events.add({.start_ns = 6, .end_ns = 8, .order = 2, .kind = EventKind::kOp});
  events.add({.start_ns = 6, .end_ns = 9, .order = 3, .kind = EventKind::kOp});
  EXPECT_EQ(orders_of(events), (std::vector<std::uint32_t>{3, 2, 1, 0}));
}

}  // namespace
}  // namespace tracestep
