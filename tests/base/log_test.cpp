#include "base/log.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kInfo); }
};

TEST_F(LogTest, MessagesAreLinesOnStderrUpToTheLevel) {
  testing::internal::CaptureStderr();
  log_info("read {} files", 3);
  log_warn("slow");
  log_debug("hidden");
  set_log_level(LogLevel::kQuiet);
  log_warn("hidden");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "read 3 files\nwarning: slow\n");
}

TEST_F(LogTest, TheProgressLineIsSilentWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressLine line;
    EXPECT_FALSE(line.is_shown());
    line.update("step 1");
    line.done();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tracestep
