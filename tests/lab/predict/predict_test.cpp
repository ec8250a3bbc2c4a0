// Predictions of small steps on the CPU: every launch has its share, more work takes no less time,
// and what a calibration or a history says changes what is predicted.
#include "lab/predict/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <set>

#include "analysis/cost.h"
#include "base/error.h"
#include "ir/parse.h"
#include "lab/predict/calibrate.h"
#include "lab/predict/measure_products.h"
#include "lab/predict/paces.h"
#include "lab/predict/power.h"
#include "lab/predict/published_times.h"
#include "lab/predict/sized_products.h"
#include "lab/predict/split_gain.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/backends.h"

namespace tracestep {
namespace {

constexpr CacheSizes kCaches{.near_bytes = 1 << 20, .shared_bytes = 32 << 20};

RunSpec tiny(std::int64_t d_model = 32, std::int64_t context = 16) {
  RunSpec out{.model = {.vocab = 50, .d_model = d_model, .d_ff = 64, .layers = 2, .heads = 2},
              .shape = {.batch = 2, .context = context}};
  out.place.threads = 1;
  return out;
}

DeviceFactory cpu() {
  return [](const RunSpec&) { return testing::backend_named("cpu").make({.threads = 1}); };
}

// Kernels whose time is known: 2 µs, and 1 µs for every 1000 operations.
double planted_us(const Efforts& amounts) {
  return 2.0 + at(amounts, Effort::kOperations) * 1e-3;
}

CalibratedStep planted_step(const RunSpec& run, bool is_held_out,
                            const CacheSizes& caches = kCaches) {
  CalibratedStep out{.key = key_of(run), .is_held_out = is_held_out};
  for (const KernelWork& w : kernel_work(step_program(run), {}, caches)) {
    const double us = planted_us(w.amounts);
    out.kernels.push_back({w.kernel, w.kernel_class, {w.amounts, us}, 1});
    out.busy_ms += us * 1e-3;
    ++out.launches;
  }
  out.wall_ms = out.busy_ms + static_cast<double>(out.launches) * 5e-3;  // gaps of 5 µs
  return out;
}

Calibration planted() {
  Calibration out{.identity = Json::Object{{"device", "cpu"}, {"threads", 1}},
                  .date_utc = "2026-01-02T03:04:05Z",
                  .caches = kCaches};
  for (std::int64_t width : {16, 48, 64}) out.steps.push_back(planted_step(tiny(width), false));
  out.steps.push_back(planted_step(tiny(32, 24), true));
  return out;
}

constexpr const char* kForwardProduct = "matmul f32,f32>f32 kk";

// Products: 1 µs for 1e6 FLOPs, and less by a power of each size.
double product_us(const ProductShape& s) {
  return 1e-6 * s.flops() * std::pow(s.m, -0.1) * std::pow(s.n, -0.2) * std::pow(s.k, -0.05);
}

std::vector<MeasuredProduct> planted_products() {
  std::vector<MeasuredProduct> out;
  for (std::int64_t m : {8, 64}) {
    for (std::int64_t n : {8, 32, 128}) {
      for (std::int64_t k : {8, 256}) {
        const ProductShape shape{m, n, k};
        out.push_back({kForwardProduct, shape, product_us(shape)});
      }
    }
  }
  return out;
}

class PredictTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(PredictTest, EveryLaunchHasWork) {
  for (Mode mode : kAll<Mode>) {
    RunSpec run = tiny();
    run.mode = mode;
    const Program program = step_program(run);
    std::size_t launches = 0;
    for (const KernelWork& w : kernel_work(program, {}, kCaches)) {
      EXPECT_EQ(at(w.amounts, Effort::kLaunches), 1) << w.kernel;
      EXPECT_GT(at(w.amounts, Effort::kOperations), 0) << w.kernel;
      for (double amount : w.amounts) EXPECT_GE(amount, 0) << w.kernel;
      ++launches;
    }
    EXPECT_EQ(static_cast<std::int64_t>(launches), launch_count(program));
  }
}

TEST_F(PredictTest, BytesAreNearWhileTheCachesHoldTheStep) {
  const Program program = step_program(tiny());
  const auto bytes = [&](const CacheSizes& caches, Effort q) {
    double out = 0;
    for (const KernelWork& w : kernel_work(program, {}, caches)) out += at(w.amounts, q);
    return out;
  };
  const CacheSizes large{.near_bytes = 1 << 30, .shared_bytes = 1 << 30};
  EXPECT_GT(bytes(large, Effort::kNearBytes), 0);
  EXPECT_EQ(bytes(large, Effort::kSharedBytes), 0);
  EXPECT_EQ(bytes(large, Effort::kMemoryBytes), 0);
  const double all = bytes(large, Effort::kNearBytes);
  EXPECT_NEAR(bytes({}, Effort::kMemoryBytes), all, 1e-6 * all);  // no caches
  const CacheSizes small{.near_bytes = 1 << 12, .shared_bytes = 1 << 16};
  EXPECT_GT(bytes(small, Effort::kNearBytes), 0);
  EXPECT_GT(bytes(small, Effort::kMemoryBytes), 0);
}

TEST_F(PredictTest, RatesAreFoundDespiteALaunchThatWasDisturbed) {
  std::vector<MeasuredWork> launches;
  for (double operations : {1e3, 5e3, 2e4, 1e5, 4e5}) {
    MeasuredWork m;
    at(m.amounts, Effort::kLaunches) = 1;
    at(m.amounts, Effort::kOperations) = operations;
    m.us = 2 + operations * 1e-3;
    launches.push_back(m);
  }
  launches[3].us *= 3;
  const Rates rates = fit_rates(launches);
  Efforts unseen{};
  at(unseen, Effort::kLaunches) = 1;
  at(unseen, Effort::kOperations) = 5e4;
  EXPECT_NEAR(rates.us(unseen), 52, 3);
  for (double rate : rates.us_per_unit) EXPECT_GE(rate, 0);
}

TEST_F(PredictTest, AnUnseenStepOfPlantedKernelsIsPredicted) {
  const auto model = make_time_model(planted());
  const RunSpec run = tiny(40, 20);
  const Prediction found = predict_run(run, {}, {*model});
  const CalibratedStep truth = planted_step(run, false);
  EXPECT_NEAR(found.time.ms / truth.wall_ms, 1, 0.01);
  EXPECT_NEAR(found.time.kernels_ms / truth.busy_ms, 1, 0.01);
  EXPECT_EQ(found.time.launches, truth.launches);
  EXPECT_LT(found.time.low_ms, found.time.ms);
  EXPECT_GT(found.time.high_ms, found.time.ms);
  double parts = 0;
  for (const PredictedPart& part : found.time.parts) parts += part.ms;
  EXPECT_NEAR(parts, found.time.kernels_ms, 1e-9);
  EXPECT_TRUE(found.time.uncalibrated.empty());
  EXPECT_GT(found.peak_bytes, 0);
}

// On a CPU kernels count in their quietest rounds: the step around them takes 4 % more.
TEST_F(PredictTest, AStepTakesMoreThanItsKernelsInTheirQuietestRounds) {
  constexpr double kMore = 0.04;
  const auto slowed = [&](CalibratedStep& step) { step.wall_ms += kMore * step.busy_ms; };
  Calibration calibration = planted();
  for (CalibratedStep& step : calibration.steps) slowed(step);
  const RunSpec run = tiny(40, 20);
  CalibratedStep truth = planted_step(run, false);
  slowed(truth);
  const StepTime found = predict_run(run, {}, {*make_time_model(calibration)}).time;
  EXPECT_NEAR(found.ms / truth.wall_ms, 1, 0.01);
  EXPECT_NEAR(found.kernels_ms / truth.busy_ms, 1, 0.01);
}

// Every step of the calibration as a device runs it whose host takes `product_us` for launching a
// product and `other_us` for anything else.
Calibration planted_queue(double product_us, double other_us) {
  Calibration out = planted();
  out.is_asynchronous = true;
  for (CalibratedStep& step : out.steps) {
    step.issue_ms = 0;
    for (const auto& launch : step.kernels) {
      step.issue_ms += (launch.kernel_class == KernelClass::kGemm ? product_us : other_us) * 1e-3;
    }
    step.wall_ms = std::max(step.busy_ms, step.issue_ms);
  }
  return out;
}

// Short kernels wait for the host, and those behind long ones for the device.
TEST_F(PredictTest, AStepWaitsForTheHostHereAndForTheDeviceThere) {
  constexpr double kProductUs = 50, kOtherUs = 35;
  const Calibration calibration = planted_queue(kProductUs, kOtherUs);
  const RunSpec run = tiny(32, 16);
  double issued_us = 0, ended_us = 0;
  for (const KernelWork& w : kernel_work(step_program(run), {}, kCaches)) {
    issued_us += w.kernel_class == KernelClass::kGemm ? kProductUs : kOtherUs;
    ended_us = std::max(ended_us, issued_us) + planted_us(w.amounts);
  }
  const StepTime found = predict_run(run, {}, {*make_time_model(calibration)}).time;
  EXPECT_NEAR(found.ms / (ended_us * 1e-3), 1, 0.01);
  EXPECT_GT(found.ms, 1.02 * std::max(issued_us * 1e-3, found.kernels_ms));
}

// A host that is now slow and now quick says so in the band, and only where a step waits for it.
TEST_F(PredictTest, TheBandIsAsWideAsTheHostIsUnsteady) {
  const auto band = [](double other_us) {
    Calibration calibration = planted_queue(other_us, other_us);
    calibration.steps[0].issue_ms *= 2;
    calibration.steps[1].issue_ms /= 2;
    const auto model = make_time_model(calibration);
    const StepTime found = predict_run(tiny(32, 16), {}, {*model}).time;
    return found.high_ms / found.low_ms;
  };
  EXPECT_GT(band(400), 2);
  EXPECT_LT(band(0.01), 1.2);
}

// Kernels one behind the other are 5 % slower than by themselves, and overlap by 2 µs.
TEST_F(PredictTest, AGraphsKernelsOverlapAndSlowEachOtherDown) {
  const auto as_graph = [](CalibratedStep& step) {
    step.executor = ExecutorKind::kCompiled;
    step.key["executor"] = "compiled";
    step.wall_ms = 1.05 * step.busy_ms - 2e-3 * static_cast<double>(step.launches);
  };
  Calibration calibration = planted();
  calibration.is_asynchronous = true;
  for (CalibratedStep& step : calibration.steps) as_graph(step);
  RunSpec run = tiny(40, 20);
  CalibratedStep truth = planted_step(run, false);
  as_graph(truth);
  run.executor = ExecutorKind::kCompiled;
  run.compile_passes = std::set<std::string>();
  const StepTime found = predict_run(run, {}, {*make_time_model(calibration)}).time;
  ASSERT_EQ(found.launches, truth.launches);
  EXPECT_NEAR(found.ms / truth.wall_ms, 1, 0.01);
}

TEST_F(PredictTest, MoreWorkNeverTakesLessTime) {
  const auto model = make_time_model(planted());
  const auto ms = [&](const RunSpec& run) { return predict_run(run, {}, {*model}).time.ms; };
  RunSpec run = tiny();
  double before = 0;
  for (Mode mode : kAll<Mode>) {
    run.mode = mode;
    EXPECT_GE(ms(run), before) << name_of(mode);
    before = ms(run);
  }
  run.recompute = parse_recomputation("test", "blocks");
  EXPECT_GT(ms(run), before);
  run.shape.batch *= 4;
  EXPECT_GT(ms(run), before);
}

TEST_F(PredictTest, KernelsThatWereNotCalibratedAreNamed) {
  RunSpec run = tiny();
  run.precision = {.parameters = DType::kBF16};
  const auto model = make_time_model(planted());
  const Prediction found = predict_run(run, {}, {*model});
  EXPECT_FALSE(found.time.uncalibrated.empty());
  EXPECT_GT(found.time.ms, 0);
  // The band is as wide as nobody knows them: their share, which may be half or twice as long.
  const Prediction known = predict_run(tiny(), {}, {*model});
  const double share = found.time.uncalibrated_ms / found.time.kernels_ms;
  EXPECT_EQ(known.time.uncalibrated_ms, 0);
  EXPECT_GT(share, 0.5);
  EXPECT_LE(share, 1);
  EXPECT_NEAR(known.time.high_ms / known.time.ms, 1 + model->spread(), 1e-9);
  EXPECT_NEAR(found.time.high_ms / found.time.ms, (1 + model->spread()) * (1 + share), 1e-9);
}

TEST_F(PredictTest, PublishedPeaksBoundAStep) {
  const auto slow = make_time_model(DevicePeaks{"slow", 10, 100, 1000});
  const auto fast = make_time_model(DevicePeaks{"fast", 20, 200, 2000});
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const RunSpec run{.model = preset("small"), .shape = {.batch = 4, .context = 128}};
  const Prediction a = predict_run(run, gpu, {*slow}), b = predict_run(run, gpu, {*fast});
  EXPECT_LT(b.time.ms, a.time.ms);
  EXPECT_NEAR(b.time.low_ms * 2, a.time.low_ms, 1e-9 * a.time.low_ms);
  const double flops = 3 * forward_flops(run.model, 4, 128);
  EXPECT_GT(a.time.low_ms, flops / 10e12 * 1e3);
  EXPECT_LT(a.time.low_ms, a.time.ms);
  EXPECT_LT(a.time.ms, a.time.high_ms);
}

// Attention has a share of its own, and the band is wider by its part of the step.
TEST_F(PredictTest, AttentionTakesItsOwnShareOfThePeak) {
  const DevicePeaks peaks{"a device", 10, 100, 1e6};  // no kernel waits for its bytes
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const auto at = [&](double attention, std::int64_t context) {
    RunSpec run{.model = preset("small"), .shape = {.batch = 1, .context = context}};
    run.attention = AttentionForm::kFlash;
    run.precision = parse_precision("test", "bf16");
    const ReachedShares shares{.products = 0.5, .attention = attention};
    return predict_run(run, gpu, {*make_time_model(peaks, shares)}).time;
  };
  const auto attention_ms = [](const StepTime& time) {
    double out = 0;
    for (const PredictedClass& c : time.classes) {
      if (c.kernel_class == KernelClass::kAttention)
        out += c.ms - 3e-3 * static_cast<double>(c.launches);
    }
    return out;
  };
  const StepTime half = at(0.5, 2048), quarter = at(0.25, 2048);
  EXPECT_NEAR(attention_ms(quarter), 2 * attention_ms(half), 1e-6 * attention_ms(half));
  EXPECT_NEAR(quarter.ms - half.ms, attention_ms(half), 1e-6 * half.ms);
  const auto width = [](const StepTime& time) { return time.high_ms / time.ms; };
  EXPECT_GT(width(at(0.5, 8192)), width(half) + 0.1);
  EXPECT_GT(width(half), 1.5);
}

// Tiles on the diagonal are half empty: short contexts reach less of what long ones do.
TEST_F(PredictTest, AttentionOfShortContextsReachesLess) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const auto attention_ms = [&](double half_context, std::int64_t context) {
    RunSpec run{.model = preset("small"), .shape = {.batch = 1, .context = context}};
    run.attention = AttentionForm::kFlash;
    run.precision = parse_precision("test", "bf16");
    const ReachedShares shares{.half_context = half_context};
    double out = 0;
    for (const PredictedClass& c :
         predict_run(run, gpu, {*make_time_model(DevicePeaks{"a", 10, 100, 1e6}, shares)})
             .time.classes) {
      if (c.kernel_class != KernelClass::kAttention) continue;
      out += c.ms - 3e-3 * static_cast<double>(c.launches);
    }
    return out;
  };
  EXPECT_NEAR(attention_ms(1024, 1024), 2 * attention_ms(0, 1024), 1e-9);
  EXPECT_NEAR(attention_ms(1024, 4096), 1.25 * attention_ms(0, 4096), 1e-9);
}

// Where a product's bytes are not hidden behind its arithmetic, both take their time.
TEST_F(PredictTest, BytesOfProductsAreAddedWhereTheGenerationHasIt) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const RunSpec run{.model = preset("small"), .shape = {.batch = 4, .context = 128}};
  const auto ms = [&](const ReachedShares& shares, double gb_s) {
    return predict_run(run, gpu, {*make_time_model(DevicePeaks{"a", 10, 100, gb_s}, shares)})
        .time.ms;
  };
  EXPECT_GT(ms({.adds_bytes = true}, 1000), ms({}, 1000));
  EXPECT_NEAR(ms({.adds_bytes = true}, 1e12), ms({}, 1e12), 1e-6);
}

