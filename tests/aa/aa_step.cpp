// aa_step: a small training step as `bench` measures it, for the A/A battery (tools/soak/aa.py).
// --slower X lets every kernel work X percent longer: the slowdown that the battery must find is
// code that runs, not a factor on figures. Not a part of the product.
#include <chrono>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "lab/measure/environment.h"
#include "lab/time/cell.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

using Clock = std::chrono::steady_clock;

// The device it wraps, whose kernels are each followed by multiply-adds for a share of their time.
class SlowerDevice final : public Device {
 public:
  SlowerDevice(std::unique_ptr<Device> device, double share)
      : device_(std::move(device)), share_(share) {}

  const std::string& name() const override { return device_->name(); }
  const DeviceTraits& traits() const override { return device_->traits(); }
  Allocator& allocator() override { return device_->allocator(); }
  bool supports(DType dtype) const override { return device_->supports(dtype); }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return std::make_unique<SlowerKernel>(device_->prepare(std::move(spec)), share_);
  }
  void copy_in(void* device, const void* host, std::int64_t bytes) override {
    device_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    device_->copy_out(host, device, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { device_->zero(device, bytes); }
  void* stream() override { return device_->stream(); }

 private:
  class SlowerKernel final : public PreparedKernel {
   public:
    SlowerKernel(std::unique_ptr<PreparedKernel> inner, double share)
        : inner_(std::move(inner)), share_(share) {}
    void launch(const LaunchOperands& operands, const LaunchContext& context) override {
      const Clock::time_point start = Clock::now();
      inner_->launch(operands, context);
      const Clock::time_point end = Clock::now();
      const auto more = std::chrono::duration_cast<Clock::duration>((end - start) * share_);
      volatile float sum = 1.0f;
      while (Clock::now() - end < more) sum = sum * 0.999f + 0.001f;
    }

   private:
    const std::unique_ptr<PreparedKernel> inner_;
    const double share_;
  };

  const std::unique_ptr<Device> device_;
  const double share_;
};

// About three milliseconds on one core.
CellSpec cell() {
  CellSpec out{.step = {.model = {.name = "custom",
                                  .vocab = 256,
                                  .d_model = 64,
                                  .d_ff = 256,
                                  .layers = 2,
                                  .heads = 4},
                        .shape = {.batch = 2, .context = 64},
                        .mode = Mode::kStep,
                        .place = {.threads = 1}},
               .protocol = {.warmup = 10, .steps = 40, .recorded_steps = 1}};
  return out;
}

int run(double share) {
  ops::register_all();
  const auto make = [share](const RunSpec& spec) -> std::unique_ptr<Device> {
    std::unique_ptr<Device> cpu =
        testing::backend_named("cpu").make({.threads = spec.place.threads});
    // Both sides are wrapped: they differ in the share alone.
    return std::make_unique<SlowerDevice>(std::move(cpu), share);
  };
  const CellResult result = measure_cell(make, cell());
  Table table{.name = "bench", .columns = cell_columns()};
  table.add_row(cell_row(result));
  write_output({"tracestep.bench/1", capture_environment({}, 1), {table}}, Format::kJson, "");
  return 0;
}

}  // namespace
}  // namespace tracestep

// Further words are ignored: `compare --run` adds "--format json".
int main(int argc, char** argv) {
  const bool is_slower = argc > 2 && std::string(argv[1]) == "--slower";
  try {
    return tracestep::run(is_slower ? std::stod(argv[2]) / 100 : 0.0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aa_step: %s\n", error.what());
    return 1;
  }
}
