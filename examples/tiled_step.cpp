// The op of tiled_sum.h in steps as a library: a program that names it, trained through the C
// interface of capi/tracestep.h, once with kernels of its own and once without.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "capi/step/devices.h"
#include "capi/tracestep.h"
#include "tiled_sum.h"

constexpr const char* kProgram = R"(program "fit" {
  input %x : f32[37,50]
  input %wanted : f32[37]
  parameter %w : f32[50]
  %0 : f32[37] = tiled_sum(%x, %w) @ sum forward
  %1 : f32[37] = sub(%0, %wanted) @ loss forward
  %2 : f32[37] = square(%1) @ loss forward
  %3 : f32[] = sum(%2) {axes=[0]} @ loss forward
  output "loss" = %3
})";
constexpr std::int64_t kRows = 37, kWidth = 50, kSteps = 30;

void check(int status) {
  if (status == TRACESTEP_OK) return;
  std::fprintf(stderr, "tiled_step: %s\n", tracestep_message());
  std::exit(status);
}

// The losses of steps of SGD.
std::vector<float> trained(const char* file) {
  tracestep_options options{};
  options.size = sizeof options;
  options.words = "device=cpu threads=1";
  options.rule = TRACESTEP_SGD;
  tracestep_session* session = nullptr;
  tracestep_run* run = nullptr;
  check(tracestep_open(&options, &session));
  check(tracestep_plan(session, file, TRACESTEP_STEP, &run));
  check(tracestep_start(run));
  std::vector<float> x(kRows * kWidth), wanted(kRows), w(kWidth);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 9) / 4 - 1;
  for (std::size_t r = 0; r < wanted.size(); ++r) wanted[r] = 2 * x[r * kWidth] - x[r * kWidth + 1];
  check(tracestep_set(run, "x", x.data(), kRows * kWidth * 4));
  check(tracestep_set(run, "wanted", wanted.data(), kRows * 4));
  check(tracestep_set(run, "w", w.data(), kWidth * 4));
  std::vector<float> losses(kSteps);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    check(tracestep_rate(run, 0, 1e-3, step));
    check(tracestep_go(run, nullptr));
    check(tracestep_get(run, "loss", &losses[static_cast<std::size_t>(step - 1)], 4));
  }
  tracestep_close(session);
  return losses;
}

int main() {
  register_tiled_sum();
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "tiled_step.txt";
  std::ofstream(file) << kProgram;
  const std::vector<float> taken_apart = trained(file.c_str());
  static int calls = 0;
  tracestep::capi::use_kernels({.cpu = [](tracestep::KernelTable& table) {
    add_cpu_kernels(table);
    ++calls;
  }});
  const std::vector<float> with_kernels = trained(file.c_str());
  std::filesystem::remove(file);
  bool is_right = calls == 1 && with_kernels.back() < 0.5F * with_kernels.front();
  for (std::size_t i = 0; i < with_kernels.size(); ++i) {
    is_right = is_right && std::abs(with_kernels[i] - taken_apart[i]) < 1e-3F * taken_apart[0];
  }
  std::printf("loss %.3f to %.3f, with kernels of its own and without\n", with_kernels.front(),
              with_kernels.back());
  return is_right ? 0 : 1;
}
