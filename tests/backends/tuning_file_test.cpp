// Choices of algorithms on disk, by several processes at once: ranks tune the same products
// together.
#ifdef TRACESTEP_WITH_CUDA
#include "backends/cuda/toolkit/tuning_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

TEST(TuningFileTest, ProcessesThatTuneTogetherLeaveAWholeFile) {
  constexpr int kProcesses = 3, kProducts = 100;
  const TempFolder folder;
  const std::string path = (folder / "tuning.json").string();
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    try {
      cuda::TuningFile file(path, "GPU", "library");
      for (int product = 0; product < kProducts; ++product) {
        file.add(std::to_string(product), {}, 1.0);
      }
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const cuda::TuningFile file(path, "GPU", "library");
  for (int product = 0; product < kProducts; ++product) {
    EXPECT_TRUE(file.find(std::to_string(product)).has_value()) << product;
  }
}

}  // namespace
}  // namespace tracestep
#endif
