// Dims: a short list of 64-bit integers held in place; shapes, strides and axis lists.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/error.h"

namespace tracestep {

inline constexpr int kMaxRank = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> dims)
      : Dims(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  explicit Dims(std::span<const std::int64_t> dims) {
    for (std::int64_t d : dims) push_back(d);
  }
  // Returns `rank` entries, all equal to `value`.
  static Dims filled(int rank, std::int64_t value) {
    Dims out;
    for (int i = 0; i < rank; ++i) out.push_back(value);
    return out;
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  // Returns an entry counted from the end: back(0) is the last one.
  std::int64_t back(int i = 0) const { return (*this)[rank_ - 1 - i]; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }
  std::int64_t* begin() { return dims_.data(); }
  std::int64_t* end() { return dims_.data() + rank_; }

  void push_back(std::int64_t d) {
    if (rank_ == kMaxRank) fail_rank();
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }

  // Returns the product of the entries; 1 when empty.
  std::int64_t product() const {
    std::int64_t n = 1;
    for (std::int64_t d : *this) n *= d;
    return n;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

  // Returns the entries as text: "[4,128,768]".
  std::string str() const;

 private:
  [[noreturn]] static void fail_rank();

  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

using Shape = Dims;
// Strides in elements, not bytes; 0 for a broadcast dimension.
using Strides = Dims;

// Returns the row-major strides of `shape`.
Strides contiguous_strides(const Shape& shape);
// True when `strides` walk `shape` in row-major order without holes (the strides of empty tensors
// and of dimensions of size 1 are ignored).
bool is_contiguous(const Shape& shape, const Strides& strides);

}  // namespace tracestep
