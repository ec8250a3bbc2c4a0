// A search that takes a while says so: a bar on a terminal, one notice elsewhere.
#include "cli/remaining_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/on_terminal.h"

namespace tracestep::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string said_by(const std::vector<std::pair<milliseconds, int>>& updates) {
  ::testing::internal::CaptureStderr();
  SearchProgress progress;
  const auto start = SearchProgress::Clock::now();
  progress.know("the peak is 8.00 GiB, of 4.00 GiB");
  for (const auto& [after, done] : updates) progress.update("trying", done, 50, start + after);
  progress.done();
  return ::testing::internal::GetCapturedStderr();
}

// A bound may leave out all sets that are left, so the notice counts them and guesses no time.
TEST(SearchProgressTest, WithoutATerminalALongSearchIsAnnouncedOnce) {
  EXPECT_EQ(said_by({{milliseconds(0), 0}, {milliseconds(500), 10}}), "");
  const std::string said = said_by({{milliseconds(0), 0},
                                    {milliseconds(2000), 5},
                                    {milliseconds(4000), 6},
                                    {milliseconds(9000), 50}});
  EXPECT_THAT(said, HasSubstr("the peak is 8.00 GiB, of 4.00 GiB; searching, 5 of 50 sets of "
                              "changes weighed\n"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST(SearchProgressTest, ATerminalShowsABarAndTheVerdict) {
  if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
  const std::string shown =
      on_terminal("fit --size large --context 1024 --memory-limit 8GiB --published H100", 200, {},
                  STDERR_FILENO);
  EXPECT_THAT(shown,
              ::testing::ContainsRegex("\\[#+-+\\]  the peak is .* GiB, of 8.00 GiB  [0-9]+ of "
                                       "[0-9]+ sets of changes weighed  "));
  EXPECT_THAT(shown, ::testing::ContainsRegex("trying --"));
  EXPECT_THAT(shown, ::testing::Not(HasSubstr(" left")));
}

}  // namespace
}  // namespace tracestep::cli
