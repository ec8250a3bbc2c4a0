// Trains a tiny language model on a few lines of text for twenty steps: from a model to a program,
// from a program to numbers. Start reading here.
#include "backends/cpu/cpu_device.h"
#include "base/units.h"
#include "session/session.h"
#include "tokens/batches.h"
#include "tokens/tokenizer.h"
#include "train/schedule.h"
#include "weights/model_store.h"

using namespace tracestep;

constexpr int kSteps = 20;
constexpr double kLearningRate = 3e-3;
constexpr std::string_view kText =
    "A training step is a program. It reads a batch of tokens, guesses each next token, and says "
    "how wrong it was: the loss. It walks back through everything it did and finds, for each "
    "weight, in which direction the loss falls: the gradient. Then it takes a small step that way.";

// A rank-0 input: what changes between steps lies in device memory, like everything else.
HostTensor scalar(double value) {
  const auto narrow = static_cast<float>(value);
  return HostTensor::of<float>(DType::kF32, {}, std::span(&narrow, 1));
}

int main() {
  // 1. Data. One token per byte; each target is the token that follows.
  const auto tokenizer = byte_tokenizer();
  const BatchShape shape{.batch = 4, .context = 32};
  const Batches batches(memory_tokens("text", tokenizer->encode(kText)),
                        {.batch = shape.batch, .context = shape.context});

  // 2. What the run is: a model, a batch, and what a step does.
  const RunSpec spec{.model = {.vocab = tokenizer->vocab_size(),
                               .d_model = 64,
                               .d_ff = 192,
                               .layers = 2,
                               .heads = 4},
                     .shape = shape,
                     .mode = Mode::kStep,
                     .optimizer = {.clip = 1.0},
                     .seed = 1};

  // 3. A session makes a program of it, forward, backward and AdamW, of ops that the device can run
  //    (`tracestep show` prints such programs); a store, which owns weights and optimizer state
  //    by name; and an executor, which owns inputs and temporaries.
  const auto device = make_cpu_device();
  Session session(*device, spec);
  Executor& executor = session.executor();
  const Program& program = session.program();
  initialize_parameters(session.store(), spec.seed);
  fmt::print("{} parameters, {} nodes, {} kernels a step, predicted peak {}\n",
             parameter_count(program), program.nodes.size(), executor.launches(),
             format_bytes(executor.predicted_peak_bytes()));

  // 4. The loop: set the inputs, run, read the loss. Updates are part of the program, so the store
  //    holds the new weights as soon as run() returns.
  double first = 0.0, last = 0.0;
  for (int step = 1; step <= kSteps; ++step) {
    const Batch batch = batches.at(step - 1);
    executor.set_input("tokens", batch.tokens);
    executor.set_input("targets", batch.targets);
    executor.set_input("lr", scalar(kLearningRate));
    executor.set_input("step_size", scalar(step_size(kLearningRate, 0.9, 0.999, step)));
    executor.run();
    last = executor.scalar("loss");
    if (step == 1) first = last;
    fmt::print("step {:2}  loss {:.3f}  gradient norm {:.3f}\n", step, last,
               executor.scalar("grad_norm"));
  }

  // 5. The prediction was no estimate: the allocator counted the same bytes.
  const std::int64_t measured = device->allocator().stats().peak_requested_bytes;
  fmt::print("measured peak {}\n", format_bytes(measured));
  return last < first && measured == executor.predicted_peak_bytes() ? 0 : 1;
}
