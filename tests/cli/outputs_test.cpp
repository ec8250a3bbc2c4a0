// No command writes over a file that it reads, or over another of its outputs.
#include <filesystem>

#include <gtest/gtest.h>

#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

constexpr const char* kKept = "{\"kept\": 1}\n";

class OutputsTest : public ::testing::Test {
 protected:
  // Refused before anything happens, with both flags named; the file stays as it is.
  void expect_apart(const std::string& arguments, std::string_view flag) {
    const ProgramRun run = run_tracestep(words_of(arguments), {.folder = folder_.path()});
    EXPECT_EQ(run.status, 2) << arguments << "\n" << run.err;
    EXPECT_TRUE(contains(run.err, flag)) << run.err;
    EXPECT_TRUE(contains(run.err, "name another file")) << run.err;
    EXPECT_EQ(content_of(folder_ / "q"), kKept) << arguments;
  }

  TempFolder folder_;
};

TEST_F(OutputsTest, AnInputOrAnotherOutputIsNeverWrittenOver) {
  folder_.write("q", kKept);
  folder_.write("other", "{}");
  expect_apart("bench --device null --resume q --output q", "--resume");
  expect_apart("compare q other --output q", "of A");
  expect_apart("compare other q --output q", "of B");
  expect_apart("explain warm-up --from q --output q", "--from");
  expect_apart("memory --fingerprint q --output q", "--fingerprint");
  expect_apart("memory --predict --snapshot q --output q", "--snapshot");
  expect_apart("memory --predict --snapshot q --snapshot-json q", "--snapshot");
  expect_apart("profile --trace q --output q", "--trace");
}

TEST_F(OutputsTest, LinksAndOtherSpellingsAreTheSameFile) {
  folder_.write("q", kKept);
  std::filesystem::create_symlink("q", folder_ / "link");
  std::filesystem::create_symlink("new", folder_ / "dangling");
  std::filesystem::create_directory(folder_ / "sub");
  expect_apart("bench --device null --resume q --output link", "--resume");
  expect_apart("bench --device null --resume link --output sub/../q", "--resume");
  expect_apart("bench --device null --resume new --output ./new", "--resume");
  expect_apart("bench --device null --resume dangling --output new", "--resume");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

// Whatever flag named it: a message with another one would send a reader there.
TEST_F(OutputsTest, AFileThatCannotBeWrittenIsNamedWithoutAFlag) {
  for (const char* flag : {"--snapshot", "--output"}) {
    const ProgramRun run = run_tracestep(
        words_of(fmt::format("memory --predict --size tiny --context 8 {} /dev/full", flag)));
    EXPECT_EQ(run.status, 5) << run.err;
    EXPECT_TRUE(contains(run.err, "tracestep: [file] /dev/full cannot be written")) << run.err;
  }
}

TEST_F(OutputsTest, AStudyWhosePagesAreOneFileIsRefused) {
  folder_.write("q", kKept);
  std::filesystem::create_symlink("q", folder_ / "study.md");
  std::filesystem::create_symlink("q", folder_ / "study.json");
  expect_apart("study --quick --output-dir .", "--output-dir");
}

}  // namespace
}  // namespace tracestep