TEST_F(PredictTest, WhatPartsWouldGainIsSaidWhereItIsKnown) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const DevicePeaks hopper{.name = "a device",
                           .fp32_tflops = 10,
                           .bf16_tflops = 300,
                           .bandwidth_gb_s = 1000,
                           .fp16_tflops = 300,
                           .multiplies_by_parts = true};
  RunSpec run{.model = preset("small"), .shape = {.batch = 4, .context = 128}};
  const std::optional<double> gain = split_gain(run, gpu, *make_time_model(hopper));
  ASSERT_TRUE(gain);
  EXPECT_GT(*gain, 1.5);
  EXPECT_LT(*gain, 10);
  EXPECT_FALSE(split_gain(run, gpu, *make_time_model(planted()))) << "was not measured";
  run.precision = parse_precision("test", "tf32");
  EXPECT_FALSE(split_gain(run, gpu, *make_time_model(hopper)));
}

// An update of states in the host's memory takes as long as they need over the link.
TEST_F(PredictTest, StatesInHostMemoryTakeTheTimeOfTheLink) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  RunSpec run = tiny();
  const Prediction plain = predict_run(run, gpu, {*make_time_model(planted())});
  run.offload = Offload::kOptimizer;
  Calibration linked = planted();
  linked.host_bytes_per_us = 0.5;  // so slow that nothing else counts
  const Prediction moved = predict_run(run, gpu, {*make_time_model(linked)});
  EXPECT_EQ(plain.peak_bytes - moved.peak_bytes, moved.host_bytes);
  const auto optimizer_ms = [](const Prediction& p) {
    double out = 0;
    for (const PredictedPart& part : p.time.parts) {
      if (part.phase == Phase::kOptimizer) out += part.ms;
    }
    return out;
  };
  EXPECT_NEAR(optimizer_ms(moved) * 1e3 * 0.5, static_cast<double>(moved.host_bytes), 1e-3);
  EXPECT_LT(optimizer_ms(plain), optimizer_ms(moved));
  const Prediction unknown = predict_run(run, gpu, {*make_time_model(planted())});
  EXPECT_EQ(std::ssize(unknown.time.uncalibrated), std::ssize(plain.time.uncalibrated) + 1);
  const DevicePeaks peaks{"a device", 10, 100, 1000, 1e-3};
  const double least_ms = static_cast<double>(moved.host_bytes) * 1e-3;
  EXPECT_GT(predict_run(run, gpu, {*make_time_model(peaks)}).time.low_ms, least_ms);
}

