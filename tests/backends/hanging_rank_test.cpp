// A rank that waits for its device for ever ends all, with one line that says where it waits.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "ops/functions.h"
#include "support/backends.h"
#include "support/hanging_device.h"
#include "support/joined_processes.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using testing::in_processes;

constexpr double kTimeoutS = 0.1, kTimeoutOfPeersS = 20.0;
constexpr std::chrono::seconds kMuchLonger{30};

// Trains; the device's work ends no more from step 3 on.
void train_until_it_hangs() {
  testing::HangingDevice device(testing::backend_named("cpu").make({.threads = 1}));
  Trainer trainer(device, testing::tiny_training(), testing::some_tokens(), nullptr);
  initialize_parameters(trainer.store(), 3);
  for (std::int64_t step = 0;; ++step) {
    device.hangs = step == 2;
    trainer.step(step);
  }
}

TEST(HangingRankTest, ItEndsAllAndSaysWhereItWaits) {
  ops::register_all();
  for (const int hanging : {0, 1}) {
    const TempFolder folder;
    const auto statuses = in_processes(2, kTimeoutOfPeersS, [&](Processes& all) {
      const int file = ::open((folder / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      testing::expect(::dup2(file, STDERR_FILENO) >= 0);
      const WaitWatch watch(all, kTimeoutS);
      if (all.rank() == hanging) train_until_it_hangs();
      std::this_thread::sleep_for(kMuchLonger);
    });
    EXPECT_EQ(statuses, (std::vector<int>{1, 1}));
    const std::string said = content_of(folder / "err");
    EXPECT_THAT(said, HasSubstr(fmt::format("tracestep: [rank {}] it has waited for its device for",
                                            hanging)));
    EXPECT_THAT(said, HasSubstr(", in step 3; "));
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  }
}

TEST(HangingRankTest, ManyWaitsAreNotALongOne) {
  const auto statuses = in_processes(2, kTimeoutOfPeersS, [](Processes& all) {
    const WaitWatch watch(all, kTimeoutS);
    for (int i = 0; i < 3; ++i) {
      const HostWait outer("a queue");
      const HostWait inner("its device");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace tracestep
