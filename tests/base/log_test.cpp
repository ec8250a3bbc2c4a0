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
  set_log_level(LogLevel::kWarn);
  log_info("hidden");
  set_log_level(LogLevel::kQuiet);
  log_warn("hidden");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "read 3 files\nwarning: slow\n");
}

TEST_F(LogTest, AMessageStaysOneLineOfTextOfBoundedLength) {
  testing::internal::CaptureStderr();
  log_warn("{}", "a\x1b[2J\nb\xff");
  log_info("{}", std::string(1'000'000, 'x'));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("warning: a\\x1b[2J\\x0ab\\xff\nxxx")) << said.substr(0, 60);
  EXPECT_LT(said.size(), 4200u);
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
