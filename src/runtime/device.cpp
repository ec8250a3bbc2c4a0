#include "runtime/device.h"

namespace tracestep {
namespace {

class HostMarks final : public Marks {
 public:
  explicit HostMarks(std::size_t count) : times_(count, 0) {}
  void set(std::size_t i) override { times_[i] = now_ns(); }
  std::int64_t between_ns(std::size_t i, std::size_t j) override { return times_[j] - times_[i]; }

 private:
  std::vector<std::int64_t> times_;
};

}  // namespace

std::unique_ptr<Marks> Device::make_marks(std::size_t count) {
  return std::make_unique<HostMarks>(count);
}

}  // namespace tracestep