// A device that draws 100 W, 2 pJ for a FLOP of a product and 30 pJ for a byte of memory.
TEST_F(PredictTest, EnergyIsFoundFromThePowerOfSustainedSteps) {
  const auto joules_of = [](const CalibratedStep& step) {
    Efforts amounts{};
    for (const auto& launch : step.kernels) {
      add_amounts(launch.kernel_class, launch.work.amounts, static_cast<double>(launch.count),
                  amounts);
    }
    return 100 * step.wall_ms * 1e-3 + 2e-6 * at(amounts, Effort::kOperations) +
           30e-6 * at(amounts, Effort::kMemoryBytes);
  };
  Calibration calibration = planted();
  calibration.caches = {};  // all bytes are of memory
  calibration.steps.clear();
  for (const auto& [width, context] : {std::pair{16, 16}, {48, 16}, {64, 64}, {32, 128}}) {
    calibration.steps.push_back(planted_step(tiny(width, context), false, {}));
  }
  calibration.steps.push_back(planted_step(tiny(32, 24), true, {}));
  const RunSpec run = tiny(40, 20);
  EXPECT_EQ(predict_run(run, {}, {*make_time_model(calibration)}).time.joules, 0) << "not measured";
  for (CalibratedStep& step : calibration.steps) step.watts = joules_of(step) / step.wall_ms * 1e3;
  const auto model = make_time_model(calibration);
  const double truth = joules_of(planted_step(run, false, {}));
  EXPECT_NEAR(predict_run(run, {}, {*model}).time.joules / truth, 1, 0.05);
  RunSpec narrow = run;
  narrow.precision = {.parameters = DType::kBF16};
  EXPECT_EQ(predict_run(narrow, {}, {*model}).time.joules, 0) << "no such products were measured";
  const Calibration read = parse_calibration(text_of(calibration), "file", calibration.identity);
  EXPECT_EQ(read.steps[0].watts, calibration.steps[0].watts);
}

