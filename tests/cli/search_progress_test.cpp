// A search that takes a while says so: a bar on a terminal, one notice elsewhere.
#include "cli/remaining_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/on_terminal.h"

namespace tracestep::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string said_by(const std::vector<std::pair<milliseconds, double>>& updates) {
  ::testing::internal::CaptureStderr();
  SearchProgress progress;
  const auto start = SearchProgress::Clock::now();
  progress.know("the peak is 8.00 GiB, of 4.00 GiB");
  for (const auto& [after, share] : updates) progress.update("trying", share, start + after);
  progress.done();
  return ::testing::internal::GetCapturedStderr();
}

TEST(SearchProgressTest, WithoutATerminalALongSearchIsAnnouncedOnce) {
  EXPECT_EQ(said_by({{milliseconds(0), 0}, {milliseconds(500), 0.2}}), "");
  const std::string said = said_by({{milliseconds(0), 0},
                                    {milliseconds(2000), 0.1},
                                    {milliseconds(4000), 0.2},
                                    {milliseconds(9000), 0.5}});
  EXPECT_THAT(said, HasSubstr("the peak is 8.00 GiB, of 4.00 GiB; searching, about 18 s left"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST(SearchProgressTest, ATerminalShowsABarAndTheVerdict) {
  if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
  const std::string shown =
      on_terminal("fit --size large --context 1024 --memory-limit 8GiB --published H100", 200, {},
                  STDERR_FILENO);
  EXPECT_THAT(shown, ::testing::ContainsRegex("\\[#+-+\\]  the peak is .* GiB, of 8.00 GiB"));
  EXPECT_THAT(shown, ::testing::ContainsRegex("trying --"));
}

}  // namespace
}  // namespace tracestep::cli
