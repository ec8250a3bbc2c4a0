// Leaves in memory of somebody else's: who gets it, whose values stay, and what is refused.
#include "runtime/lent_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backends/cpu/cpu_device.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "runtime/store.h"

namespace tracestep {
namespace {

using testing::HasSubstr;

constexpr const char* kProgram = R"(program "p" {
  parameter %w : f32[16]
  state %s : f32[16]
  state %t : f32[16]
  %0 : f32[16] = add(%w, %s)
  %1 : f32[16] = add(%0, %t)
  output "y" = %1
})";

class LentMemoryTest : public ::testing::Test {
 protected:
  LentMemoryTest() { ops::register_all(); }

  struct Place {
    alignas(64) float values[16] = {};
  };
  static void fill(Place& place, float value) { std::ranges::fill(place.values, value); }

  LentMemory lent_;
};

TEST_F(LentMemoryTest, AStoreWorksInPlaceAndKeepsTheOwnersStates) {
  Place w, s;
  fill(w, 2.0F);
  fill(s, 3.0F);
  lent_.lend("w", w.values, sizeof w.values);
  lent_.lend("s", s.values, sizeof s.values);
  const auto device = make_cpu_device({.threads = 1, .lent = &lent_});
  {
    Store store(*device);
    store.bind(parse_program(kProgram));
    EXPECT_EQ(store.at("w").data, w.values);
    EXPECT_EQ(store.at("s").data, s.values);
    EXPECT_EQ(s.values[3], 3.0F);
    EXPECT_EQ(store.get("t").as<float>()[0], 0.0F);
    EXPECT_EQ(device->allocator().stats().requested_bytes, 64);  // t alone
    EXPECT_TRUE(is_lent(device->allocator(), w.values));
    EXPECT_FALSE(is_lent(device->allocator(), store.at("t").data));
  }
  EXPECT_EQ(w.values[0], 2.0F);
  EXPECT_FALSE(is_lent(device->allocator(), w.values));
  EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
}

TEST_F(LentMemoryTest, AllocationsOfNodesAreNeverLent) {
  Place place;
  lent_.lend("w", place.values, sizeof place.values);
  const auto device = make_cpu_device({.threads = 1, .lent = &lent_});
  void* const own = device->allocator().allocate(64, {Category::kTemporary, 7, "w"});
  EXPECT_NE(own, place.values);
  device->allocator().free(own);
}

TEST_F(LentMemoryTest, WhatIsTooSmallOrCrookedIsRefused) {
  Place place;
  const auto device = make_cpu_device({.threads = 1, .lent = &lent_});
  const auto said = [&] {
    try {
      Store(*device).bind(parse_program(kProgram));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  lent_.lend("w", place.values, 60);
  EXPECT_THAT(said(), HasSubstr("w needs 64 bytes, and 60 were lent"));
  lent_.lend("w", place.values + 1, 64);
  EXPECT_THAT(said(), HasSubstr("no multiple of 64 bytes"));
  EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
  EXPECT_THROW(lent_.lend("w", nullptr, 64), Error);
}

}  // namespace
}  // namespace tracestep