TEST_F(PredictTest, PowerIsWhatACounterMovedBy) {
  constexpr std::int64_t kMs = 1'000'000;
  EXPECT_FALSE(watts_between({{0, 5.0}})) << "one move says nothing of the time before it";
  EXPECT_FALSE(watts_between({{0, 5.0}, {20 * kMs, 7.0}})) << "too close";
  EXPECT_NEAR(watts_between({{0, 5.0}, {20 * kMs, 7.0}, {100 * kMs, 25.0}}).value(), 200, 1e-9);
}

TEST_F(PredictTest, ACalibrationIsReadAsItWasWritten) {
  Calibration c = planted();
  c.host_bytes_per_us = 5e4;
  c.products = planted_products();
  const Calibration read = parse_calibration(text_of(c), "file", c.identity);
  EXPECT_EQ(read.host_bytes_per_us, 5e4);
  EXPECT_EQ(read.products.size(), c.products.size());
  c.host_bytes_per_us = 0;
  const std::string text = text_of(c);
  EXPECT_EQ(text_of(parse_calibration(text, "file", c.identity)), text);
}

TEST_F(PredictTest, ProductsBetweenMeasuredSizesAreInterpolated) {
  const ProductTimes times(planted_products());
  for (const ProductShape& shape : {ProductShape{8, 8, 8}, {64, 128, 256}, {20, 100, 30}}) {
    EXPECT_NEAR(*times.us(kForwardProduct, shape) / product_us(shape), 1, 1e-9) << shape.n;
  }
  const double largest_us = product_us({64, 128, 256});
  EXPECT_NEAR(*times.us(kForwardProduct, {128, 256, 512}) / largest_us, 8, 1e-9);
  EXPECT_FALSE(times.us(kForwardProduct, {7, 100, 30}));
  EXPECT_FALSE(times.us("matmul f32,f32>f32 kn", {20, 100, 30}));
  EXPECT_FALSE(times.us(kForwardProduct, {}));
}

