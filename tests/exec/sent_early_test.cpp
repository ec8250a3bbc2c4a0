// Results that are sent early are each read when they are there: the loss while backward waits, the
// norm while the weights' update waits.
#include <gtest/gtest.h>

#include "exec/small_steps.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/deferring_device.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::DeferringDevice;
using testing::small_step;

TEST(SentEarlyTest, TheLossDoesNotWaitForTheNorm) {
  ops::register_all();
  for (ExecutorKind kind : kAll<ExecutorKind>) {
    RunSpec spec = small_step(Mode::kStep, Granularity::kFused);
    spec.executor = kind;
    spec.optimizer.clip = 0.5;
    DeferringDevice device(testing::backend_named("cpu").make({.threads = 1}));
    Store store(device);
    const auto executor = make_executor(kind, store, step_program(spec, device));
    initialize_parameters(store, 1);
    executor->observe({.early = {"loss", "grad_norm"}});
    testing::set_inputs(*executor);
    executor->run();
    const std::size_t issued = device.pending();
    const HostTensor loss = executor->output("loss");
    const std::size_t behind_loss = device.pending();
    const HostTensor norm = executor->output("grad_norm");
    const std::size_t behind_norm = device.pending();
    EXPECT_LT(behind_loss, issued) << name_of(kind);
    EXPECT_GT(behind_loss, issued / 3) << name_of(kind);  // all of backward
    EXPECT_LT(behind_norm, behind_loss / 2) << name_of(kind);
    EXPECT_GT(behind_norm, 0u) << name_of(kind);
    device.synchronize();
    EXPECT_EQ(executor->output("loss").bytes, loss.bytes);
    EXPECT_EQ(executor->output("grad_norm").bytes, norm.bytes);
  }
}

}  // namespace
}  // namespace tracestep
