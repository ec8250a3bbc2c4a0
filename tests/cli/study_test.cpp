// `tracestep study` as a person runs it: three files that say the same.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "lab/report/html.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(StudyTest, WritesAPageWithTheNumbersOfItsJsonAndSaysWhatItLeftOut) {
  const TempFolder temp;
  const fs::path folder = temp.path();
  const ProgramRun run = run_tracestep(
      words_of("study --quick --budget 0.25 --train-steps 2 --threads 1 --output-dir " +
               folder.string()),
      {.folder = testing::source_folder()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("What do sums in float32, float16 and mixed formats give?"));
  EXPECT_THAT(run.out, HasSubstr("9.953125"));
  const Json data = Json::parse(text_of(folder / "study.json"), "study.json");
  const std::string page = text_of(folder / "study.html");
  EXPECT_TRUE(Json::parse(json_of_page(page, "study.html"), "study.html") == data);
  EXPECT_THAT(text_of(folder / "study.md"), HasSubstr("## Questions and answers"));
  // The time given is short: parts are left out, and questions that need them are refused.
  EXPECT_EQ(data.at("schema").as_string(), "tracestep.study/2");
  for (const Json& part : data.at("tables").at("parts").at("rows").items()) {
    EXPECT_THAT((std::vector<std::string>{"done", "in part", "left out"}),
                ::testing::Contains(part.at("status").as_string()));
  }
  for (const Json& answer : data.at("tables").at("answers").at("rows").items()) {
    const bool is_no_answer = answer.at("answer").as_string().starts_with("No answer");
    EXPECT_EQ(answer.at("refused").as_bool(), is_no_answer) << answer.at("id").as_string();
  }
}

TEST(StudyTest, APartThatRunsOutOfMemoryIsNamedAndTheOthersGoOn) {
  const TempFolder temp;
  const ProgramRun run = run_tracestep(
      words_of("study --quick --budget 0.05 --train-steps 1 --threads 1 --memory-limit 60MiB "
               "--output-dir " +
               temp.path().string()),
      {.folder = testing::source_folder()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("No answer: training ran out of memory"));
  const Json data = Json::parse(text_of(temp.path() / "study.json"), "study.json");
  std::map<std::string, std::string> status;
  for (const Json& part : data.at("tables").at("parts").at("rows").items()) {
    status[part.at("part").as_string()] = part.at("status").as_string();
    const bool is_out = part.at("status").as_string() == "out of memory";
    EXPECT_EQ(part.at("detail").is_null(), !is_out) << part.dump();
  }
  EXPECT_EQ(status["training"], "out of memory");
  EXPECT_EQ(status["number formats"], "done");
  EXPECT_TRUE(status.contains("review"));
}

}  // namespace
}  // namespace tracestep