TEST_F(PredictTest, AProductOfAMeasuredSizeTakesWhatWasMeasured) {
  const ProductShape shape{20, 100, 30}, small{7, 100, 30}, other{20, 100, 31};
  const ProductTimes without(planted_products());
  EXPECT_TRUE(without.interpolates(kForwardProduct, shape));
  EXPECT_FALSE(without.interpolates(kForwardProduct, {8, 8, 8}));  // of the grid
  EXPECT_FALSE(without.interpolates("another kernel", shape));
  const MeasuredProduct sized[] = {{kForwardProduct, shape, 7.0}, {kForwardProduct, small, 3.0}};
  const ProductTimes times(planted_products(), sized);
  EXPECT_EQ(*times.us(kForwardProduct, shape), 7.0);
  EXPECT_EQ(*times.us(kForwardProduct, small), 3.0);
  EXPECT_FALSE(times.interpolates(kForwardProduct, shape));
  EXPECT_EQ(*times.us(kForwardProduct, other), *without.us(kForwardProduct, other));
}

// The layer of every product of a step is timed, and then nothing is missing.
TEST_F(PredictTest, ProductsOfAStepAreTimedAtTheirSizes) {
  const auto device = [] { return testing::backend_named("cpu").make({.threads = 1}); };
  Calibration c = planted();
  const ProductGrid grid{.rows = {16, 48}, .widths = {8, 32}};
  c.products = measure_products(*device(), DType::kF32, layers_of(grid));
  const std::set<NamedProduct> wanted = products_of(step_program(tiny()));
  ASSERT_FALSE(wanted.empty());
  const SizedProducts found = measure_sized_products(device, wanted, c);
  EXPECT_GT(found.ratio, 0);
  c.sized_products = found.measured;
  const ProductTimes times(c.products, c.sized_products);
  for (const auto& [kernel, shape] : wanted) {
    EXPECT_TRUE(times.us(kernel, shape)) << kernel;
    EXPECT_FALSE(times.interpolates(kernel, shape)) << kernel;
  }
  EXPECT_TRUE(measure_sized_products(device, wanted, c).measured.empty());
  Calibration kept = planted();
  kept.sized_products = found.measured;
  const std::string text = text_of(kept);
  EXPECT_EQ(text_of(parse_calibration(text, "file", kept.identity)), text);
  // A device without a grid has rates.
  EXPECT_TRUE(measure_sized_products(device, wanted, planted()).measured.empty());
}

TEST_F(PredictTest, AStepsProductsTakeTheTimeOfTheirSizes) {
  Calibration c = planted();
  c.products = planted_products();
  RunSpec run = tiny();
  run.mode = Mode::kInference;
  const Program program = step_program(run);
  double difference_us = 0;
  for (const KernelWork& w : kernel_work(program, {}, kCaches)) {
    if (w.kernel == kForwardProduct) difference_us += product_us(w.product) - planted_us(w.amounts);
  }
  ASSERT_NE(difference_us, 0);
  const auto ms = [&](const Calibration& from) {
    return make_time_model(from)->time_of(run, program, {}).kernels_ms;
  };
  const double rates_ms = ms(planted());
  EXPECT_NEAR(ms(c) - rates_ms, difference_us * 1e-3, 1e-3 * rates_ms);
  // They say nothing of products with rounded operands, which the plan has no steps of either.
  run.precision.tf32 = true;
  EXPECT_FALSE(make_time_model(c)->time_of(run, program, {}).uncalibrated.empty());
}

