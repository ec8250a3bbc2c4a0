#include "base/reading_progress.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

using std::chrono::milliseconds;

std::string said(milliseconds patience, std::initializer_list<std::int64_t> updates) {
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  {
    ReadingProgress progress("reading f.bin", 100, patience);
    for (std::int64_t done : updates) progress.update(done);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(ReadingProgressTest, AQuickReadingSaysNothing) {
  EXPECT_EQ(said(std::chrono::hours(1), {1, 50, 100}), "");
}

TEST(ReadingProgressTest, ALogGetsOneMessageWithThePartAndTheTimeThatIsLeft) {
  const std::string message = said(milliseconds(0), {25, 50, 75, 100});
  EXPECT_TRUE(message.starts_with("reading f.bin: 25 %, about ")) << message;
  EXPECT_TRUE(message.ends_with(" to go\n")) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1);
}

TEST(ReadingProgressTest, TheEndNeedsNoMessage) {
  EXPECT_EQ(said(milliseconds(0), {0, 100}), "");
}

}  // namespace
}  // namespace tracestep
