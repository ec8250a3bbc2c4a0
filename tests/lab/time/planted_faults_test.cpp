// Faults planted in a device, not in a table: measured as usual, and found by the validity checker.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lab/measure/validity.h"
#include "lab/time/cell.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

using Clock = std::chrono::steady_clock;

struct Faults {
  bool waits = true;              // false: synchronize() returns at once
  int cold_launches = 0;          // the first ones take twenty times as long
  std::int64_t leaked_bytes = 0;  // allocated at one launch of each step and never freed
};

// A device with a stream: kernels return at once and are done when the stream gets there, a fixed
// time after what was issued before. The arithmetic is that of the device it wraps.
class StreamDevice final : public Device {
 public:
  StreamDevice(std::unique_ptr<Device> device, Faults faults)
      : device_(std::move(device)), faults_(faults) {}
  ~StreamDevice() override {
    for (void* block : leaked_) allocator().free(block);
  }

  const std::string& name() const override { return device_->name(); }
  const DeviceTraits& traits() const override { return device_->traits(); }
  Allocator& allocator() override { return device_->allocator(); }
  bool supports(DType dtype) const override { return device_->supports(dtype); }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return std::make_unique<StreamKernel>(*this, std::move(spec));
  }
  void copy_in(void* device, const void* host, std::int64_t bytes) override {
    device_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    device_->copy_out(host, device, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { device_->zero(device, bytes); }
  bool is_asynchronous() const override { return true; }
  void* stream() override { return device_->stream(); }
  void synchronize() override {
    if (faults_.waits) std::this_thread::sleep_until(done_);
  }
  std::unique_ptr<Marks> make_marks(std::size_t count) override {
    return std::make_unique<StreamMarks>(*this, count);
  }

 private:
  class StreamMarks final : public Marks {
   public:
    StreamMarks(const StreamDevice& device, std::size_t count) : device_(device), at_(count) {}
    void set(std::size_t i) override { at_[i] = std::max(Clock::now(), device_.done_); }
    std::int64_t between_ns(std::size_t i, std::size_t j) override {
      std::this_thread::sleep_until(std::max(at_[i], at_[j]));
      return std::chrono::duration_cast<std::chrono::nanoseconds>(at_[j] - at_[i]).count();
    }

   private:
    const StreamDevice& device_;
    std::vector<Clock::time_point> at_;
  };

  class StreamKernel final : public PreparedKernel {
   public:
    StreamKernel(StreamDevice& device, KernelSpec spec)
        : device_(device), op_(*spec.op), inner_(device.device_->prepare(std::move(spec))) {}
    void launch(const LaunchOperands& operands, const LaunchContext& context) override {
      inner_->launch(operands, context);
      device_.count_launch(op_);
    }

   private:
    StreamDevice& device_;
    const OpDef& op_;
    const std::unique_ptr<PreparedKernel> inner_;
  };

  void count_launch(const OpDef& op) {
    constexpr std::chrono::microseconds kKernel{300};
    const bool is_cold = launches_++ < faults_.cold_launches;
    done_ = std::max(done_, Clock::now()) + (is_cold ? 20 * kKernel : kKernel);
    if (faults_.leaked_bytes > 0 && op.name == "cross_entropy") {
      leaked_.push_back(allocator().allocate(faults_.leaked_bytes, {}));
    }
  }

  std::unique_ptr<Device> device_;
  Faults faults_;
  Clock::time_point done_ = Clock::now();
  int launches_ = 0;
  std::vector<void*> leaked_;
};

class PlantedFaultTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static CellSpec spec(Mode mode, int warmup) {
    CellSpec out;
    out.step.model = {.vocab = 20, .d_model = 16, .d_ff = 24, .layers = 1, .heads = 2};
    out.step.shape = {.batch = 1, .context = 8};
    out.step.mode = mode;
    out.protocol.warmup = warmup;
    out.protocol.steps = 6;
    out.protocol.recorded_steps = 1;
    return out;
  }

  static CellResult measured(Faults faults, Mode mode = Mode::kForward, int warmup = 1) {
    const auto make = [&](const RunSpec&) -> std::unique_ptr<Device> {
      return std::make_unique<StreamDevice>(testing::backend_named("cpu").make({.threads = 1}),
                                            faults);
    };
    return measure_cell(make, spec(mode, warmup));
  }

  static ResultRow row_of(const CellResult& result) {
    return ResultRow::of(cell_columns(), cell_row(result), Json::object());
  }

  // The row as a label of its own: sizes of one's own carry their parameters in the column that a
  // JSON row has.
  static ResultRow labelled(const CellResult& result) {
    Json cells = Json::object();
    const std::vector<Column> columns = cell_columns();
    const std::vector<Json> row = cell_row(result);
    for (std::size_t i = 0; i < columns.size(); ++i) cells[columns[i].name] = row[i];
    const ModelConfig& m = result.spec.step.model;
    Json parameters = Json::object();
    parameters["d_model"] = m.d_model;
    parameters["d_ff"] = m.d_ff;
    parameters["layers"] = m.layers;
    cells["cell"] = parameters;
    return ResultRow(std::move(cells));
  }

  static std::vector<std::string> codes(const ResultRow& row) {
    std::vector<std::string> out;
    for (const Verdict& v : judge(row)) out.push_back(v.code);
    return out;
  }

  static bool has(const ResultRow& row, std::string_view code) {
    return std::ranges::count(codes(row), code) > 0;
  }
};