// A product that ends with SwiGLU, or its gradients, which no calibration has seen.
TEST_F(PredictTest, AProductThatEndsOtherwiseTakesTheTimeOfBothKernels) {
  Calibration c = planted();
  c.products = planted_products();
  const auto us_of = [&](const std::string& text) {
    const StepTime time = make_time_model(c)->time_of(tiny(), parse_program(text), {}, {});
    EXPECT_TRUE(time.uncalibrated.empty());
    EXPECT_EQ(time.launches, 1);
    return time.kernels_ms * 1e3;
  };
  const double gating_us = 2.0 + 16 * 32 * 1e-3;
  const double forward_us = us_of(R"(program "p" {
    input %x : f32[16,24]
    parameter %w : f32[64,24]
    %0, %1 : f32[16,64], f32[16,32] = matmul_swiglu(%x, %w)
    output "g" = %0
    output "h" = %1 })");
  EXPECT_NEAR(forward_us, product_us({16, 64, 24}) + gating_us, 1e-3 * forward_us);
  for (MeasuredProduct& product : c.products) product.kernel = "matmul f32,f32>f32 kn";
  const double backward_us = us_of(R"(program "p" {
    input %dy : f32[16,24]
    parameter %w : f32[24,32]
    input %g : f32[16,64]
    %0 : f32[16,64] = matmul_swiglu_grad(%dy, %w, %g)
    output "dg" = %0 })");
  EXPECT_NEAR(backward_us, product_us({16, 32, 24}) + gating_us, 1e-3 * backward_us);
}

TEST_F(PredictTest, ProductsAreMeasuredUnderTheNamesThatStepsGiveThem) {
  const ProductGrid grid{.rows = {16, 48}, .widths = {8, 24}};
  const std::unique_ptr<Device> device = testing::backend_named("cpu").make({.threads = 1});
  const std::vector<MeasuredProduct> found =
      measure_products(*device, DType::kF32, layers_of(grid));
  EXPECT_EQ(found.size(), 2u * 2u * 2u * 5u);
  const ProductTimes times(found);
  int products = 0;
  for (const KernelWork& w : kernel_work(step_program(tiny()), {}, kCaches)) {
    if (w.product == ProductShape()) continue;
    EXPECT_TRUE(times.us(w.kernel, {24, 24, 24})) << w.kernel;
    ++products;
  }
  EXPECT_GE(products, 3 * (2 * 7 + 1));  // of two layers and the head, with their gradients
  for (const char* kernel : {"matmul_add f32,f32,f32>f32 kk", "matmul_add f32,f32,f32>f32 kn"}) {
    EXPECT_GT(times.us(kernel, {24, 24, 24}), 0) << kernel;
  }
}

