#include "lab/measure/environment.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "base/cores.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

TEST(EnvironmentTest, TheMachineAndTheBuildAreNamed) {
  const Json e = capture_environment({}, 3);
  EXPECT_TRUE(e.at("tool").as_string().starts_with("tracestep "));
  std::string date = e.at("date_utc").as_string();
  for (char& c : date) c = c >= '0' && c <= '9' ? '9' : c;
  EXPECT_EQ(date, "9999-99-99T99:99:99Z");
  EXPECT_EQ(e.at("threads").as_int(), 3);
  EXPECT_EQ(e.at("cores").as_int(), allowed_cores());
  EXPECT_GE(allowed_cores(), 1);
  EXPECT_GT(e.at("memory_total_bytes").as_int(), 1 << 20);
  for (const char* key : {"commit", "compiler", "build_type", "cpu", "simd", "kernel", "libc"}) {
    EXPECT_NE(e.find(key), nullptr) << key;
  }
  EXPECT_EQ(Json::parse(e.dump(2), "environment"), e);
}

TEST(EnvironmentTest, TheCommitIsThatOfTheCheckout) {
  if (!std::filesystem::exists(testing::source_folder() / ".git")) {
    GTEST_SKIP() << "this is no checkout";
  }
  const Json commit = capture_environment().at("commit");
  ASSERT_TRUE(commit.is_string());
  std::string text = commit.as_string();
  if (text.ends_with("-dirty")) text.resize(text.size() - 6);
  EXPECT_GE(text.size(), 12u);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos) << text;
}

// The commit that cmake/commit.cmake finds for a folder.
std::string commit_of(const TempFolder& folder) {
  const std::string script = (testing::source_folder() / "cmake/commit.cmake").string();
  const std::string command =
      fmt::format("cmake -DSOURCE={0} -DOUTPUT={0}/out.cpp -P {1}", folder.path().string(), script);
  EXPECT_EQ(std::system(command.c_str()), 0);
  const std::string code = content_of(folder / "out.cpp");
  const std::size_t begin = code.find('"', code.find("kCommit")) + 1;
  return code.substr(begin, code.find('"', begin) - begin);
}

TEST(EnvironmentTest, AnArchiveKnowsTheCommitItWasMadeFrom) {
  if (!std::filesystem::exists(testing::source_folder() / "cmake/commit.cmake")) {
    GTEST_SKIP() << "these are no sources";
  }
  const TempFolder folder;
  const std::string whole = "0123456789abcdef0123456789abcdef01234567";
  folder.write("cmake/archived_commit.txt", whole + "\n");
  EXPECT_EQ(commit_of(folder), whole.substr(0, 12));
  // As it is in a checkout; copied without its .git, nothing is known.
  folder.write("cmake/archived_commit.txt", "$Format:%H$\n");
  EXPECT_EQ(commit_of(folder), "");
  EXPECT_NE(content_of(testing::source_folder() / ".gitattributes")
                .find("cmake/archived_commit.txt export-subst"),
            std::string::npos);
}

TEST(EnvironmentTest, FoldersAreRemovedFromArguments) {
  EXPECT_EQ(without_folders("./build/tracestep"), "tracestep");
  EXPECT_EQ(without_folders("--tokens=/home/me/x.bin"), "--tokens=x.bin");
  EXPECT_EQ(without_folders("/data/text/"), "text/");
  EXPECT_EQ(without_folders("/"), "/");
  EXPECT_EQ(without_folders("--output="), "--output=");
  EXPECT_EQ(without_folders("128,256"), "128,256");
}

TEST(EnvironmentTest, NothingNamesAPerson) {
  const std::vector<std::string> command = {"/home/somebody/tracestep", "--output=/secret/a.json"};
  const std::string text = capture_environment(command).dump();
  EXPECT_EQ(text.find("somebody"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace tracestep
