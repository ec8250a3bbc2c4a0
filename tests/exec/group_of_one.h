// A group of one rank in host memory, whose sums are copies.
#pragma once

#include <cstring>

#include "runtime/communicator.h"

namespace tracestep::testing {

class GroupOfOne : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void all_reduce(const TensorRef& x, const TensorRef& y) override { copy(x, y); }
  void reduce_scatter(const TensorRef& x, const TensorRef& part) override { copy(x, part); }
  void all_gather(const TensorRef& part, const TensorRef& y) override { copy(part, y); }
  Communicator& among(const RankGroup&) override { return *this; }
  std::int64_t received_bytes() const override { return 0; }
  void end() override {}
  void restart() override {}

 protected:
  static void copy(const TensorRef& from, const TensorRef& to) {
    std::memmove(to.data, from.data, static_cast<std::size_t>(to.count()) * size_of(to.dtype));
  }
};

}  // namespace tracestep::testing
