// Memory sources for the allocator tests: one of host memory that can run dry, and one of
// addresses that must never be touched.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "runtime/allocator.h"

namespace tracestep {

class TestSource : public MemorySource {
 public:
  ~TestSource() override { EXPECT_TRUE(mapped_.empty()) << "mappings were not given back"; }

  void* map(std::int64_t bytes) override {
    if (bytes > capacity - mapped_bytes()) return nullptr;
    void* const address = obtain(bytes);
    mapped_[address] = bytes;
    return address;
  }
  void unmap(void* address, std::int64_t bytes) override {
    ASSERT_EQ(mapped_.count(address), 1U);
    EXPECT_EQ(mapped_[address], bytes);
    mapped_.erase(address);
    give_back(address);
  }

  std::int64_t mapped_bytes() const {
    std::int64_t total = 0;
    for (const auto& [address, bytes] : mapped_) total += bytes;
    return total;
  }
  std::size_t mapping_count() const { return mapped_.size(); }

  std::int64_t capacity = std::numeric_limits<std::int64_t>::max();

 protected:
  virtual void* obtain(std::int64_t bytes) = 0;
  virtual void give_back(void* address) = 0;

 private:
  std::map<void*, std::int64_t> mapped_;
};

class HostSource final : public TestSource {
 protected:
  void* obtain(std::int64_t bytes) override {
    return std::aligned_alloc(512, static_cast<std::size_t>(bytes));
  }
  void give_back(void* address) override { std::free(address); }
};

// Memory that only copies reach, as a card's: addresses are off by a constant, so that a touch of
// the host is a crash.
class CopiesSource final : public TestSource {
 public:
  bool host_accessible() const override { return false; }
  bool host_copies() const override { return true; }
  void set_bytes(void* address, std::uint8_t value, std::int64_t bytes) override {
    std::memset(shifted(address, -kShift), value, static_cast<std::size_t>(bytes));
  }
  void copy_in(void* address, const void* host, std::int64_t bytes) override {
    std::memcpy(shifted(address, -kShift), host, static_cast<std::size_t>(bytes));
  }
  void copy_out(void* host, const void* address, std::int64_t bytes) override {
    std::memcpy(host, shifted(address, -kShift), static_cast<std::size_t>(bytes));
  }

 protected:
  void* obtain(std::int64_t bytes) override {
    return shifted(std::aligned_alloc(512, static_cast<std::size_t>(bytes)), kShift);
  }
  void give_back(void* address) override { std::free(shifted(address, -kShift)); }

 private:
  static constexpr std::int64_t kShift = std::int64_t{1} << 56;
  static void* shifted(const void* address, std::int64_t by) {
    return std::bit_cast<void*>(std::bit_cast<std::int64_t>(address) + by);
  }
};

// Each mapping far from the last; `stride` below zero makes later mappings lie lower.
class AddressSource final : public TestSource {
 public:
  explicit AddressSource(std::int64_t stride = std::int64_t{1} << 40) : stride_(stride) {}
  bool host_accessible() const override { return false; }

 protected:
  void* obtain(std::int64_t) override {
    next_ += static_cast<std::uint64_t>(stride_);
    return std::bit_cast<void*>(next_);
  }
  void give_back(void*) override {}

 private:
  std::int64_t stride_;
  std::uint64_t next_ = std::uint64_t{1} << 60;
};

inline std::uint64_t address_of(const void* pointer) {
  return std::bit_cast<std::uint64_t>(pointer);
}

}  // namespace tracestep