// The message of the error that reading the text throws.
std::string refusal(const std::string& text, const Json& identity) {
  try {
    parse_calibration(text, "file", identity);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "";
}

TEST_F(PredictTest, ADamagedOrForeignCalibrationIsRefused) {
  const Calibration c = planted();
  const std::string text = text_of(c);
  std::string changed = text;
  const std::size_t digit = changed.find("\"wall_ms\":") + 10;
  changed[digit] = changed[digit] == '9' ? '8' : '9';
  EXPECT_THAT(refusal(changed, c.identity), ::testing::HasSubstr("damaged"));
  EXPECT_THAT(refusal(text.substr(0, text.size() / 2), c.identity),
              ::testing::HasSubstr("no calibration"));
  EXPECT_THAT(refusal("{}", c.identity), ::testing::HasSubstr("no calibration"));
  EXPECT_THAT(refusal(text, Json::Object{{"device", "cpu"}, {"threads", 4}}),
              ::testing::HasSubstr("threads 1, here 4"));
  Calibration lying = planted();
  lying.steps[0].kernels[0].work.us = 0;
  EXPECT_THAT(refusal(text_of(lying), c.identity), ::testing::HasSubstr("not measured"));
  lying = planted();
  lying.steps.pop_back();
  EXPECT_THAT(refusal(text_of(lying), c.identity), ::testing::HasSubstr("steps are missing"));
  lying = planted();
  lying.products = planted_products();
  lying.products.erase(lying.products.begin() + 3);
  EXPECT_THAT(refusal(text_of(lying), c.identity), ::testing::HasSubstr("f32 kk are missing"));
}

TEST_F(PredictTest, ASlowerDeviceAndALyingFileAreFoundOut) {
  const CalibrationPlan plan{.steps = {{tiny(), false}, {tiny(48), true}}, .date_utc = "then"};
  Calibration c = *calibrate(cpu(), plan);
  ASSERT_EQ(c.steps.size(), 2u);
  EXPECT_GT(c.steps[0].wall_ms, 0);
  EXPECT_FALSE(c.steps[0].kernels.empty());
  const double then_ms = c.steps[1].wall_ms;
  c.steps[1].wall_ms = then_ms / 1000;
  EXPECT_THAT(verdict_of(spot_check(cpu(), c, tiny().place), c.date_utc),
              ::testing::HasSubstr("slower since"));
  c.steps[1].wall_ms = then_ms * 1000;
  EXPECT_THAT(verdict_of(spot_check(cpu(), c, tiny().place), c.date_utc),
              ::testing::HasSubstr("faster since"));
  EXPECT_EQ(verdict_of({.steps = {}, .ratio = 1.1}, "then"), "");
}

TEST_F(PredictTest, ProductsOfFloat32TakeWholeWavesWhereMultiprocessorsAreKnown) {
  std::vector<MeasuredProduct> measured;
  for (const char* kernel : {kForwardProduct, "matmul bf16,bf16>bf16 kk"}) {
    for (std::int64_t m : {64, 1024}) {
      for (std::int64_t n : {64, 1024}) {
        for (std::int64_t k : {64, 256}) {
          measured.push_back({kernel, {m, n, k}, 1e-6 * ProductShape{m, n, k}.flops()});
        }
      }
    }
  }
  // Two tiles of 128 x 128, and a row more.
  const auto jump = [&](std::int64_t multiprocessors, const std::string& kernel) {
    const ProductTimes times(measured, {}, multiprocessors);
    return *times.us(kernel, {257, 128, 128}) / *times.us(kernel, {256, 128, 128});
  };
  EXPECT_GT(jump(1, kForwardProduct), 1.2);
  EXPECT_LT(jump(0, kForwardProduct), 1.01);
  EXPECT_LT(jump(1, "matmul bf16,bf16>bf16 kk"), 1.01);
  const ProductTimes times(measured, {}, 4);
  for (const MeasuredProduct& p : measured) {
    EXPECT_NEAR(*times.us(p.kernel, p.shape) / p.us, 1, 1e-9);  // what was measured stays
  }
}

// Ended after its first step, and gone on with.
TEST_F(PredictTest, ACalibrationGoesOnWhereItEnded) {
  CalibrationPlan plan{.steps = {{tiny(), false}, {tiny(48), true}}, .date_utc = "then"};
  std::vector<std::string> measured;
  std::optional<Calibration> kept;
  {
    const StopSignal stop("the test goes on");
    plan.keep = [&](const Calibration& begun) { kept = begun; };
    plan.progress = [&](const std::string&, std::size_t index, std::size_t) {
      if (index == 1) stop.take_over(SIGINT);
    };
    EXPECT_FALSE(calibrate(cpu(), plan, &stop));
  }
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->steps.size(), 1u);
  const std::string text = text_of(*kept);
  EXPECT_THROW(parse_calibration(text, "file", {}), Error);
  plan.begun = parse_calibration(text, "file", Json::object(), true);
  plan.most_seconds = 1e-9;  // one round
  plan.progress = [&](const std::string& step, std::size_t, std::size_t) {
    measured.push_back(step);
  };
  const std::optional<Calibration> whole = calibrate(cpu(), plan);
  ASSERT_TRUE(whole);
  EXPECT_EQ(measured.size(), 1u);
  ASSERT_EQ(whole->steps.size(), 2u);
  EXPECT_EQ(whole->steps[0].wall_ms, kept->steps[0].wall_ms);
  plan.steps[0].run.shape.batch *= 2;  // of another plan nothing is taken
  measured.clear();
  EXPECT_TRUE(calibrate(cpu(), plan));
  EXPECT_EQ(measured.size(), 2u);
}

