// Trains a captured folder from C++, without Python: micro-batches of drawn tokens, the loss of a
// batch that is not trained on, the weights at the end.
//
//     train_folder_cpp FOLDER WEIGHTS.safetensors [WORDS]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <tracestep/tracestep.h>

namespace {

void check(int status) {
  if (status != TRACESTEP_OK) throw std::runtime_error(tracestep_message());
}

struct Close {
  void operator()(tracestep_session* session) const { tracestep_close(session); }
};

tracestep_run* started(tracestep_session* session, const char* folder, tracestep_kind kind) {
  tracestep_run* run = nullptr;
  check(tracestep_plan(session, folder, kind, &run));
  check(tracestep_start(run));
  return run;
}

// Draws tokens below 5, and numbers around 0, for what the module reads; the loss of the run.
float loss_of(tracestep_run* run, unsigned seed) {
  std::mt19937 draw(seed);
  tracestep_tensor x;
  for (int64_t i = 0; tracestep_tensor_at(run, i, &x) == TRACESTEP_OK; ++i) {
    if (x.role != TRACESTEP_IN) continue;
    std::vector<int64_t> tokens(std::string_view(x.dtype) == "i64" ? x.bytes / 8 : 0);
    std::vector<float> numbers(std::string_view(x.dtype) == "f32" ? x.bytes / 4 : 0);
    for (int64_t& token : tokens) token = draw() % 5;
    for (float& number : numbers) number = std::normal_distribution<float>()(draw);
    check(tracestep_set(
        run, x.name, tokens.empty() ? static_cast<void*>(numbers.data()) : tokens.data(), x.bytes));
  }
  float loss = 0;
  check(tracestep_go(run, nullptr));
  check(tracestep_get(run, "loss", &loss, sizeof loss));
  return loss;
}

void train(const char* folder, const char* weights, const char* words) {
  tracestep_options options{};
  options.size = sizeof options;
  options.words = words;
  options.accumulate = 2;
  options.clip = 1.0;
  tracestep_session* opened = nullptr;
  check(tracestep_open(&options, &opened));
  const std::unique_ptr<tracestep_session, Close> session(opened);
  tracestep_run* const first = started(opened, folder, TRACESTEP_FIRST);
  tracestep_run* const next = started(opened, folder, TRACESTEP_NEXT);
  tracestep_run* const update = started(opened, nullptr, TRACESTEP_UPDATE);
  tracestep_run* const forward = started(opened, folder, TRACESTEP_FORWARD);
  check(tracestep_load(first));
  for (int64_t step = 1; step <= 20; ++step) {
    const float loss = loss_of(first, 2 * step % 8) + loss_of(next, 2 * step % 8 + 1);
    check(tracestep_rate(update, 0, 1e-2, step));
    check(tracestep_go(update, nullptr));
    std::printf("step %2d  loss %.4f  other %.4f\n", static_cast<int>(step), loss,
                loss_of(forward, 99));
  }
  check(tracestep_save(first, weights));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw std::runtime_error("train_folder_cpp FOLDER WEIGHTS.safetensors [WORDS]");
    train(argv[1], argv[2], argc > 3 ? argv[3] : "device=cpu");
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}
