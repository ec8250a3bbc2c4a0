// What tests of the C interface share: sessions that close themselves, and runs of a small module.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "capi/tracestep.h"
#include "support/paths.h"

namespace tracestep {

inline std::string fixture() {
  return (testing::source_folder() / "tests/captured/tiny").string();
}

// A session that closes itself.
class Opened {
 public:
  explicit Opened(const char* words = "device=cpu threads=1", int rule = TRACESTEP_ADAMW,
                  int accumulate = 1) {
    tracestep_options options{};
    options.size = sizeof options;
    options.words = words;
    options.rule = rule;
    options.accumulate = accumulate;
    status = tracestep_open(&options, &session);
  }
  explicit Opened(const tracestep_options& options) : status(tracestep_open(&options, &session)) {}
  ~Opened() { tracestep_close(session); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  tracestep_run* plan(tracestep_kind kind) const {
    tracestep_run* run = nullptr;
    const std::string folder = fixture();
    const char* const program = kind == TRACESTEP_UPDATE ? nullptr : folder.c_str();
    EXPECT_EQ(tracestep_plan(session, program, kind, &run), TRACESTEP_OK) << tracestep_message();
    return run;
  }

  tracestep_session* session = nullptr;
  int status = 0;
};

inline std::vector<tracestep_tensor> tensors_of(const tracestep_run* run) {
  std::vector<tracestep_tensor> out;
  tracestep_tensor tensor{};
  while (tracestep_tensor_at(run, std::ssize(out), &tensor) == TRACESTEP_OK) out.push_back(tensor);
  return out;
}

// Fills the inputs that are not the optimizer's: ones, or ids 0, 1, 2, from `shift` on.
inline void fill_inputs(tracestep_run* run, std::int64_t shift = 0) {
  for (const tracestep_tensor& x : tensors_of(run)) {
    const std::string name = x.name, dtype = x.dtype;
    if (x.role != TRACESTEP_IN || name == "lr" || name == "step_size") continue;
    std::vector<std::byte> bytes(static_cast<std::size_t>(x.bytes));
    for (std::int64_t i = 0; dtype == "i64" && i < x.bytes / 8; ++i) {
      reinterpret_cast<std::int64_t*>(bytes.data())[i] = (i + shift) % 3;
    }
    for (std::int64_t i = 0; dtype == "f32" && i < x.bytes / 4; ++i) {
      reinterpret_cast<float*>(bytes.data())[i] = 1.0F;
    }
    ASSERT_EQ(tracestep_set(run, x.name, bytes.data(), x.bytes), TRACESTEP_OK);
  }
}

inline float loss_of(tracestep_run* run) {
  float loss = NAN;
  EXPECT_EQ(tracestep_go(run, nullptr), TRACESTEP_OK) << tracestep_message();
  EXPECT_EQ(tracestep_get(run, "loss", &loss, sizeof loss), TRACESTEP_OK) << tracestep_message();
  return loss;
}

inline void start(tracestep_run* run) {
  ASSERT_EQ(tracestep_start(run), TRACESTEP_OK) << tracestep_message();
  fill_inputs(run);
}

// The weights of a run, one behind the other.
inline std::vector<float> weights_of(tracestep_run* run) {
  std::vector<float> out;
  for (const tracestep_tensor& x : tensors_of(run)) {
    if (x.role != TRACESTEP_PARAMETER) continue;
    std::vector<float> values(static_cast<std::size_t>(x.bytes / 4));
    EXPECT_EQ(tracestep_get(run, x.name, values.data(), x.bytes), TRACESTEP_OK);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

}  // namespace tracestep