TEST_F(PlantedFaultTest, AClockThatDoesNotWaitIsFound) {
  const CellResult sound = measured({}), hasty = measured({.waits = false});
  EXPECT_FALSE(has(row_of(sound), "missing_synchronization"));
  EXPECT_TRUE(has(row_of(hasty), "missing_synchronization"));
  EXPECT_TRUE(summary_of(judge(row_of(hasty))).starts_with("invalid"));
}

TEST_F(PlantedFaultTest, AColdDeviceWithoutWarmupIsFound) {
  const CellResult cold = measured({.cold_launches = 10}, Mode::kForward, 0);
  const CellResult warmed = measured({.cold_launches = 10}, Mode::kForward, 2);
  EXPECT_GT(cold.samples_ms[0], 2 * cold.wall_ms);
  EXPECT_TRUE(has(row_of(cold), "no_warmup"));
  EXPECT_FALSE(has(row_of(warmed), "no_warmup"));
  EXPECT_LT(warmed.samples_ms[0], cold.samples_ms[0]);
}

TEST_F(PlantedFaultTest, ABufferThatIsNeverFreedIsFound) {
  const CellResult sound = measured({}, Mode::kForwardBackward);
  const CellResult leaky = measured({.leaked_bytes = 4096}, Mode::kForwardBackward);
  EXPECT_EQ(sound.peak_bytes, sound.predicted_peak_bytes);
  EXPECT_GE(leaky.peak_bytes, leaky.predicted_peak_bytes + 7 * 4096);  // a step each
  EXPECT_FALSE(has(row_of(sound), "two_graphs") || has(row_of(sound), "peak_differs"));
  EXPECT_TRUE(has(row_of(leaky), "two_graphs") || has(row_of(leaky), "peak_differs"));
}

TEST_F(PlantedFaultTest, ALabelOfAnotherCellIsFound) {
  CellResult forward = measured({}), both = measured({}, Mode::kForwardBackward);
  EXPECT_FALSE(has(row_of(forward), "swapped_label"));
  forward.spec.step.mode = Mode::kForwardBackward;
  both.spec.step.mode = Mode::kForward;
  EXPECT_TRUE(has(labelled(forward), "swapped_label"));
  EXPECT_TRUE(has(labelled(both), "swapped_label"));
}

// Products with a head of 21 rows and padding multiply more than the label says, by zeros.
TEST_F(PlantedFaultTest, APaddedVocabularyIsNoOtherLabel) {
  CellSpec odd = spec(Mode::kStep, 1);
  odd.step.model.vocab = 21;
  odd.step.precision = parse_precision("test", "bf16");
  odd.step.compile_passes = std::set<std::string>{"shadow"};
  const auto make = [](const RunSpec&) {
    return testing::backend_named("cpu").make({.threads = 1});
  };
  const CellResult plain = measure_cell(make, odd);
  odd.step.compile_passes->insert("pad");
  CellResult padded = measure_cell(make, odd);
  ASSERT_GT(padded.flops, plain.flops);
  EXPECT_FALSE(has(labelled(plain), "swapped_label"));
  EXPECT_FALSE(has(labelled(padded), "swapped_label"));
  padded.flops += padded.flops - plain.flops;
  EXPECT_TRUE(has(labelled(padded), "swapped_label"));
}

}  // namespace
}  // namespace tracestep