TEST_F(PredictTest, WhatLaunchesTakeInStepsCorrectsThoseThatAreLikeThem) {
  Paces paces;
  for (const double us : {100.0, 120.0}) paces.add("a", us, 1.2 * us);
  paces.add("a", 1e4, 0.9e4);
  EXPECT_NEAR(paces.factor("a", 110), 1.2, 0.05);
  EXPECT_LT(paces.factor("a", 1e4), 1);
  EXPECT_NEAR(paces.factor("a", 1), 1, 1e-6);  // far from all of them
  EXPECT_EQ(paces.factor("b", 110), 1);
  paces.add("b", 10, 100);
  EXPECT_LT(paces.factor("b", 10), 1.35);
  double before = 0;  // more work takes no less time
  for (double us = 0.1; us < 1e6; us *= 1.05) {
    const double now = us * paces.factor("a", us);
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST_F(PredictTest, WhatWasCheckedHasItsParts) {
  const auto model = make_time_model(planted());
  Prediction p = predict_run(tiny(), {}, {*model});
  check_prediction(cpu(), {.warmup = 1, .steps = 2, .recorded_steps = 1}, nullptr, p);
  ASSERT_EQ(p.status, Status::kOk);
  EXPECT_GT(p.measured_ms, 0);
  ASSERT_EQ(p.measured_parts_ms.size(), p.time.parts.size());
  for (std::size_t i = 0; i < p.measured_parts_ms.size(); ++i) {
    EXPECT_GT(p.measured_parts_ms[i], 0) << p.time.parts[i].component;
  }
  const Table table = prediction_table(std::vector<Prediction>{p});
  EXPECT_EQ(table.rows.size(), 1u);
  EXPECT_THAT(table.notes.at(0), ::testing::HasSubstr("of 1 cells"));
  EXPECT_EQ(prediction_parts_table(p).rows.size(), p.time.parts.size() + 1);
}

CheckedCell checked(const RunSpec& run, double ratio, const std::string& calibrated = "now") {
  return {.date_utc = "now",
          .calibrated_utc = calibrated,
          .key = key_of(run),
          .model_ms = 10,
          .predicted_ms = 10,
          .measured_ms = 10 * ratio};
}

TEST_F(PredictTest, TheHistoryCorrectsWhatIsLikeIt) {
  const std::vector<CheckedCell> same(12, checked(tiny(), 1.2));
  const Correction close = correction_for(tiny(), same, "now", 0.1);
  EXPECT_NEAR(close.factor, 1.17, 0.02);
  EXPECT_LT(close.spread, 0.05);
  RunSpec other = tiny();
  other.precision = {.autocast = DType::kBF16};
  other.mode = Mode::kInference;
  const Correction far = correction_for(other, same, "now", 0.1);
  EXPECT_LT(far.factor, close.factor);
  EXPECT_GT(far.factor, 1);
  RunSpec close_by = tiny();
  close_by.updates = UpdateTime::kEarly;
  const double factor = correction_for(close_by, same, "now", 0.1).factor;
  EXPECT_GT(factor, far.factor);
  EXPECT_LT(factor, close.factor);
  CheckedCell old = same[0];  // older than the field
  old.key = part_of_key(tiny(), [](const RunField& field) { return field.name != "updates"; });
  EXPECT_EQ(correction_for(tiny(), std::vector(12, old), "now", 0.1).factor, close.factor);
  EXPECT_EQ(correction_for(tiny(), same, "later", 0.1).cells, 0);  // another calibration
  const std::vector<CheckedCell> one{checked(tiny(), 1.5)};
  const Correction careful = correction_for(tiny(), one, "now", 0.1);
  EXPECT_LT(careful.factor, 1.2);
  EXPECT_GE(careful.spread, 0.1);
}

TEST_F(PredictTest, AHistoryIsReadAsItWasWrittenAndFaultsAreNamed) {
  const std::string lines =
      line_of(checked(tiny(), 1.1)) + "\n" + line_of(checked(tiny(), 0.9)) + "\n";
  const std::vector<CheckedCell> read = parse_history(lines, "file").cells;
  ASSERT_EQ(read.size(), 2u);
  EXPECT_NEAR(read[0].error_percent(), -9.09, 0.01);
  EXPECT_EQ(line_of(read[1]) + "\n", lines.substr(lines.find('\n') + 1));
  EXPECT_EQ(history_table(read).rows.size(), 2u);
  // The other lines are read.
  const auto fault = [&](const std::string& line) -> std::string {
    const History found = parse_history(lines + line + "\n" + lines, "file");
    EXPECT_EQ(found.cells.size(), 4u);
    return found.faults.empty() ? "" : found.faults.at(0);
  };
  EXPECT_THAT(fault("{\"cell\""), ::testing::HasSubstr("file, line 3"));
  EXPECT_THAT(fault("{\"cell\": 1}"), ::testing::HasSubstr("file, line 3"));
  CheckedCell never = checked(tiny(), 1);
  for (double ms : {-1.0, 0.0, 1e-300, 1e300}) {
    never.measured_ms = ms;
    EXPECT_THAT(fault(line_of(never)), ::testing::HasSubstr("no time")) << ms;
  }
  EXPECT_THAT(fault(line_of(checked(tiny(), 1001))), ::testing::HasSubstr("were predicted"));
  CheckedCell told = checked(tiny(), 1);
  told.predicted_ms = told.measured_ms * 1001;
  EXPECT_THAT(fault(line_of(told)), ::testing::HasSubstr("were predicted"));
}

TEST_F(PredictTest, AHistoryWithoutCorrectedTimesIsOfWhatTheCalibrationSaid) {
  std::string line = line_of(checked(tiny(), 2));
  const std::size_t begin = line.find("\"corrected_ms\""), end = line.find("\"measured_ms\"");
  ASSERT_LT(begin, end);
  const CheckedCell read = parse_history(line.erase(begin, end - begin), "file").cells.at(0);
  EXPECT_EQ(read.predicted_ms, read.model_ms);
}

TEST_F(PredictTest, WhatTheHistoryChangedIsSaid) {
  const auto model = make_time_model(planted());
  const std::vector<CheckedCell> history(12, checked(tiny(), 3, model->date_utc()));
  const Prediction plain = predict_run(tiny(), {}, {*model}),
                   corrected = predict_run(tiny(), {}, {*model, history});
  EXPECT_EQ(correction_note({&plain, 1}), "");
  EXPECT_THAT(correction_note({&corrected, 1}),
              ::testing::StartsWith(
                  fmt::format("{:.2f} times the calibration's, as 12 checked steps of the history "
                              "suggest; so much is more than an error",
                              corrected.time.ms / plain.time.ms)));
  const std::vector<CheckedCell> close(12, checked(tiny(), 1.2, model->date_utc()));
  const Prediction usual = predict_run(tiny(), {}, {*model, close});
  EXPECT_THAT(correction_note({&usual, 1}), ::testing::EndsWith("of the history suggest"));
}

}  // namespace
}  // namespace tracestep
